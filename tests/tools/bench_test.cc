// The benchmark itself, on the smallest shape and for moments: that it has
// every figure, not what they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/scrape.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;

constexpr char kBench[] = REPRISE_BINARY_DIR "/reprise-bench --threads=1 ";
constexpr char kTiny[] = "--shape=linear-tiny --seconds=0.002 --json ";

Json RunBench(const std::string& arguments) {
  // What it is doing goes to stderr.
  const CommandResult result =
      RunCommand("{ " + (kBench + arguments) + " 2>/dev/null; }");
  EXPECT_EQ(result.status, 0) << result.output;
  return JsonOf(result.output);
}

// The names of a run's figures, each of which must be a real one.
std::set<std::string> CheckedFigures(const Json& run) {
  std::set<std::string> names;
  for (const Json& figure : run.at("figures")) {
    const auto name = figure.at("name").get<std::string>();
    names.insert(name);
    for (const char* field : {"value", "limit", "percent_of_limit"}) {
      const auto value = figure.at(field).get<double>();
      EXPECT_TRUE(std::isfinite(value) && value > 0)
          << name << " " << field << " " << value;
    }
    EXPECT_FALSE(figure.at("limited_by").get<std::string>().empty()) << name;
  }
  for (const char* field : {"memory_read_bytes_per_s", "matmul_flops_per_s",
                            "model_read_bytes_per_s", "parameters"}) {
    EXPECT_GT(run.at(field).get<double>(), 0) << field;
  }
  return names;
}

TEST(BenchTest, HasEveryFigureBesideItsLimit) {
  const Json result = RunBench(std::string(kTiny) +
                               "--weights=f32,int8 --positions=1000,1000000");
  ASSERT_EQ(result.at("runs").size(), 2u);
  EXPECT_EQ(result["runs"][0]["weight_type"], "f32");
  EXPECT_EQ(result["runs"][1]["weight_type"], "int8");
  for (const Json& run : result["runs"]) {
    EXPECT_THAT(
        CheckedFigures(run),
        IsSupersetOf({"decode, 1 sessions", "decode, 4 sessions",
                      "decode, 16 sessions", "decode, 64 sessions",
                      "prefill, 512 tokens", "prefill, 2048 tokens",
                      "time per token at position 1000",
                      "time per token at position 1000000",
                      "the same at position 1000000, relative",
                      "resident memory at position 1000000",
                      "suspend to memory", "resume from memory", "snapshot"}));
  }
}

// Every figure that steps have stands beside the memory's speed.
TEST(BenchTest, MeasuresTheLimitBesideTheFigure) {
  const Json result = RunBench(std::string(kTiny) + "--positions=1000");
  int figures = 0;
  for (const Json& figure : result.at("runs").at(0).at("figures")) {
    if (figure.at("unit") != "tokens/s") continue;
    EXPECT_GT(figure.at("read_bytes_per_s").get<double>(), 1e8) << figure;
    ++figures;
  }
  EXPECT_EQ(figures, 6);
}

TEST(BenchTest, SweepsOneThingAtATime) {
  for (const auto& [sweep, runs, figures] :
       std::vector<std::tuple<std::string, size_t, size_t>>{
           {"sessions", 1, 11}, {"position", 1, 16}, {"size", 3, 3}}) {
    const Json result = RunBench(kTiny + std::string("--sweep=") + sweep);
    ASSERT_EQ(result.at("runs").size(), runs) << sweep;
    for (const Json& run : result["runs"]) {
      EXPECT_EQ(CheckedFigures(run).size(), figures) << sweep;
    }
  }
  const Json threads = RunBench(kTiny + std::string("--sweep=threads"));
  ASSERT_EQ(threads.at("runs").size(), 1u);  // --threads=1
}

// A hybrid's keys and values are there at every position.
TEST(BenchTest, MeasuresModelsWhoseStateGrows) {
  const Json result = RunBench(
      "--shape=hybrid-0.8b --layers=4 --width=512 --vocab=600 --json "
      "--seconds=0.002 --sessions=1,4 --prefill=64 --positions=10,20000");
  ASSERT_EQ(result.at("runs").size(), 1u);
  const Json& run = result["runs"][0];
  EXPECT_EQ(CheckedFigures(run).size(), 10u);
  // One layer, a key and a value of 256 numbers in f32.
  EXPECT_EQ(run.at("state_bytes_per_token"), 2 * 256 * 4);
}

// Keys and values of 10 million tokens are 80 GB.
TEST(BenchTest, LeavesOutPositionsThatMemoryHasNoRoomFor) {
  if (sysconf(_SC_PHYS_PAGES) >= 80'000'000'000 / sysconf(_SC_PAGESIZE)) {
    GTEST_SKIP() << "this machine may have room for them";
  }
  const CommandResult result = RunCommand(
      kBench + std::string("--shape=hybrid-0.8b --layers=16 --width=512 "
                           "--vocab=600 --weights=int8 --seconds=0.002 "
                           "--sessions=1 --prefill=1 --positions=10,10000000"));
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("position 10000000: left out, "));
  EXPECT_THAT(result.output, HasSubstr("time per token at position 10 "));
  EXPECT_THAT(result.output, Not(HasSubstr("time per token at position 1000")));
}

TEST(BenchTest, WritesTheModelThatItMeasures) {
  const TempDir dir;
  const std::string folder = dir.Path("new/rwkv7");
  const std::string small = "--shape=rwkv7-0.1b --layers=2 --vocab=600 ";
  const CommandResult written =
      RunCommand(kBench + small + "--write=" + folder);
  EXPECT_EQ(written.status, 0) << written.output;
  EXPECT_EQ(written.output, "");
  const std::string measure =
      "--json --seconds=0 --sessions=1 --prefill=1 --positions=1";
  const Json shape = RunBench(small + measure).at("runs").at(0);
  const Json model =
      RunBench("--model=" + folder + " " + measure).at("runs").at(0);
  EXPECT_EQ(model.at("greedy_tokens").size(), 16u);
  EXPECT_EQ(model.at("greedy_tokens"), shape.at("greedy_tokens"));
  const CommandResult inspected =
      RunCommand(REPRISE_BINARY_DIR "/reprise inspect " + folder);
  EXPECT_EQ(inspected.status, 0) << inspected.output;
  EXPECT_THAT(inspected.output, HasSubstr("rwkv7"));
}

TEST(BenchTest, SaysWhatItCannotDo) {
  const auto output = [](const std::string& arguments) {
    return RunCommand(kBench + arguments).output;
  };
  EXPECT_EQ(output("--shape=nothing"),
            "reprise-bench: --shape=nothing is not one of rwkv7-0.1b, "
            "mamba-130m, mamba2-130m, linear-gpt2, gdn-0.4b, hybrid-0.8b, "
            "linear-tiny\n");
  EXPECT_THAT(output("--shape=linear-tiny --write=/proc/none"),
              HasSubstr("cannot make the folder /proc/none: "));
  EXPECT_THAT(output("--model=x --sweep=size"),
              HasSubstr("--sweep=size needs --shape=NAME"));
}

}  // namespace
}  // namespace reprise
