// A state of the prefix cache changes no bit of what a real model says: the
// same requests with and without the cache, token ids and log-probabilities
// compared as they are.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "server/scheduler.h"
#include "tests/support/model_rig.h"

namespace reprise {
namespace {

struct Said {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;  // of the tokens and of their alternatives
  ResumeSource source = ResumeSource::kNone;
  int64_t cached = 0;
};

void ExpectEqual(const Said& a, const Said& b) {
  EXPECT_EQ(a.ids, b.ids);
  EXPECT_EQ(a.logprobs, b.logprobs);
}

class PrefixGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::vector<int32_t> Tokens(size_t count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<int32_t> tokens(count);
    for (int32_t& token : tokens) {
      token = static_cast<int32_t>(random() %
                                   static_cast<uint32_t>(with_.vocab_size()));
    }
    return tokens;
  }
  static std::vector<int32_t> Joined(std::vector<int32_t> a,
                                     const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  static TurnRequest Turn(const std::string& session,
                          std::vector<int32_t> prompt) {
    TurnRequest request;
    request.tenant = "t";
    if (!session.empty()) request.session = SessionKey{"t", session};
    request.acquire.create = true;
    request.prompt = std::move(prompt);
    request.max_new_tokens = 12;
    request.sampling.seed = 11;
    request.sampling.repetition_penalty = 1.2f;
    request.want_text = false;
    request.want_token_ids = true;
    request.logprobs = 3;
    return request;
  }

  static std::vector<Said> Run(ModelRig& rig,
                               const std::vector<TurnRequest>& requests) {
    std::vector<Said> all;
    for (Answer& answer : rig.Run(requests)) {
      EXPECT_EQ(answer.status, absl::OkStatus());
      Said said;
      said.ids = answer.ids[0];
      said.source = answer.started->resumed_from;
      said.cached = answer.started->cached_tokens;
      for (const SampledToken& token : answer.logprobs[0]) {
        said.logprobs.push_back(token.logprob);
        for (const TokenLogprob& other : token.top) {
          said.logprobs.push_back(other.logprob);
        }
      }
      EXPECT_EQ(said.ids.size(), 12u);
      EXPECT_EQ(said.logprobs.size(), 12u * 4);
      all.push_back(std::move(said));
    }
    return all;
  }
  static Said RunOne(ModelRig& rig, const TurnRequest& request) {
    return Run(rig, {request})[0];
  }

  const std::string dir_ = std::string(REPRISE_SOURCE_DIR) + "/" + GetParam();
  ModelRig with_{
      dir_,
      {.max_running = 4, .prefill_rows = 64, .prefix_cache_bytes = 64 << 20}};
  ModelRig without_{dir_, {.max_running = 4, .prefill_rows = 192}};
};

TEST_P(PrefixGoldenTest, AHitAndAPartialHitChangeNoBit) {
  const std::vector<int32_t> common = Tokens(150, 1);
  const TurnRequest first = Turn("", Joined(common, Tokens(60, 2)));
  const TurnRequest second = Turn("", Joined(common, Tokens(70, 3)));
  const TurnRequest third = Turn("", Joined(common, Tokens(80, 4)));
  struct Step {
    TurnRequest request;
    int64_t cached;
  };
  const Step steps[] = {
      {first, 0},     // a miss
      {first, 192},   // the same prompt
      {second, 0},    // parts from it; what they have in common is kept now
      {third, 128},   // a partial hit
      {second, 192},  // whole ones beside it
      {Turn("", Joined(first.prompt, Tokens(64, 5))), 192},  // a longer one
  };
  for (const Step& step : steps) {
    const Said hit = RunOne(with_, step.request);
    EXPECT_EQ(hit.cached, step.cached);
    EXPECT_EQ(hit.source == ResumeSource::kPrefix, step.cached > 0);
    ExpectEqual(hit, RunOne(without_, step.request));
  }
}

TEST_P(PrefixGoldenTest, HitsInABatchAreThoseOfThePromptAlone) {
  std::vector<TurnRequest> requests;
  for (uint32_t i = 0; i < 4; ++i) {
    requests.push_back(Turn("", Tokens(130 + 40 * i, i)));
  }
  Run(with_, requests);
  const std::vector<Said> hits = Run(with_, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(hits[i].source, ResumeSource::kPrefix);
    ExpectEqual(hits[i], RunOne(without_, requests[i]));
  }
}

// What a session becomes that began with a hit: forked, suspended and resumed,
// it goes on as one that computed its prompt and never stopped.
TEST_P(PrefixGoldenTest, ASessionThatBeganWithAHitIsLikeAnyOther) {
  const std::vector<int32_t> prompt = Tokens(200, 1);
  const std::vector<int32_t> next = Tokens(30, 2);
  const std::vector<int32_t> last = Tokens(5, 3);
  RunOne(with_, Turn("", prompt));
  const Said begun = RunOne(with_, Turn("s", prompt));
  EXPECT_EQ(begun.source, ResumeSource::kPrefix);
  EXPECT_EQ(begun.cached, 192);
  ExpectEqual(begun, RunOne(without_, Turn("s", prompt)));

  SessionManager& sessions = with_.sessions();
  ASSERT_TRUE(sessions.Fork({"t", "s"}, {"t", "fork"}, std::nullopt).ok());
  ASSERT_TRUE(sessions.Suspend({"t", "s"}).ok());
  const Said resumed = RunOne(with_, Turn("s", next));
  EXPECT_EQ(resumed.source, ResumeSource::kMemory);
  const Said expected = RunOne(without_, Turn("s", next));
  ExpectEqual(resumed, expected);
  const Said forked = RunOne(with_, Turn("fork", next));
  EXPECT_EQ(forked.source, ResumeSource::kStore);
  ExpectEqual(forked, expected);

  sessions.SuspendAll();  // nothing goes to memory
  const Said stored = RunOne(with_, Turn("s", last));
  EXPECT_EQ(stored.source, ResumeSource::kStore);
  ExpectEqual(stored, RunOne(without_, Turn("s", last)));
}

INSTANTIATE_TEST_SUITE_P(
    All, PrefixGoldenTest,
    // The model that comes with the server; linear and softmax attention in
    // turns, whose state grows; softmax attention with a window.
    testing::Values("models/embedded",
                    "tests/testdata/golden/hybrid_gla_fullattn",
                    "tests/testdata/golden/hybrid_gdn_window"),
    [](const auto& info) {
      const std::string dir = info.param;
      return dir.substr(dir.rfind('/') + 1);
    });

}  // namespace
}  // namespace reprise
