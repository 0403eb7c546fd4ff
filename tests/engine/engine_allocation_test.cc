// A step allocates no memory: buffers are sized at load.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/engine.h"
#include "tests/support/allocations.h"
#include "tests/support/step_helpers.h"
#include "tests/support/teams.h"

namespace reprise {
namespace {

class EngineAllocationTest
    : public ::testing::TestWithParam<std::tuple<std::string, WeightType>> {};

TEST_P(EngineAllocationTest, StepsAllocateNoBuffers) {
  const auto& [model, type] = GetParam();
  SetLogLevel(LogLevel::kError);
  SetNumThreads(TeamOf(2));
  const auto engine =
      LoadEngine({.model_dir = REPRISE_TESTDATA "/golden/" + model,
                  .weights = type,
                  .max_rows = 192,
                  .max_context = 1024});
  ASSERT_TRUE(engine.ok()) << engine.status();
  const Tokens tokens = RandomTokens(192, (*engine)->info().vocab_size, 1);
  TestSession session(**engine);
  for (const int64_t rows : {1, 2, 3, 5, 9, 33, 64, 65, 130, 192}) {
    const StepSegment segment =
        TakeSegment(session, std::span(tokens).first(static_cast<size_t>(rows)),
                    LogitsFor::kAllRows);
    ResetAllocations();
    (*engine)->Step({&segment, 1});
    // oneDNN's own bookkeeping of a call takes some hundred bytes; a row of
    // the narrowest buffer times the padding would be more than this.
    EXPECT_LE(CountAllocations().largest, 2048u) << rows << " rows";
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, EngineAllocationTest,
    ::testing::Combine(
        ::testing::Values("delta_net_gate_sum_elu", "fast_transformers_elu",
                          "gla_conv_gqa_clamp", "hybrid_gdn_window",
                          "hybrid_gla_fullattn", "linear_attn_default_hadamard",
                          "linear_attn_elu", "mamba2_hf", "mamba_hf",
                          "performer_favor", "qwen3_next_moe", "retnet_small",
                          "rwkv4_hf", "rwkv6_rand_fla", "rwkv7_rand_fla",
                          "transformer_fla_qknorm_window"),
        ::testing::Values(WeightType::kF32, WeightType::kBf16,
                          WeightType::kInt8)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" +
             std::string(WeightTypeName(std::get<1>(info.param)));
    });

}  // namespace
}  // namespace reprise
