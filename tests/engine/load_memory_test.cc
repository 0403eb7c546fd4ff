// What memory loading takes at its highest. In a program of its own, whose
// peak is that of its loads.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/engine.h"
#include "tests/support/json.h"
#include "tests/support/later_clock.h"
#include "tests/support/teams.h"
#include "tests/support/temp_dir.h"
#include "tools/bench/random_checkpoint.h"

namespace reprise {
namespace {

constexpr int64_t kMib = int64_t{1} << 20;
// oneDNN's code, its primitives and the buffers of steps (64 rows), blocks of
// rows on their way, and what the allocator keeps.
constexpr int64_t kSlack = 32 * kMib;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// In bytes: "VmRSS", "VmHWM".
int64_t StatusField(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == name + ":" && status >> kib) return kib * 1024;
  }
  return 0;
}

// Whether the peak is now what the process has.
bool ResetPeak() {
  std::ofstream("/proc/self/clear_refs") << "5";
  return StatusField("VmHWM") <= StatusField("VmRSS") + kMib;
}

class LoadMemoryTest : public ::testing::TestWithParam<WeightType> {
 protected:
  LoadMemoryTest() {
    SetLogLevel(LogLevel::kError);
    SetNumThreads(TeamOf(2));
  }
};

// The model of the benchmarks: 324 MB of bf16, the embedding and the head 77
// each.
TEST_P(LoadMemoryTest, IsThatOfTheWeightsAndOneMatrix) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  const TempDir dir;
  ASSERT_TRUE(bench::WriteRandomCheckpoint("linear-gpt2", {}, dir.path()).ok());
  const LaterClock clock;
  EngineOptions options{.model_dir = dir.path(), .weights = GetParam()};
  options.max_rows = 64;
  options.clock = &clock;
  options.packed_cache.enabled = true;
  for (const PackedCacheUse use :
       {PackedCacheUse::kWritten, PackedCacheUse::kRead}) {
    malloc_trim(0);  // what was freed before is not there to be used again
    if (!ResetPeak()) GTEST_SKIP() << "the system does not reset the peak";
    const int64_t before = StatusField("VmRSS");
    const auto engine = LoadEngine(options);
    const int64_t peak = StatusField("VmHWM") - before;
    ASSERT_TRUE(engine.ok()) << engine.status();
    const ModelInfo& info = (*engine)->info();
    EXPECT_EQ(info.packed_cache, use);
    const int64_t bytes_each = GetParam() == WeightType::kF32    ? 4
                               : GetParam() == WeightType::kBf16 ? 2
                                                                 : 1;
    const int64_t largest = info.vocab_size * info.d_model * bytes_each;
    EXPECT_LE(peak, info.weight_bytes + largest + kSlack);
    // That it is measured at all.
    EXPECT_GE(peak, info.weight_bytes - kSlack);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, LoadMemoryTest,
                         ::testing::Values(WeightType::kF32, WeightType::kBf16,
                                           WeightType::kInt8),
                         [](const auto& info) {
                           return std::string(WeightTypeName(info.param));
                         });

// Every number of a config, far above what the tensors have.
TEST(LoadMemoryOfConfigsTest, WhatNoTensorHasIsRefusedBeforeItTakesMemory) {
  if (kSanitized) GTEST_SKIP() << "sanitizers keep memory of their own";
  SetLogLevel(LogLevel::kError);
  for (const std::string name :
       {"linear_attn_elu", "retnet_small", "gla_small", "delta_net_small",
        "gated_deltanet_small", "mamba_hf", "mamba2_hf", "llama_hf",
        "qwen3_next_moe", "qwen3_5_moe", "rwkv7_rand_fla", "rwkv6_rand_fla",
        "rwkv4_hf"}) {
    const std::string source =
        std::string(REPRISE_TESTDATA) + "/golden/" + name;
    const Json config = ReadJson(source + "/config.json");
    const TempDir dir;
    std::ifstream tensors(source + "/model.safetensors", std::ios::binary);
    dir.Write("model.safetensors",
              std::string(std::istreambuf_iterator<char>(tensors), {}));
    for (const auto& [field, value] : config.items()) {
      if (!value.is_number_integer()) continue;
      for (int shift = 8; shift <= 24; shift += 4) {
        Json huge = config;
        huge[field] = int64_t{1} << shift;
        dir.Write("config.json", JsonText(huge));
        if (!ResetPeak()) GTEST_SKIP() << "the system does not reset the peak";
        const int64_t before = StatusField("VmRSS");
        const auto engine =
            LoadEngine({.model_dir = dir.path(), .max_rows = 64});
        const int64_t peak = StatusField("VmHWM") - before;
        if (engine.ok()) continue;  // a field that no size depends on
        EXPECT_LE(peak, kSlack) << name << " " << field << " = 2^" << shift
                                << ": " << engine.status();
      }
    }
  }
}

}  // namespace
}  // namespace reprise
