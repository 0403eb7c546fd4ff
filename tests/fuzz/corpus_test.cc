// Every fuzz target on its corpus, whole, cut and with bytes changed: what the
// fuzzers begin with, in every build.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "tests/fuzz/targets.h"

namespace reprise {

// Names in messages and in ctest, in place of addresses.
static void PrintTo(const FuzzTarget& target, std::ostream* out) {
  *out << target.name;
}

namespace {

namespace fs = std::filesystem;

std::vector<std::string> ReadCorpus(const FuzzTarget& target) {
  std::vector<std::string> corpus;
  const fs::path folder = fs::path(REPRISE_SOURCE_DIR) / target.corpus;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.path().string().ends_with(target.suffix)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file),
                        std::istreambuf_iterator<char>());
  }
  std::sort(corpus.begin(), corpus.end());
  return corpus;
}

class CorpusTest : public ::testing::TestWithParam<FuzzTarget> {};

TEST_P(CorpusTest, EndsNothingWholeCutOrChanged) {
  constexpr int kCuts = 20, kChanges = 50;
  const std::vector<std::string> corpus = ReadCorpus(GetParam());
  ASSERT_FALSE(corpus.empty());
  std::mt19937 random(1);
  for (const std::string& bytes : corpus) {
    ASSERT_FALSE(bytes.empty());
    GetParam().run(bytes);
    for (int i = 0; i < kCuts; ++i) {
      GetParam().run(
          std::string_view(bytes).substr(0, random() % bytes.size()));
    }
    for (int i = 0; i < kChanges; ++i) {
      std::string changed = bytes;
      changed[random() % changed.size()] = static_cast<char>(random());
      GetParam().run(changed);
    }
  }
  GetParam().run("");
}

INSTANTIATE_TEST_SUITE_P(Targets, CorpusTest,
                         ::testing::ValuesIn(FuzzTargets().begin(),
                                             FuzzTargets().end()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

}  // namespace
}  // namespace reprise
