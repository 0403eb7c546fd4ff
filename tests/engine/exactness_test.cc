// Results depend on nothing but the session: bit for bit, for
// every type of weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/engine.h"
#include "engine/kernels/state_kernels.h"
#include "engine/state/snapshot.h"
#include "tests/support/step_helpers.h"
#include "tests/support/teams.h"

namespace reprise {
namespace {

// More than any test here feeds to a session.
constexpr int64_t kMaxContext = 2048;

struct Case {
  std::string dir;  // from the source folder
  WeightType type;
};

class ExactnessTest : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    SetLogLevel(LogLevel::kError);
    engine_ = Load();
  }
  static std::unique_ptr<Engine> Load() {
    auto engine = LoadEngine(
        {.model_dir = std::string(REPRISE_SOURCE_DIR) + "/" + GetParam().dir,
         .weights = GetParam().type,
         .max_rows = 1024,
         .max_context = kMaxContext});
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  Tokens Random(int64_t count, uint32_t seed) const {
    return RandomTokens(count, engine_->info().vocab_size, seed);
  }

  std::unique_ptr<Engine> engine_;
};

// One of the sessions that share steps with the one under test.
struct Mate {
  TestSession session;
  Tokens tokens;
};

TEST_P(ExactnessTest, ASessionAmong32MixedOnesEqualsTheSessionAlone) {
  const Tokens prompt = Random(100, 1);
  TestSession alone(*engine_);
  TestSession among(*engine_);
  std::vector<Mate> mates;
  for (int i = 0; i < 31; ++i) mates.push_back({TestSession(*engine_), {}});

  Tokens next = prompt;
  for (uint32_t step = 0; step < 12; ++step) {
    const Floats expected = StepAlone(*engine_, alone, next);
    std::vector<StepSegment> segments;
    for (uint32_t i = 0; i < mates.size(); ++i) {
      // Each step another few prefill, by one tile, two, or a part of one.
      const uint32_t kind = (i + 3 * step) % 16;
      const int64_t rows = kind == 0   ? 64
                           : kind == 5 ? 128
                           : kind == 9 ? 37
                                       : 1;
      mates[i].tokens = Random(rows, 100 * step + i + 2);
      const auto logits = static_cast<LogitsFor>((i + step) % 3);
      segments.push_back(
          TakeSegment(mates[i].session, mates[i].tokens, logits));
    }
    const size_t place = (7 * step) % (mates.size() + 1);
    segments.insert(segments.begin() + static_cast<std::ptrdiff_t>(place),
                    TakeSegment(among, next, LogitsFor::kLastRow));
    int64_t row = 0;  // of the logits
    for (size_t i = 0; i < place; ++i) {
      const LogitsFor logits = segments[i].logits;
      row += logits == LogitsFor::kAllRows   ? std::ssize(segments[i].tokens)
             : logits == LogitsFor::kLastRow ? 1
                                             : 0;
    }
    const MatrixView<float> logits = engine_->Step(segments);
    EXPECT_TRUE(SameBits(logits.RowSpan(row), expected)) << "step " << step;
    EXPECT_TRUE(SameBits(among.slot, alone.slot)) << "step " << step;
    next = {static_cast<int32_t>(
        std::max_element(expected.begin(), expected.end()) - expected.begin())};
  }
}

TEST_P(ExactnessTest, APromptIsTheSameUnderAnyBudgetOfTiles) {
  const Tokens prompt = Random(5 * kTileRows + 17, 3);
  TestSession whole(*engine_);
  const Floats expected =
      StepAlone(*engine_, whole, prompt, LogitsFor::kAllRows);
  for (const int64_t budget : {kTileRows, 2 * kTileRows, 4 * kTileRows}) {
    TestSession session(*engine_);
    Floats logits;
    const std::span<const int32_t> tokens(prompt);
    for (int64_t first = 0; first < std::ssize(prompt); first += budget) {
      const int64_t count = std::min(budget, std::ssize(prompt) - first);
      const Floats part = StepAlone(*engine_, session,
                                    tokens.subspan(static_cast<size_t>(first),
                                                   static_cast<size_t>(count)),
                                    LogitsFor::kAllRows);
      logits.insert(logits.end(), part.begin(), part.end());
    }
    EXPECT_TRUE(SameBits(logits, expected)) << "budget " << budget;
    EXPECT_TRUE(SameBits(session.slot, whole.slot)) << "budget " << budget;
  }
}

TEST_P(ExactnessTest, LogitsOfARowDoNotDependOnWhichRowsAskForThem) {
  const Tokens prompt = Random(130, 4);
  TestSession all(*engine_);
  TestSession last(*engine_);
  TestSession none(*engine_);
  const Floats every = StepAlone(*engine_, all, prompt, LogitsFor::kAllRows);
  const Floats one = StepAlone(*engine_, last, prompt, LogitsFor::kLastRow);
  EXPECT_TRUE(StepAlone(*engine_, none, prompt, LogitsFor::kNone).empty());
  ASSERT_EQ(std::ssize(every), 130 * engine_->info().vocab_size);
  EXPECT_TRUE(SameBits(std::span(every).last(one.size()), one));
  EXPECT_TRUE(SameBits(all.slot, last.slot));
  EXPECT_TRUE(SameBits(none.slot, last.slot));
}

TEST_P(ExactnessTest, AStateCopiedElsewhereContinuesTheSame) {
  const Tokens prompt = Random(70, 5);
  const Tokens next = Random(1, 6);
  TestSession session(*engine_);
  StepAlone(*engine_, session, prompt);
  TestSession fork = session;
  TestSession moved(*Load());
  moved.slot = session.slot;
  moved.position = session.position;
  const Floats expected = StepAlone(*engine_, session, next);
  EXPECT_TRUE(SameBits(StepAlone(*engine_, fork, next), expected));
  // In an engine loaded anew, as after a restart.
  const std::unique_ptr<Engine> other = Load();
  EXPECT_TRUE(SameBits(StepAlone(*other, moved, next), expected));
}

TEST_P(ExactnessTest, ASessionThatWasSuspendedContinuesTheSame) {
  // In the middle of a tile, past it, and after single tokens.
  const Tokens prompt = Random(90, 9);
  const Tokens next = Random(1, 10);
  const ModelInfo& info = engine_->info();
  TestSession session(*engine_);
  StepAlone(*engine_, session, prompt);
  for (int round = 0; round < 3; ++round) {
    SessionRecord record;
    record.position = session.position;
    record.pending_token = next[0];
    const std::string bytes =
        EncodeSnapshot(info.fingerprints, record, engine_->layout(),
                       std::as_bytes(std::span(session.slot)));
    TestSession resumed(*engine_);
    const auto decoded = DecodeSnapshot(
        bytes, info.fingerprints, engine_->layout(), info.vocab_size,
        std::as_writable_bytes(std::span(resumed.slot)));
    ASSERT_TRUE(decoded.ok()) << decoded.status();
    resumed.position = decoded->position;
    const Floats expected = StepAlone(*engine_, session, next);
    EXPECT_TRUE(SameBits(StepAlone(*engine_, resumed, next), expected));
    EXPECT_TRUE(SameBits(resumed.slot, session.slot));
    // Goes on from the copy, so that what was lost would add up.
    session = resumed;
  }
}

TEST_P(ExactnessTest, TheNumberOfThreadsChangesNoBit) {
  const Tokens prompt = Random(200, 7);
  const Tokens next = Random(1, 8);
  std::vector<Floats> results;
  for (const int threads : {1, 2, 3}) {
    SetNumThreads(TeamOf(threads));
    const std::unique_ptr<Engine> engine = Load();
    TestSession session(*engine);
    Floats all = StepAlone(*engine, session, prompt, LogitsFor::kAllRows);
    const Floats last = StepAlone(*engine, session, next);
    all.insert(all.end(), last.begin(), last.end());
    all.insert(all.end(), session.slot.begin(), session.slot.end());
    results.push_back(std::move(all));
  }
  SetNumThreads(1);
  EXPECT_TRUE(SameBits(results[1], results[0]));
  EXPECT_TRUE(SameBits(results[2], results[0]));
}

std::vector<Case> ExactnessCases() {
  std::vector<Case> cases;
  const auto add = [&cases](const std::string& dir) {
    for (const WeightType type : kWeightTypes) {
      if (type != WeightType::kAuto) cases.push_back({dir, type});
    }
  };
  // Every kind of mixer, and every kind of state.
  for (const char* name : {"delta_net_gate_sum_elu",
                           "fast_transformers_elu",
                           "gated_deltanet_gva_neg",
                           "gla_conv_gqa_clamp",
                           "hybrid_gdn_window",
                           "hybrid_gla_fullattn",
                           "linear_attn_elu_gqa_tied",
                           "linear_attn_hedgehog",
                           "linear_attn_relu_nonorm",
                           "llama_hf",
                           "mamba2_statespaces_groups",
                           "mamba_hf",
                           "performer_favor",
                           "qwen3_5_moe",
                           "qwen3_next_moe",
                           "retnet_small",
                           "rwkv4_hf",
                           "rwkv6_rand_fla",
                           "rwkv7_rand_fla",
                           "transformer_fla",
                           "transformer_fla_qknorm_window"}) {
    add(std::string("tests/testdata/golden/") + name);
  }
  add("models/embedded");
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  const std::string& dir = info.param.dir;
  return dir.substr(dir.rfind('/') + 1) + "_" +
         std::string(WeightTypeName(info.param.type));
}

INSTANTIATE_TEST_SUITE_P(All, ExactnessTest,
                         ::testing::ValuesIn(ExactnessCases()), CaseName);

}  // namespace
}  // namespace reprise
