// reprise-snapshots: how large a model's sessions are, written one way or the
// other, how long that takes, and what rounding to bf16 changes in what the
// model says. Prints the tables of docs/export.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/kernels/state_kernels.h"
#include "engine/load_tokenizer.h"
#include "tools/parse_tool.h"
#include "tools/snapshots/measure.h"

namespace reprise::snapshots {
namespace {

struct Flags {
  std::string model;
  std::string text;
  std::string weights = "auto";
  int threads = static_cast<int>(std::thread::hardware_concurrency());
  MeasureOptions measure;
};

absl::StatusOr<std::string> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError("cannot read " + path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Print(const Measurements& found, const MeasureOptions& options) {
  std::printf("| encoding | bytes | of f32 | write | read |\n");
  std::printf("|---|---:|---:|---:|---:|\n");
  for (const EncodingCost& cost : found.encodings) {
    std::printf("| %s | %.0f | %.0f%% | %.2f ms | %.2f ms |\n",
                cost.name.c_str(), cost.bytes,
                100 * cost.bytes / found.encodings.front().bytes,
                1e3 * cost.encode_seconds, 1e3 * cost.decode_seconds);
  }
  std::printf(
      "\n| turn | mean KL | largest KL | same likeliest token | nats/token, "
      "exact | %s |\n",
      options.elements == StateEncoding::kF32 ? "f32" : "bf16");
  std::printf("|---:|---:|---:|---:|---:|---:|\n");
  for (size_t turn = 0; turn < found.turns.size(); ++turn) {
    const TurnEffect& effect = found.turns[turn];
    std::printf("| %zu | %.1e | %.1e | %.2f%% | %.5f | %.5f |\n", turn + 1,
                effect.mean_divergence, effect.max_divergence,
                100 * effect.agreement, effect.exact_loss, effect.written_loss);
  }
  std::printf(
      "\ngreedy: %lld of %lld tokens equal up to the first that is not; all "
      "of them at %lld of %lld places\n",
      static_cast<long long>(found.greedy_equal),
      static_cast<long long>(found.greedy_tokens),
      static_cast<long long>(found.greedy_places),
      static_cast<long long>(options.places));
}

absl::Status Run(const Flags& flags) {
  SetNumThreads(flags.threads);
  EngineOptions options;
  options.model_dir = flags.model;
  for (const WeightType type : kWeightTypes) {
    if (flags.weights == WeightTypeName(type)) options.weights = type;
  }
  ASSIGN_OR_RETURN(const std::string text, ReadText(flags.text));
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(options));
  ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                   LoadTokenizer(flags.model, engine->info().vocab_size));
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                   tokenizer->Encode(text, /*allow_special=*/false));
  ASSIGN_OR_RETURN(const Measurements found,
                   Measure(*engine, tokens, flags.measure));
  std::printf("%s: %s, %s weights\n\n", engine->info().name.c_str(),
              engine->info().description.c_str(),
              std::string(WeightTypeName(engine->info().weight_type)).c_str());
  Print(found, flags.measure);
  return absl::OkStatus();
}

void AddCount(CLI::App& app, const char* flag, int64_t& value, const char* help,
              int64_t multiple_of) {
  const auto check = [multiple_of](const std::string& text) -> std::string {
    return std::stoll(text) % multiple_of == 0
               ? ""
               : "must be a multiple of " + std::to_string(multiple_of);
  };
  app.add_option(flag, value, help)
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000}))
      ->check(check)
      ->capture_default_str();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app(
      "Measures the ways to write a session: sizes, times, and what rounding\n"
      "to bf16 changes. Conversations begin at several places of a text; "
      "after\n"
      "a prompt they read it on in turns, from exact states and from states\n"
      "that are rounded before each turn.\n\n"
      "  reprise-snapshots --model=models/embedded --text=book.txt\n",
      "reprise-snapshots");
  app.add_option("--model", flags.model, "Folder of a checkpoint")->required();
  app.add_option("--text", flags.text, "File with a text")->required();
  app.add_option("--weights", flags.weights, "Type that weights are packed in")
      ->check(CLI::IsMember({"auto", "f32", "bf16", "int8"}))
      ->capture_default_str();
  app.add_option("--threads", flags.threads, "Threads of the engine")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  MeasureOptions& measure = flags.measure;
  AddCount(app, "--places", measure.places, "Conversations", 1);
  AddCount(app, "--prompt-tokens", measure.prompt_tokens,
           "Tokens before the first turn", kTileRows);
  AddCount(app, "--turns", measure.turns, "Turns of a conversation", 1);
  AddCount(app, "--turn-tokens", measure.turn_tokens, "Tokens of a turn",
           kTileRows);
  app.add_option("--seconds", measure.seconds, "Time for each timing")
      ->check(CLI::Range(0.0, 600.0))
      ->capture_default_str();
  app.add_option_function<std::string>(
         "--elements",
         [&measure](const std::string& name) {
           measure.elements =
               name == "f32" ? StateEncoding::kF32 : StateEncoding::kBf16;
         },
         "What the states are rounded to; f32 shows that nothing else differs")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->default_str("bf16");
  if (const auto code = ParseTool(app, argc, argv)) return *code;
  const absl::Status status = Run(flags);
  if (status.ok()) return FinishStdout("reprise-snapshots", 0);
  std::fprintf(stderr, "reprise-snapshots: %s\n",
               std::string(FromAbsl(status.message())).c_str());
  return 1;
}

}  // namespace
}  // namespace reprise::snapshots

int main(int argc, char** argv) {
  reprise::OpenStandardStreams();
  reprise::RestartWithEnvironment(argv);
  return reprise::snapshots::Main(argc, argv);
}
