// The file of packed weights, from the first start of a model to the next ones:
// the same bits, and nothing but those, whatever became of the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/engine.h"
#include "tests/support/later_clock.h"
#include "tests/support/step_helpers.h"
#include "tests/support/teams.h"
#include "tests/support/temp_dir.h"

namespace reprise::packed_cache_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

const fs::path kGolden = std::string(REPRISE_TESTDATA) + "/golden";

class PackedCacheTest : public ::testing::Test {
 protected:
  PackedCacheTest() {
    SetLogLevel(LogLevel::kInfo);
    SetNumThreads(TeamOf(2));
    options_.max_rows = 64;
    options_.max_context = 256;
    options_.packed_cache = {.enabled = true, .dir = "", .min_model_bytes = 0};
    options_.clock = &clock_;
    UseModel("linear_attn_elu");
  }
  ~PackedCacheTest() override { SetLogLevel(LogLevel::kError); }

  void UseModel(const std::string& name) {
    const fs::path model = dir_.Path("model");
    fs::remove_all(model);
    fs::create_directory(model);
    for (const auto& file : fs::directory_iterator(kGolden / name)) {
      if (file.path().filename() == "golden.safetensors") continue;
      fs::copy_file(file.path(), model / file.path().filename());
    }
    options_.model_dir = model;
  }
  std::unique_ptr<Engine> Load() {
    testing::internal::CaptureStderr();
    auto engine = LoadEngine(options_);
    log_ = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }
  PackedCacheUse LoadForUse() { return Load()->info().packed_cache; }

  // The only file of packed weights in the model's folder.
  fs::path CacheFile() const {
    fs::path found;
    for (const auto& file : fs::directory_iterator(options_.model_dir)) {
      if (!file.path().filename().string().starts_with(".reprise-packed-")) {
        continue;
      }
      EXPECT_EQ(found, "") << "a second file";
      found = file.path();
    }
    return found;
  }
  static std::string BytesOfFile(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static void WriteFile(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }

  const TempDir dir_;
  const LaterClock clock_;
  EngineOptions options_;
  std::string log_;
};

// All logits of a prompt and some steps after it.
Floats Logits(Engine& engine) {
  TestSession session(engine);
  Floats all;
  for (const int64_t rows : {40, 1, 1, 2}) {
    const Tokens tokens = RandomTokens(rows, engine.info().vocab_size, 5);
    const Floats logits =
        StepAlone(engine, session, tokens, LogitsFor::kAllRows);
    all.insert(all.end(), logits.begin(), logits.end());
  }
  return all;
}

TEST_F(PackedCacheTest, TheSecondStartReadsWhatTheFirstOnePacked) {
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  EXPECT_THAT(log_, HasSubstr("packed weights written"));
  const std::string bytes = BytesOfFile(CacheFile());
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kRead);
  EXPECT_THAT(log_, Not(HasSubstr("packed weights")));
  EXPECT_EQ(BytesOfFile(CacheFile()), bytes);
  EXPECT_FALSE(fs::exists(CacheFile().string() + ".new"));
}

class PackedCacheFamilyTest : public PackedCacheTest,
                              public ::testing::WithParamInterface<
                                  std::tuple<std::string, WeightType>> {};

TEST_P(PackedCacheFamilyTest, ComputesTheSameBitsWithTheFileAndWithout) {
  const auto& [name, type] = GetParam();
  UseModel(name);
  options_.weights = type;
  options_.packed_cache.enabled = false;
  const auto plain = Load();
  EXPECT_EQ(plain->info().packed_cache, PackedCacheUse::kOff);
  options_.packed_cache.enabled = true;
  const auto first = Load();
  const auto second = Load();
  EXPECT_EQ(first->info().packed_cache, PackedCacheUse::kWritten);
  EXPECT_EQ(second->info().packed_cache, PackedCacheUse::kRead);
  const Floats logits = Logits(*plain);
  EXPECT_TRUE(SameBits(logits, Logits(*first)));
  EXPECT_TRUE(SameBits(logits, Logits(*second)));
  for (const Engine* engine : {first.get(), second.get()}) {
    EXPECT_EQ(engine->info().fingerprints.model,
              plain->info().fingerprints.model);
    EXPECT_EQ(engine->info().weight_bytes, plain->info().weight_bytes);
    EXPECT_EQ(engine->info().num_parameters, plain->info().num_parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PackedCacheFamilyTest,
    ::testing::Combine(
        ::testing::Values("linear_attn_elu", "linear_attn_elu_gqa_tied",
                          "fast_transformers_elu", "gla_nogate_sharded",
                          "gated_deltanet_gva_neg", "hybrid_gdn_window",
                          "mamba_hf", "mamba2_statespaces_groups",
                          "qwen3_5_moe", "qwen3_next_moe", "retnet_small",
                          "rwkv4_hf", "rwkv6_rand_fla", "rwkv7_rand_fla",
                          "llama_hf", "performer_favor"),
        ::testing::Values(WeightType::kF32, WeightType::kBf16,
                          WeightType::kInt8)),
    [](const auto& info) {
      return std::get<0>(info.param) + "_" +
             std::string(WeightTypeName(std::get<1>(info.param)));
    });

TEST_F(PackedCacheTest, EveryTypeHasAFileOfItsOwn) {
  options_.weights = WeightType::kF32;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  options_.weights = WeightType::kInt8;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kRead);
  options_.weights = WeightType::kF32;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kRead);
}

TEST_F(PackedCacheTest, ATurnedBitAnywhereIsNoticedAndTheFileMadeAnew) {
  const auto plain = Load();
  const fs::path file = CacheFile();
  const std::string whole = BytesOfFile(file);
  const Floats logits = Logits(*plain);
  constexpr int kPlaces = 24;
  for (int i = 0; i < kPlaces; ++i) {
    // The ends, and places between them.
    const size_t at = (whole.size() - 1) * i / (kPlaces - 1);
    std::string damaged = whole;
    damaged[at] ^= static_cast<char>(1 << i % 8);
    WriteFile(file, damaged);
    const auto engine = Load();
    EXPECT_TRUE(SameBits(Logits(*engine), logits)) << at;
    // Between two blocks nothing is read.
    if (engine->info().packed_cache == PackedCacheUse::kRead) {
      EXPECT_EQ(whole[at], '\0') << at;
      continue;
    }
    EXPECT_EQ(engine->info().packed_cache, PackedCacheUse::kWritten) << at;
    EXPECT_THAT(log_, HasSubstr("packed weights ignored")) << at;
    EXPECT_EQ(BytesOfFile(file), whole);
  }
}

TEST_F(PackedCacheTest, ACutFileIsNoticed) {
  const Floats logits = Logits(*Load());
  const fs::path file = CacheFile();
  const std::string whole = BytesOfFile(file);
  for (const size_t size : {size_t{0}, size_t{63}, size_t{64}, size_t{1000},
                            whole.size() / 2, whole.size() - 1}) {
    WriteFile(file, whole.substr(0, size));
    const auto engine = Load();
    EXPECT_EQ(engine->info().packed_cache, PackedCacheUse::kWritten);
    EXPECT_TRUE(SameBits(Logits(*engine), logits)) << size;
  }
}

TEST_F(PackedCacheTest, AFileOfOtherWeightsIsNotUsed) {
  LoadForUse();
  const fs::path tensors = fs::path(options_.model_dir) / "model.safetensors";
  // The same length and time, but not the same file.
  const fs::file_time_type time = fs::last_write_time(tensors);
  std::string bytes = BytesOfFile(tensors);
  bytes[bytes.size() - 3] ^= 0x40;
  fs::remove(tensors);
  WriteFile(tensors, bytes);
  fs::last_write_time(tensors, time);
  options_.packed_cache.enabled = false;
  const auto plain = Load();
  options_.packed_cache.enabled = true;
  const auto engine = Load();
  EXPECT_EQ(engine->info().packed_cache, PackedCacheUse::kWritten);
  EXPECT_THAT(log_, HasSubstr("model.safetensors was"));
  EXPECT_EQ(engine->info().fingerprints.model,
            plain->info().fingerprints.model);
  EXPECT_TRUE(SameBits(Logits(*engine), Logits(*plain)));
}

TEST_F(PackedCacheTest, WeightsThatWereChangedInPlaceAreNoticed) {
  LoadForUse();
  const fs::path tensors = fs::path(options_.model_dir) / "model.safetensors";
  const fs::file_time_type time = fs::last_write_time(tensors);
  {
    std::fstream file(tensors, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('\x3f');
  }
  fs::last_write_time(tensors, time);
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  EXPECT_THAT(log_, HasSubstr("model.safetensors was"));
}

TEST_F(PackedCacheTest, AConfigThatAsksForOtherMatricesIsNoticed) {
  LoadForUse();
  const fs::path config = fs::path(options_.model_dir) / "config.json";
  std::string text = BytesOfFile(config);
  // One layer fewer: every matrix that is left is in the file.
  const size_t at = text.find("\"num_hidden_layers\": 2");
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 22, "\"num_hidden_layers\": 1");
  WriteFile(config, text);
  options_.packed_cache.enabled = false;
  const auto plain = Load();
  options_.packed_cache.enabled = true;
  const auto engine = Load();
  EXPECT_EQ(engine->info().packed_cache, PackedCacheUse::kRead);
  EXPECT_EQ(engine->info().fingerprints.model,
            plain->info().fingerprints.model);
  EXPECT_TRUE(SameBits(Logits(*engine), Logits(*plain)));
}

TEST_F(PackedCacheTest, WeightsThatHaveJustChangedAreNotTrusted) {
  options_.clock = &Clock::Real();
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kNone);
  EXPECT_THAT(log_, HasSubstr("have just changed"));
  EXPECT_EQ(CacheFile(), "");
}

TEST_F(PackedCacheTest, SmallModelsHaveNone) {
  options_.packed_cache.min_model_bytes = 1 << 20;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kSmall);
  EXPECT_EQ(CacheFile(), "");
  EXPECT_EQ(PackedCacheOptions().min_model_bytes, 64 << 20);
  EXPECT_FALSE(PackedCacheOptions().enabled);
}

TEST_F(PackedCacheTest, AFolderThatCannotBeWrittenCostsOneLineOfTheLog) {
  options_.packed_cache.dir = dir_.Path("missing");
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kNone);
  const std::string line = "packed weights not written";
  const size_t first = log_.find(line);
  ASSERT_NE(first, std::string::npos) << log_;
  EXPECT_EQ(log_.find(line, first + 1), std::string::npos) << log_;
  EXPECT_THAT(log_, HasSubstr("--packed-cache"));
}

TEST_F(PackedCacheTest, AFolderOfItsOwnHoldsTheFilesOfManyModels) {
  const fs::path folder = dir_.Path("cache");
  fs::create_directory(folder);
  options_.packed_cache.dir = folder;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  EXPECT_EQ(CacheFile(), "");
  const std::string first = options_.model_dir;
  const std::string second = dir_.Path("other/model");
  fs::create_directory(dir_.Path("other"));
  fs::copy(first, second);
  options_.model_dir = second;
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  options_.model_dir = first + "/";
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kRead);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), 2);
}

TEST_F(PackedCacheTest, AFileOfAnybodysIsNotUsed) {
  LoadForUse();
  const fs::path file = CacheFile();
  ASSERT_EQ(chmod(file.c_str(), 0666), 0);
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kWritten);
  EXPECT_THAT(log_, HasSubstr("everybody may write it"));
  EXPECT_EQ(LoadForUse(), PackedCacheUse::kRead);
}

TEST_F(PackedCacheTest, ARefusedCheckpointLeavesNoFile) {
  const fs::path tensors = fs::path(options_.model_dir) / "model.safetensors";
  std::string bytes = BytesOfFile(tensors);
  bytes.replace(bytes.size() - 4, 4, "\xff\xff\xff\x7f");  // NaN
  WriteFile(tensors, bytes);
  EXPECT_EQ(LoadEngine(options_).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(CacheFile(), "");
}

}  // namespace
}  // namespace reprise::packed_cache_test
