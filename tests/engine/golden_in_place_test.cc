// Golden cases that are too large for the repository, or whose weights are
// other people's: read in place, from $REPRISE_GOLDEN or a folder of golden
// data beside the repository.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/golden_folder.h"
#include "tools/golden/golden_case.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

class GoldenInPlaceTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenInPlaceTest, LogitsStatesAndGreedyTokensAgree) {
  const fs::path dir = GoldenFolder() / GetParam();
  if (!fs::exists(dir)) GTEST_SKIP() << dir << " is absent";
  const GoldenResult result = RunGoldenCase(dir, WeightType::kF32);
  EXPECT_TRUE(result.ok()) << result.failure << "; logits differ by "
                           << result.logits_error << ", states by "
                           << result.state_error;
  EXPECT_GE(result.greedy_total, 32);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenInPlaceTest,
                         testing::Values("qwen3_5_multimodal_names",
                                         "retnet_gqa_silu",
                                         "rwkv5_2_tiny_real_blinkdl",
                                         "rwkv7_tiny_real_blinkdl",
                                         "rwkv7_tiny_real_fla"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise
