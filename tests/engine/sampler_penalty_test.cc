// The penalties of the sampler and the memory they rest on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/philox.h"
#include "engine/sampler.h"
#include "tests/engine/sampler_reference.h"
#include "tests/engine/sampler_support.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;

// Tokens and positions of a session, and what a plain loop over them says the
// logits become; the sampler shows its own through greedy choices.
class PenaltyTest : public testing::Test {
 protected:
  static constexpr size_t kVocab = 40;

  // Chooses greedily with every other token banned pairwise: the order of all
  // adjusted logits, not only the largest.
  void ExpectOrderOfReference(const SamplingParams& params) {
    const std::vector<float> logits = RandomLogits(kVocab, 9);
    const std::vector<double> adjusted =
        reference::Adjust(logits, params, history_);
    std::vector<int32_t> expected(kVocab);
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(
        expected.begin(), expected.end(),
        [&](int32_t a, int32_t b) { return adjusted[a] > adjusted[b]; });
    SamplingParams greedy = params;
    greedy.temperature = 0;
    std::vector<int32_t> order;
    while (order.size() < kVocab) {
      order.push_back(Sample(logits, greedy, memory_, {.banned = order},
                             std::ssize(history_))
                          .token);
    }
    EXPECT_EQ(order, expected);
  }

  // And their values, through the draws.
  void ExpectDrawsOfReference(SamplingParams params) {
    const std::vector<float> logits = RandomLogits(kVocab, 10);
    const std::vector<double> expected =
        reference::Probabilities(logits, params, history_);
    for (params.seed = 0; params.seed < 300; ++params.seed) {
      const double uniform = PhiloxUniform(params.seed, memory_.draws);
      ASSERT_EQ(Sample(logits, params, memory_, {}, std::ssize(history_)).token,
                reference::TokenAt(expected, uniform));
    }
  }

  void Remember(int count, float decay) {
    for (int i = 0; i < count; ++i) {
      const auto token = static_cast<int32_t>(random_() % 25);
      RememberToken(token, std::ssize(history_), decay, memory_);
      history_.push_back(token);
    }
  }

  std::mt19937 random_{4};
  std::vector<int32_t> history_;
  SamplerMemory memory_;
};

TEST_F(PenaltyTest, CountTheWholeSession) {
  Remember(60, 1);
  SamplingParams params;
  params.presence_penalty = 0.7f;
  ExpectOrderOfReference(params);
  ExpectDrawsOfReference(params);
  params.frequency_penalty = -0.3f;
  ExpectDrawsOfReference(params);
  params.repetition_penalty = 1.7f;
  ExpectOrderOfReference(params);
  ExpectDrawsOfReference(params);
  params.repetition_penalty = 0.6f;
  params.logit_bias = {{3, 2.0f}, {20, -4.0f}, {3, 1.0f}};
  ExpectOrderOfReference(params);
  ExpectDrawsOfReference(params);
}

TEST_F(PenaltyTest, FadeWithDistance) {
  SamplingParams params;
  params.penalty_decay = 0.9f;
  params.frequency_penalty = 1.2f;
  params.repetition_penalty = 1.3f;
  params.presence_penalty = 0.1f;
  for (int i = 0; i < 5; ++i) {
    Remember(7, params.penalty_decay);
    ExpectOrderOfReference(params);
    ExpectDrawsOfReference(params);
  }
}

TEST_F(PenaltyTest, SeeTheLastTokensOnly) {
  SamplingParams params;
  params.penalty_last_n = 12;
  params.frequency_penalty = 0.8f;
  params.presence_penalty = 0.5f;
  params.repetition_penalty = 1.4f;
  GrowWindow(params, memory_);
  for (const float decay : {1.0f, 0.8f}) {
    params.penalty_decay = decay;
    Remember(30, decay);
    ExpectOrderOfReference(params);
    ExpectDrawsOfReference(params);
    SamplingParams fewer = params;
    fewer.penalty_last_n = 3;
    ExpectDrawsOfReference(fewer);
    fewer.penalty_last_n = 0;
    ExpectDrawsOfReference(fewer);
  }
}

TEST_F(PenaltyTest, LeaveImpossibleTokensImpossible) {
  RememberToken(0, 0, 1, memory_);
  SamplingParams params;
  params.presence_penalty = -2;
  params.repetition_penalty = 0.1f;
  params.logit_bias = {{0, 100.0f}};
  EXPECT_EQ(Sample({kNan, -50}, params, memory_, {}, 1).token, 1);
}

// The rwkv package: every token of distance multiplies all occurrences by the
// decay, then the new token's one grows by 1; alpha_presence and
// alpha_frequency times it are subtracted.
TEST_F(PenaltyTest, AreThoseOfTheRwkvPackage) {
  constexpr double kDecay = 0.996;
  std::map<int32_t, double> occurrence;
  const std::vector<int32_t> tokens = {3, 5, 3, 3, 7, 5, 1};
  for (const int32_t token : tokens) {
    for (auto& [id, count] : occurrence) count *= kDecay;
    occurrence[token] += 1;
    RememberToken(token, std::ssize(history_), 0.996f, memory_);
    history_.push_back(token);
  }
  ASSERT_EQ(memory_.occurrences.size(), occurrence.size());
  for (const TokenOccurrence& seen : memory_.occurrences) {
    const auto age = static_cast<double>(6 - seen.position);
    EXPECT_NEAR(seen.weight * std::pow(kDecay, age), occurrence[seen.token],
                1e-6);
  }
  SamplingParams params;
  params.presence_penalty = 0.25f;
  params.frequency_penalty = 0.25f;
  params.penalty_decay = 0.996f;
  ExpectDrawsOfReference(params);
}

TEST(SamplerMemoryTest, KeepsOccurrencesAscending) {
  SamplerMemory memory;
  int64_t position = 0;
  for (const int32_t token : {5, 2, 9, 2, 0, 5, 5}) {
    RememberToken(token, position++, 1, memory);
  }
  std::vector<std::vector<int64_t>> seen;
  for (const TokenOccurrence& entry : memory.occurrences) {
    seen.push_back(
        {entry.token, static_cast<int64_t>(entry.weight), entry.position});
  }
  EXPECT_THAT(seen, ElementsAre(ElementsAre(0, 1, 4), ElementsAre(2, 2, 3),
                                ElementsAre(5, 3, 6), ElementsAre(9, 1, 2)));
  EXPECT_TRUE(memory.window.empty());
  EXPECT_EQ(memory.draws, 0u);
}

TEST(SamplerMemoryTest, GrowsItsWindowAndNeverShrinksIt) {
  SamplerMemory memory;
  SamplingParams params;
  GrowWindow(params, memory);
  EXPECT_EQ(memory.window_limit, 0);
  RememberToken(1, 0, 1, memory);
  params.penalty_last_n = 2;
  GrowWindow(params, memory);
  // An odd number of tokens: the ring is then turned.
  for (int32_t token = 2; token < 7; ++token) {
    RememberToken(token, token, 1, memory);
  }
  EXPECT_THAT(memory.window, ElementsAre(6, 5));
  EXPECT_EQ(memory.window_oldest, 1u);
  params.penalty_last_n = 3;
  GrowWindow(params, memory);
  RememberToken(7, 7, 1, memory);
  EXPECT_THAT(memory.window, ElementsAre(5, 6, 7));
  EXPECT_EQ(memory.window_oldest, 0u);
  params.penalty_last_n = 1;
  GrowWindow(params, memory);
  EXPECT_EQ(memory.window_limit, 3);
}

TEST(SamplerMemoryTest, HoldsTheLargestWindow) {
  SamplerMemory memory;
  SamplingParams params;
  params.penalty_last_n = 65536;
  params.frequency_penalty = 1e-4f;
  GrowWindow(params, memory);
  for (int i = 0; i < 65600; ++i) RememberToken(i % 7, i, 1, memory);
  EXPECT_EQ(memory.window.size(), 65536u);
  EXPECT_EQ(memory.window_oldest, 64u);
  EXPECT_EQ(memory.window[63], 65599 % 7);
  // About 9362 occurrences of each: minus 0.9362.
  params.temperature = 0;
  std::vector<float> logits(8, 0.93f);
  logits[7] = 0;
  EXPECT_EQ(Sample(logits, params, memory, {}, 65600).token, 7);
  logits[7] = -0.01f;
  EXPECT_LT(Sample(logits, params, memory, {}, 65600).token, 7);
}

}  // namespace
}  // namespace reprise
