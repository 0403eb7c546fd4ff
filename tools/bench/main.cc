// reprise-bench: what the engine reaches on this machine, each figure beside
// the limit measured in the same run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status_macros.h"
#include "tools/bench/engine_bench.h"
#include "tools/bench/limits.h"
#include "tools/bench/loaded_model.h"
#include "tools/bench/random_checkpoint.h"
#include "tools/bench/report.h"
#include "tools/bench/shapes.h"
#include "tools/parse_tool.h"

namespace reprise::bench {
namespace {

struct Flags {
  std::string model;
  std::string shape;
  ShapeChange change;
  std::string write;
  std::vector<std::string> weights = {"auto"};
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  std::string sweep;
  bool json = false;
  BenchOptions bench;
};

WeightType WeightTypeOf(const std::string& name) {
  for (const WeightType type : kWeightTypes) {
    if (name == WeightTypeName(type)) return type;
  }
  return WeightType::kAuto;
}

// One model, all types of weights, some numbers of threads.
absl::Status RunFolder(const Flags& flags, const std::string& dir,
                       const std::vector<int>& threads, Report& report) {
  for (const std::string& weights : flags.weights) {
    for (const int count : threads) {
      SetNumThreads(count);
      ASSIGN_OR_RETURN(const LoadedModel model,
                       LoadForBench(dir, WeightTypeOf(weights), flags.bench));
      Engine& engine = *model.engine;
      std::fprintf(stderr, "Measuring the machine's limits ...\n");
      ASSIGN_OR_RETURN(const MachineLimits limits,
                       MachineLimits::Measure(engine.info().weight_type,
                                              engine.info().step_weight_bytes));
      report.BeginRun(engine.info(), limits, count,
                      GreedyTokens(engine, /*count=*/16));
      RETURN_IF_ERROR(
          RunEngineBench(engine, model.work, limits, flags.bench,
                         [&](const Figure& figure) { report.Add(figure); }));
    }
  }
  return absl::OkStatus();
}

absl::Status RunShape(const Flags& flags, const ShapeChange& change,
                      const std::vector<int>& threads, Report& report) {
  ASSIGN_OR_RETURN(const ModelFolder folder,
                   ModelFolder::OfShape(flags.shape, change));
  return RunFolder(flags, folder.path(), threads, report);
}

// 1, 2, 4, ... and `most`.
std::vector<int> Doublings(int most) {
  std::vector<int> result;
  for (int n = 1; n < most; n *= 2) result.push_back(n);
  result.push_back(most);
  return result;
}

// What a sweep measures in each of its runs.
BenchOptions SweepOptions(const std::string& sweep, BenchOptions bench) {
  bench.suspend = false;
  bench.decode_sessions = {};
  bench.prefill_tokens = {};
  bench.positions = {};
  if (sweep == "position") {
    for (int64_t p = 10; p <= 1'000'000; p *= 10) bench.positions.push_back(p);
  } else if (sweep == "sessions") {
    for (int64_t n = 1; n <= 1024; n *= 2) bench.decode_sessions.push_back(n);
  } else {
    bench.decode_sessions = {1, 64};
    bench.prefill_tokens = {512};
  }
  return bench;
}

absl::Status RunSizes(const Flags& flags, Report& report) {
  ASSIGN_OR_RETURN(const ShapeSize size,
                   SizeOfShape(flags.shape, flags.change));
  for (const int64_t quarters : {2, 4, 8}) {
    ShapeChange change = flags.change;
    change.width = size.width * quarters / 4;
    RETURN_IF_ERROR(RunShape(flags, change, {flags.threads}, report));
  }
  return absl::OkStatus();
}

absl::Status Write(const Flags& flags) {
  std::error_code error;
  std::filesystem::create_directories(flags.write, error);
  if (error) {
    return absl::UnavailableError(absl::StrCat(
        "cannot make the folder ", flags.write, ": ", error.message()));
  }
  return WriteRandomCheckpoint(flags.shape, flags.change, flags.write);
}

absl::Status Run(Flags flags) {
  if (!flags.write.empty()) return Write(flags);
  Report report(flags.json);
  if (!flags.sweep.empty()) {
    flags.bench = SweepOptions(flags.sweep, std::move(flags.bench));
  }
  std::vector<int> threads = {flags.threads};
  if (flags.sweep == "threads") threads = Doublings(flags.threads);
  if (flags.sweep == "size") {
    RETURN_IF_ERROR(RunSizes(flags, report));
  } else if (flags.shape.empty()) {
    RETURN_IF_ERROR(RunFolder(flags, flags.model, threads, report));
  } else {
    RETURN_IF_ERROR(RunShape(flags, flags.change, threads, report));
  }
  report.Finish();
  return absl::OkStatus();
}

void AddModelOptions(CLI::App& app, Flags& flags) {
  auto* model = app.add_option("--model", flags.model,
                               "Folder of a checkpoint (config.json, ...)");
  auto* shape = app.add_option("--shape", flags.shape,
                               absl::StrCat("Random weights of a shape: ",
                                            absl::StrJoin(ShapeNames(), ", ")));
  model->excludes(shape);
  app.add_option("--layers", flags.change.layers, "Layers of the shape")
      ->check(CLI::Range(1, 1024))
      ->needs(shape);
  app.add_option("--width", flags.change.width, "Width of the shape")
      ->check(CLI::Range(64, 65536))
      ->needs(shape);
  app.add_option("--vocab", flags.change.vocab, "Vocabulary of the shape")
      ->check(CLI::Range(257, 1 << 24))
      ->needs(shape);
  app.add_option("--write", flags.write,
                 "Only write the shape as a checkpoint into this folder, for "
                 "other programs")
      ->needs(shape);
  app.add_option("--weights", flags.weights,
                 "Types that weights are packed in, one run for each")
      ->delimiter(',')
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
}

void AddMeasuringOptions(CLI::App& app, Flags& flags) {
  app.add_option("--threads", flags.threads, "Threads of the engine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seconds", flags.bench.seconds,
                 "Measuring time of each figure")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  app.add_option("--context", flags.bench.context,
                 "Tokens that sessions have consumed")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  auto* sessions = app.add_option("--sessions", flags.bench.decode_sessions,
                                  "Sessions that decode together")
                       ->delimiter(',')
                       ->check(CLI::Range(1, 4096))
                       ->capture_default_str();
  auto* prefill =
      app.add_option("--prefill", flags.bench.prefill_tokens, "Prompt lengths")
          ->delimiter(',')
          ->check(CLI::Range(1, 1'000'000))
          ->capture_default_str();
  auto* positions = app.add_option("--positions", flags.bench.positions,
                                   "Positions at which one token is timed")
                        ->delimiter(',')
                        ->check(CLI::Range(0, 10'000'000))
                        ->capture_default_str();
  app.add_option("--sweep", flags.sweep,
                 "One of sessions (1 to 1024), position (10 to 1,000,000),\n"
                 "threads (1 to --threads), size (half to twice the width)")
      ->check(CLI::IsMember({"sessions", "position", "threads", "size"}))
      ->excludes(sessions)
      ->excludes(prefill)
      ->excludes(positions);
  app.add_flag("--json", flags.json, "Print JSON instead of tables");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures the engine on a model folder, or on random weights of a named\n"
      "shape, and prints every figure beside the limit that the machine sets:\n"
      "the memory's read speed, or the best matmul rate at 512 rows.\n\n"
      "  reprise-bench --shape=linear-gpt2 --weights=f32,bf16,int8\n"
      "  reprise-bench --shape=rwkv7-0.1b --sweep=sessions --json\n"
      "  reprise-bench --shape=mamba-130m --write=/tmp/mamba-130m\n"
      "  reprise-bench --model=models/embedded\n",
      "reprise-bench");
  AddModelOptions(app, flags);
  AddMeasuringOptions(app, flags);
  if (const auto code = ParseTool(app, argc, argv)) return *code;
  if (flags.model.empty() && flags.shape.empty()) {
    return UsageError(app, "give --model=DIR or --shape=NAME");
  }
  if (flags.sweep == "size" && flags.shape.empty()) {
    return UsageError(app, "--sweep=size needs --shape=NAME");
  }
  const absl::Status status = Run(flags);
  if (!status.ok()) {
    std::fprintf(stderr, "reprise-bench: %s\n",
                 std::string(FromAbsl(status.message())).c_str());
    return 1;
  }
  return FinishStdout("reprise-bench", 0);
}

}  // namespace
}  // namespace reprise::bench

int main(int argc, char** argv) {
  reprise::OpenStandardStreams();
  reprise::RestartWithEnvironment(argv);
  return reprise::bench::Main(argc, argv);
}
