// reprise-golden: is the engine's arithmetic that of the models' authors?
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/standard_streams.h"
#include "tools/golden/golden_case.h"
#include "tools/parse_tool.h"

namespace reprise {
namespace {

std::string CaseName(const std::string& dir) {
  const std::filesystem::path path(dir);
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

// One line a case; returns whether all are ok.
bool RunCases(const std::vector<std::string>& dirs, WeightType weights) {
  size_t width = 4;
  for (const std::string& dir : dirs) {
    width = std::max(width, CaseName(dir).size());
  }
  std::printf("%-*s  %9s  %9s  %9s  %7s\n", static_cast<int>(width), "case",
              "logits", "KL", "states", "greedy");
  bool all_ok = true;
  for (const std::string& dir : dirs) {
    const GoldenResult result =
        RunGoldenCase(dir, weights, [&](const LoadProgress& progress) {
          std::fprintf(stderr, "%s: loading, %d%% of %.1f GB\n",
                       CaseName(dir).c_str(), progress.percent(),
                       1e-9 * static_cast<double>(progress.total_bytes));
        });
    const std::string greedy = std::to_string(result.greedy_agreed) + "/" +
                               std::to_string(result.greedy_total);
    std::printf("%-*s  ", static_cast<int>(width), CaseName(dir).c_str());
    if (result.numbers > 0) {
      std::printf("%9.1e  %9.1e  %9.1e  %7s  ", result.logits_error,
                  result.divergence, result.state_error, greedy.c_str());
    } else {
      std::printf("%9s  %9s  %9s  %7s  ", "-", "-", "-", "-");
    }
    std::printf("%s%s\n",
                result.ok() ? "ok" : "FAIL: ", result.failure.c_str());
    std::fflush(stdout);
    all_ok = all_ok && result.ok();
  }
  return all_ok;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  reprise::OpenStandardStreams();
  CLI::App app(
      "Compares the engine with golden outputs, number by number.\n\n"
      "Every CASE_DIR is a model folder (config.json, model.safetensors) that "
      "also\nholds golden.safetensors. Prints one line a case: the largest "
      "absolute error\nof the logits, the mean KL(golden || ours) in nats, the "
      "largest error of the\nstates, how many tokens of a greedy continuation "
      "agree, and ok or FAIL with\nthe reason. The exit status is 0 only if "
      "all "
      "are ok. The tolerances (2e-4 for\nlogits, 1e-4 of a state's largest "
      "number) are those of f32; with bf16 and int8\nthe errors are shown "
      "against the same ones.",
      "reprise-golden");
  std::vector<std::string> dirs;
  app.add_option("CASE_DIR", dirs, "Folders of cases")->required();
  reprise::WeightType weights = reprise::WeightType::kF32;
  std::map<std::string, reprise::WeightType> types;
  for (const reprise::WeightType type : reprise::kWeightTypes) {
    types.emplace(reprise::WeightTypeName(type), type);
  }
  app.add_option("--weights", weights, "Type that weights are packed in")
      ->transform(CLI::CheckedTransformer(types))
      ->default_str("f32");
  int threads = 1;  // the cases are small
  app.add_option("--threads", threads, "Threads to compute with")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  if (const auto code = reprise::ParseTool(app, argc, argv)) return *code;

  reprise::SetLogLevel(reprise::LogLevel::kError);
  reprise::SetNumThreads(threads);
  return reprise::FinishStdout("reprise-golden",
                               reprise::RunCases(dirs, weights) ? 0 : 1);
}
