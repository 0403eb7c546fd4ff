#include "engine/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/philox.h"
#include "tests/engine/sampler_reference.h"
#include "tests/engine/sampler_support.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;

SampleOptions WithLogprobs(int32_t top) {
  SampleOptions options;
  options.logprob = true;
  options.top_logprobs = top;
  return options;
}

int32_t Greedy(std::vector<float> logits, const SampleOptions& options = {}) {
  SamplingParams params;
  params.temperature = 0;
  SamplerMemory memory;
  const int32_t token =
      Sample(std::move(logits), params, memory, options).token;
  EXPECT_EQ(memory.draws, 0u);
  return token;
}

// Random123 1.14, tests/kat_vectors: philox4x32 with 10 rounds.
TEST(PhiloxTest, GivesThePublishedNumbers) {
  EXPECT_THAT(Philox4x32({0, 0, 0, 0}, {0, 0}),
              ElementsAre(0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8));
  EXPECT_THAT(Philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
              ElementsAre(0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd));
  EXPECT_THAT(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
                         {0xa4093822, 0x299f31d0}),
              ElementsAre(0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1));
}

TEST(PhiloxTest, MakesAFractionOfTheFirstTwoWords) {
  EXPECT_EQ(PhiloxUniform(0, 0),
            static_cast<double>(0xe169c58d6627e8d5 >> 11) / (1ull << 53));
  // All 64 bits of the seed and of the index count.
  EXPECT_NE(PhiloxUniform(1ull << 40, 0), PhiloxUniform(0, 0));
  EXPECT_NE(PhiloxUniform(0, 1ull << 40), PhiloxUniform(0, 0));
}

TEST(SamplerTest, IsGreedyAtTemperatureZeroAndTakesTheLowerOfTies) {
  EXPECT_EQ(Greedy({1, 3, 2, 3}), 1);
  EXPECT_EQ(Greedy({-5, -5, -5}), 0);
  const std::vector<int32_t> banned = {1, 0};
  EXPECT_EQ(Greedy({1, 3, 2, 3}, {.banned = banned}), 3);
}

TEST(SamplerTest, NeverChoosesALogitThatIsNotFinite) {
  EXPECT_EQ(Greedy({kNan, kInf, -kInf, -1e30f}), 3);
  SamplerMemory memory;
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(Sample({kNan, kInf, 0, -kInf}, {}, memory).token, 2);
  }
  const SampledToken scored =
      Sample({kNan, 1, 1, kInf}, {}, memory, WithLogprobs(4));
  EXPECT_FLOAT_EQ(scored.logprob, std::log(0.5f));
  EXPECT_EQ(scored.top.size(), 2u);
}

TEST(SamplerTest, SaysSoIfNothingIsLeft) {
  const std::vector<int32_t> banned = {0, 1};
  for (const float temperature : {0.0f, 1.0f}) {
    SamplingParams params;
    params.temperature = temperature;
    SamplerMemory memory;
    const SampledToken none =
        Sample({kNan, kInf}, params, memory, WithLogprobs(2));
    EXPECT_FALSE(none.possible);
    EXPECT_EQ(none.token, 0);
    EXPECT_EQ(none.logprob, -kInf);
    EXPECT_TRUE(none.top.empty());
    const SampledToken all_banned =
        Sample({1, 2}, params, memory, {.banned = banned});
    EXPECT_FALSE(all_banned.possible);
    EXPECT_EQ(all_banned.token, 0);
    EXPECT_EQ(all_banned.logprob, -kInf);
    EXPECT_TRUE(Sample({kNan, 2}, params, memory).possible);
    EXPECT_EQ(memory.draws, temperature == 0 ? 0u : 3u);
  }
}

// Pearson's statistic with 9 degrees of freedom stays below 27.9 in all but one
// of 1000 samples; the seed is fixed, so this either always holds or never.
TEST(SamplerTest, DrawsInProportionToSoftmax) {
  const std::vector<float> logits = {0, 1, -1, 2, 0.5f, -2, 1.5f, 0, 0.2f, -3};
  constexpr int kDraws = 200000;
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 11;
    SamplerMemory memory;
    Sampler sampler(10);
    std::vector<int> counts(10);
    for (int i = 0; i < kDraws; ++i) {
      std::vector<float> row = logits;
      ++counts[sampler.Sample(row, params, {}, 0, memory).token];
    }
    EXPECT_EQ(memory.draws, uint64_t{kDraws});
    double statistic = 0;
    for (int i = 0; i < 10; ++i) {
      const double expected =
          kDraws * std::exp(logits[i] / temperature) / total;
      statistic += std::pow(counts[i] - expected, 2) / expected;
    }
    EXPECT_LT(statistic, 27.9) << temperature;
  }
}

// The reference tells for every random number which token it stands for.
void ExpectAsReference(size_t vocab, const SamplingParams& params,
                       uint32_t logits_seed) {
  const std::vector<float> logits = RandomLogits(vocab, logits_seed);
  const std::vector<double> expected =
      reference::Probabilities(logits, params, {});
  Sampler sampler(static_cast<int64_t>(vocab));
  SamplerMemory memory;
  for (int i = 0; i < 200; ++i) {
    const double uniform = PhiloxUniform(params.seed, memory.draws);
    std::vector<float> row = logits;
    ASSERT_EQ(sampler.Sample(row, params, {}, 0, memory).token,
              reference::TokenAt(expected, uniform))
        << "vocab " << vocab << " k " << params.top_k << " p " << params.top_p
        << " typical " << params.typical_p << " min " << params.min_p;
  }
}

TEST(SamplerTest, FiltersAsThePlainReferenceDoes) {
  uint32_t seed = 0;
  for (const size_t vocab : {3, 50, 64, 65, 1000, 5000}) {
    for (const int32_t top_k : {0, 1, 2, 40, 2000}) {
      SamplingParams params;
      params.top_k = std::min(top_k, static_cast<int32_t>(vocab));
      params.seed = ++seed;
      ExpectAsReference(vocab, params, seed);
    }
    for (const float share : {1e-6f, 0.1f, 0.5f, 0.9f, 0.999f}) {
      SamplingParams params;
      params.seed = ++seed;
      params.top_p = share;
      ExpectAsReference(vocab, params, seed);
      params.top_p = 1;
      params.typical_p = share;
      ExpectAsReference(vocab, params, seed);
      params.typical_p = 1;
      params.min_p = share;
      ExpectAsReference(vocab, params, seed);
    }
  }
}

// As many tokens as models have, most of them with hardly any probability.
TEST(SamplerTest, FiltersAsThePlainReferenceDoesAtFullSize) {
  for (const float temperature : {0.3f, 1.0f, 2.0f}) {
    for (const float top_p : {0.5f, 0.9f, 0.999f, 1.0f}) {
      for (const int32_t top_k : {0, 40, 20000}) {
        SamplingParams params;
        params.temperature = temperature;
        params.top_p = top_p;
        params.top_k = top_k;
        params.seed = static_cast<uint64_t>(top_k) + 1;
        ExpectAsReference(50257, params, /*logits_seed=*/9);
      }
    }
  }
}

TEST(SamplerTest, AppliesFiltersInTheStatedOrder) {
  std::mt19937 random(5);
  std::uniform_real_distribution<float> uniform(0.05f, 0.99f);
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SamplingParams params;
    params.seed = seed;
    params.temperature = 0.3f + uniform(random);
    params.top_k = 1 + static_cast<int32_t>(random() % 300);
    params.typical_p = uniform(random);
    params.top_p = uniform(random);
    params.min_p = uniform(random) * 0.2f;
    ExpectAsReference(500, params, seed);
  }
}

TEST(SamplerTest, FiltersTakeTheLowerOfTies) {
  const std::vector<float> logits(500, 1.0f);
  const auto highest_drawn = [&](const SamplingParams& params) {
    SamplerMemory memory;
    Sampler sampler(500);
    int32_t highest = 0;
    for (int i = 0; i < 2000; ++i) {
      std::vector<float> row = logits;
      highest =
          std::max(highest, sampler.Sample(row, params, {}, 0, memory).token);
    }
    return highest;
  };
  SamplingParams top_k;
  top_k.top_k = 10;
  EXPECT_EQ(highest_drawn(top_k), 9);
  SamplingParams top_p;
  top_p.top_p = 0.0199f;  // 9.95 tokens' worth
  EXPECT_EQ(highest_drawn(top_p), 9);
  SamplingParams typical;
  typical.typical_p = 0.0199f;
  EXPECT_EQ(highest_drawn(typical), 9);
  SamplingParams min_p;
  min_p.min_p = 0.999f;
  EXPECT_GT(highest_drawn(min_p), 490);
}

TEST(SamplerTest, StaysFiniteAtTheEndsOfTheRanges) {
  SamplingParams params;
  params.temperature = std::numeric_limits<float>::denorm_min();
  params.top_p = params.typical_p = 1e-30f;
  params.repetition_penalty = std::numeric_limits<float>::denorm_min();
  params.logit_bias = {{0, 100.0f}, {0, 100.0f}};
  SamplerMemory memory;
  RememberToken(1, 0, 1, memory);
  constexpr float kMax = std::numeric_limits<float>::max();
  EXPECT_EQ(Sample({kMax, 3, -kMax}, params, memory, {}, 1).token, 0);
  EXPECT_EQ(Sample({0, 3, -kMax}, params, memory, {}, 1).token, 1);
  SamplingParams coldest;  // of all, without a filter
  coldest.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(Sample({kMax, 3, -kMax}, coldest, memory, {}, 1).token, 0);
  EXPECT_EQ(Sample({0, 3, -kMax}, coldest, memory, {}, 1).token, 1);
}

// What is left of a session's memory if it has only its counter.
SamplerMemory CarriedOver(const SamplerMemory& memory) {
  SamplerMemory carried;
  carried.draws = memory.draws;
  return carried;
}

// The same seed and draws give the same token, whatever the sampler did before.
TEST(SamplerTest, DependsOnSeedAndDrawsAlone) {
  SamplingParams params;
  params.seed = 0x123456789abcdef;
  params.top_p = 0.95f;
  SamplingParams other;
  other.seed = 5;
  other.typical_p = 0.3f;
  other.penalty_last_n = 4;
  other.presence_penalty = 1;
  std::vector<int32_t> alone;
  std::vector<int32_t> in_company;
  Sampler solo(300);
  Sampler shared(300);
  SamplerMemory memory;
  SamplerMemory memory_in_company;
  SamplerMemory other_memory;
  GrowWindow(other, other_memory);
  for (uint32_t i = 0; i < 100; ++i) {
    std::vector<float> row = RandomLogits(300, i);
    alone.push_back(solo.Sample(row, params, {}, i, memory).token);
    row = RandomLogits(300, 1000 + i);
    const int32_t token = shared.Sample(row, other, {}, i, other_memory).token;
    RememberToken(token, i, 1, other_memory);
    row = RandomLogits(300, i);
    in_company.push_back(
        shared.Sample(row, params, {}, i, memory_in_company).token);
    // A resume: what the session holds is enough.
    memory_in_company = CarriedOver(memory_in_company);
  }
  EXPECT_EQ(alone, in_company);
  params.seed += 1;
  memory = {};
  std::vector<int32_t> other_seed;
  for (uint32_t i = 0; i < 100; ++i) {
    std::vector<float> row = RandomLogits(300, i);
    other_seed.push_back(solo.Sample(row, params, {}, i, memory).token);
  }
  EXPECT_NE(alone, other_seed);
}

TEST(SamplerTest, ReportsLogprobsOfTheModelBeforeBiasAndPenalties) {
  const std::vector<float> logits = {1, 2, 3, 3, 0};
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  const auto logprob = [&](int i) {
    return static_cast<float>(logits[i] - std::log(total));
  };
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{4, 50.0f}};
  params.presence_penalty = 2;
  SamplerMemory memory;
  RememberToken(2, 0, 1, memory);
  const std::vector<int32_t> banned = {3};
  const SampledToken sampled =
      Sample(logits, params, memory,
             {.top_logprobs = 3, .logprob = true, .banned = banned}, 1);
  EXPECT_EQ(sampled.token, 4);
  EXPECT_FLOAT_EQ(sampled.logprob, logprob(4));
  ASSERT_EQ(sampled.top.size(), 3u);
  const std::vector<int32_t> best = {2, 3, 1};
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sampled.top[i].token, best[i]);
    EXPECT_FLOAT_EQ(sampled.top[i].logprob, logprob(best[i]));
  }
  EXPECT_EQ(Sample(logits, params, memory).logprob, 0);  // not asked for
}

TEST(ScoreTokenTest, AgreesWithSoftmax) {
  const std::vector<float> logits = RandomLogits(2000, 21);
  double total = 0;
  for (const float logit : logits) total += std::exp(double{logit});
  std::vector<int32_t> order(2000);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  const SampledToken scored = ScoreToken(logits, 77, 20);
  EXPECT_EQ(scored.token, 77);
  EXPECT_FLOAT_EQ(scored.logprob,
                  static_cast<float>(logits[77] - std::log(total)));
  ASSERT_EQ(scored.top.size(), 20u);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(scored.top[i].token, order[i]);
  // Stable where plain exponentials overflow or vanish.
  EXPECT_FLOAT_EQ(ScoreToken(std::vector<float>{3e38f, 3e38f}, 1, 0).logprob,
                  std::log(0.5f));
  EXPECT_FLOAT_EQ(ScoreToken(std::vector<float>{-1000, -1001}, 1, 0).logprob,
                  -1 - std::log1p(std::exp(-1.0f)));
  EXPECT_EQ(ScoreToken(std::vector<float>{0, kNan}, 1, 5).logprob, -kInf);
  EXPECT_EQ(ScoreToken(std::vector<float>{kNan, -kInf}, 0, 5).logprob, -kInf);
}

}  // namespace
}  // namespace reprise
