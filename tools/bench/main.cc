// reprise-bench: what the engine reaches on this machine, each figure beside
// the limit measured in the same run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "tools/bench/engine_bench.h"
#include "tools/bench/random_checkpoint.h"
#include "tools/parse_tool.h"

namespace reprise::bench {
namespace {

struct Flags {
  std::string model;
  std::string shape;
  std::string weights = "auto";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  bool json = false;
  BenchOptions bench;
};

// A folder that is gone when this is.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "reprise-bench-XXXXXX");
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

absl::StatusOr<std::unique_ptr<Engine>> Load(const Flags& flags) {
  EngineOptions options;
  for (const WeightType type : kWeightTypes) {
    if (flags.weights == WeightTypeName(type)) options.weights = type;
  }
  options.model_dir = flags.model;
  if (flags.shape.empty()) return LoadEngine(options);
  const TemporaryFolder folder;
  if (folder.path().empty()) {
    return absl::UnavailableError("cannot make a temporary folder");
  }
  std::fprintf(stderr, "Writing random weights of shape %s ...\n",
               flags.shape.c_str());
  RETURN_IF_ERROR(WriteRandomCheckpoint(flags.shape, folder.path()));
  options.model_dir = folder.path();
  return LoadEngine(options);
}

void PrintHeader(const ModelInfo& info, const MachineLimits& limits,
                 int threads) {
  std::printf(
      "model      %s, %.1f million parameters, %.1f MB of %s weights, "
      "%.1f KB of state\n",
      info.description.c_str(), 1e-6 * info.num_parameters,
      1e-6 * info.weight_bytes,
      std::string(WeightTypeName(info.weight_type)).c_str(),
      1e-3 * info.state_bytes);
  std::printf("machine    %s, %d threads, results %s\n", info.cpu_isa.c_str(),
              threads,
              info.exact ? "exact" : "depend on batch mates in the last bit");
  std::printf(
      "limits     memory read %.1f GB/s beyond the caches, %.1f GB/s "
      "for as many bytes as the weights; matmul %.0f GFLOP/s at 512 "
      "rows\n\n",
      1e-9 * limits.read_bytes_per_s, 1e-9 * limits.model_read_bytes_per_s,
      1e-9 * limits.matmul_flops_per_s);
  std::printf("%-34s %12s %-9s %12s %8s  %s\n", "what", "measured", "", "limit",
              "share", "limited by");
}

void PrintFigure(const Figure& figure) {
  std::printf("%-34s %12.1f %-9s", figure.name.c_str(), figure.value,
              figure.unit.c_str());
  if (figure.limit > 0) {
    // Of a rate the share is value / limit; of a time or a size, the reverse.
    const bool rate = figure.unit == "tokens/s";
    std::printf(" %12.1f %7.0f%%  %s", figure.limit,
                100 * (rate ? figure.value / figure.limit
                            : figure.limit / figure.value),
                figure.limited_by.c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

nlohmann::ordered_json ToJson(const ModelInfo& info,
                              const MachineLimits& limits, int threads) {
  return {{"model", info.description},
          {"parameters", info.num_parameters},
          {"weight_type", std::string(WeightTypeName(info.weight_type))},
          {"weight_bytes", info.weight_bytes},
          {"step_weight_bytes", info.step_weight_bytes},
          {"state_bytes", info.state_bytes},
          {"cpu_isa", info.cpu_isa},
          {"exact", info.exact},
          {"threads", threads},
          {"memory_read_bytes_per_s", limits.read_bytes_per_s},
          {"model_read_bytes_per_s", limits.model_read_bytes_per_s},
          {"matmul_flops_per_s", limits.matmul_flops_per_s},
          {"figures", nlohmann::ordered_json::array()}};
}

absl::Status Run(const Flags& flags) {
  SetNumThreads(flags.threads);
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Load(flags));
  std::fprintf(stderr, "Measuring the machine's limits ...\n");
  ASSIGN_OR_RETURN(const MachineLimits limits, MeasureLimits(*engine));
  nlohmann::ordered_json json = ToJson(engine->info(), limits, flags.threads);
  if (!flags.json) PrintHeader(engine->info(), limits, flags.threads);
  const auto done = [&](const Figure& figure) {
    if (!flags.json) return PrintFigure(figure);
    json["figures"].push_back({{"name", figure.name},
                               {"value", figure.value},
                               {"unit", figure.unit},
                               {"limit", figure.limit},
                               {"limited_by", figure.limited_by}});
  };
  RETURN_IF_ERROR(RunEngineBench(*engine, limits, flags.bench, done));
  if (flags.json) std::cout << json.dump(2) << "\n";
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures the engine on a model folder, or on random weights of a named\n"
      "shape, and prints every figure beside the limit that the machine sets:\n"
      "the memory's read speed, or oneDNN's best matmul rate at 512 rows.\n\n"
      "  reprise-bench --shape=linear-gpt2 --weights=bf16\n"
      "  reprise-bench --model=models/embedded --json\n",
      "reprise-bench");
  auto* model = app.add_option("--model", flags.model,
                               "Folder of a checkpoint (config.json, ...)");
  auto* shape = app.add_option("--shape", flags.shape,
                               absl::StrCat("Random weights of a shape: ",
                                            absl::StrJoin(ShapeNames(), ", ")));
  model->excludes(shape);
  app.add_option("--weights", flags.weights, "Type that weights are packed in")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads of the engine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seconds", flags.bench.seconds,
                 "Measuring time of each figure")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  app.add_option("--sessions", flags.bench.decode_sessions,
                 "Sessions that decode together")
      ->delimiter(',')
      ->check(CLI::Range(1, 512))
      ->capture_default_str();
  app.add_option("--prefill", flags.bench.prefill_tokens, "Prompt lengths")
      ->delimiter(',')
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_option("--positions", flags.bench.positions,
                 "Positions at which one token is timed, ascending")
      ->delimiter(',')
      ->check(CLI::Range(0, 10'000'000))
      ->capture_default_str();
  app.add_flag("--json", flags.json, "Print JSON instead of a table");
  if (const auto code = ParseTool(app, argc, argv)) return *code;
  if (flags.model.empty() && flags.shape.empty()) {
    return UsageError(app, "give --model=DIR or --shape=NAME");
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
  reprise::RestartWithBoundedSpin(argv);
  return reprise::bench::Main(argc, argv);
}
