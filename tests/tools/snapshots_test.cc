// What reprise-snapshots prints of the embedded model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scrape.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

struct Encoded {
  double bytes = 0, write_ms = 0, read_ms = 0;
};
struct Turned {
  double mean_kl = -1, max_kl = -1, agreement = -1;
  double exact_loss = -1, written_loss = -1;
};

class SnapshotsTest : public ::testing::Test {
 protected:
  void Run(const std::string& elements) {
    std::string text;
    for (int i = 0; i < 40; ++i) {
      text += "In the beginning God created the heaven and the earth. ";
    }
    const std::string file = dir_.Write("text", text);
    const CommandResult result =
        RunCommand(REPRISE_BINARY_DIR
                   "/reprise-snapshots --threads=1 --seconds=0 --places=2 "
                   "--prompt-tokens=64 --turns=2 --turn-tokens=64 "
                   "--model=" REPRISE_SOURCE_DIR "/models/embedded --text=" +
                   file + " --elements=" + elements);
    ASSERT_EQ(result.status, 0) << result.output;
    std::istringstream lines(result.output);
    for (std::string line; std::getline(lines, line);) Read(line);
    output_ = result.output;
  }

  void Read(const std::string& line) {
    char name[32];
    Encoded encoded;
    Turned turned;
    if (std::sscanf(line.c_str(), "| %31s | %lf | %*f%% | %lf ms | %lf ms |",
                    name, &encoded.bytes, &encoded.write_ms,
                    &encoded.read_ms) == 4) {
      encodings_[name] = encoded;
    } else if (std::sscanf(line.c_str(),
                           "| %*d | %lf | %lf | %lf%% | %lf | %lf |",
                           &turned.mean_kl, &turned.max_kl, &turned.agreement,
                           &turned.exact_loss, &turned.written_loss) == 5) {
      turns_.push_back(turned);
    }
  }

  const TempDir dir_;
  std::string output_;
  std::map<std::string, Encoded> encodings_;
  std::vector<Turned> turns_;
};

// Two conversations side by side, and nothing that should tell them apart.
TEST_F(SnapshotsTest, StatesWrittenInFullChangeNothing) {
  ASSERT_NO_FATAL_FAILURE(Run("f32"));
  ASSERT_EQ(turns_.size(), 2u) << output_;
  for (const Turned& turn : turns_) {
    EXPECT_EQ(turn.mean_kl, 0);
    EXPECT_EQ(turn.max_kl, 0);
    EXPECT_EQ(turn.agreement, 100);
    EXPECT_EQ(turn.exact_loss, turn.written_loss);
    EXPECT_GT(turn.exact_loss, 0);
  }
  EXPECT_THAT(
      output_,
      HasSubstr("greedy: 128 of 128 tokens equal up to the first that is "
                "not; all of them at 2 of 2 places\n"));
}

TEST_F(SnapshotsTest, RoundingIsSeenAndSizesAreThoseOfTheEncodings) {
  ASSERT_NO_FATAL_FAILURE(Run("bf16"));
  ASSERT_EQ(turns_.size(), 2u) << output_;
  for (const Turned& turn : turns_) {
    EXPECT_GT(turn.mean_kl, 0);
    EXPECT_GE(turn.max_kl, turn.mean_kl);
    EXPECT_LE(turn.agreement, 100);
  }
  ASSERT_EQ(encodings_.size(), 4u) << output_;
  for (const auto& [name, encoded] : encodings_) {
    EXPECT_GT(encoded.bytes, 0) << name;
  }
  // Slow enough to be seen with two decimals.
  EXPECT_GT(encodings_["f32+zstd"].write_ms, 0);
  EXPECT_GT(encodings_["f32+zstd"].read_ms, 0);
  // Elements are all but a little of it.
  EXPECT_NEAR(encodings_["bf16"].bytes / encodings_["f32"].bytes, 0.5, 0.01);
  EXPECT_LT(encodings_["f32+zstd"].bytes, encodings_["f32"].bytes);
  EXPECT_LT(encodings_["bf16+zstd"].bytes, encodings_["bf16"].bytes);
}

}  // namespace
}  // namespace reprise
