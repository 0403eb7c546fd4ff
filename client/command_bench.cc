#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/bench.h"
#include "client/commands.h"
#include "client/format.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

// CPU time of a process, in seconds: utime and stime of proc(5).
absl::StatusOr<double> CpuSeconds(int64_t pid) {
  const std::string path = absl::StrCat("/proc/", pid, "/stat");
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) {
    return absl::NotFoundError(
        absl::StrCat("--server-pid: no process ", pid, " on this machine"));
  }
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int i = 3; i < 14; ++i) fields >> skipped;
  int64_t user = 0;
  int64_t system = 0;
  fields >> user >> system;
  return static_cast<double>(user + system) /
         static_cast<double>(sysconf(_SC_CLK_TCK));
}

std::string ToString(const TimeSpread& spread) {
  if (spread.count == 0) return "none";
  const auto ms = [](double seconds) {
    return FormatDecimals(1e3 * seconds, 2) + " ms";
  };
  return absl::StrCat("median ", ms(spread.median), ", p99 ", ms(spread.p99),
                      " (", FormatDecimals(spread.p99 / spread.median, 2),
                      " times), longest ", ms(spread.longest));
}

nlohmann::ordered_json ToJson(const TimeSpread& spread) {
  return {{"count", spread.count},
          {"median_ms", 1e3 * spread.median},
          {"p99_ms", 1e3 * spread.p99},
          {"longest_ms", 1e3 * spread.longest}};
}

struct Report {
  Report(const BenchResult& result, const BenchOptions& options)
      : options(options),
        seconds(result.seconds),
        tokens_per_s(static_cast<double>(result.tokens) / seconds),
        long_prompts(result.long_prompts),
        gaps(SpreadOf(result.gaps)),
        first_tokens(SpreadOf(result.first_tokens)),
        long_first_tokens(SpreadOf(result.long_first_tokens)) {}

  double PromptTokensPerSecond() const {
    return static_cast<double>(long_prompts) * options.long_prompt_tokens /
           seconds;
  }

  std::string Text() const {
    std::vector<std::pair<std::string, std::string>> lines = {
        {"streams", absl::StrCat(options.streams, " for ",
                                 FormatDecimals(seconds, 1), " s")},
        {"tokens/s", FormatDecimals(tokens_per_s, 1)},
        {"between tokens", ToString(gaps)},
        {"first token", ToString(first_tokens)},
    };
    if (options.prompts > 0) {
      lines.emplace_back(
          "long prompts",
          absl::StrCat(
              long_prompts, " of ", FormatTokens(options.long_prompt_tokens),
              ", ", FormatDecimals(PromptTokensPerSecond(), 1), " tokens/s"));
      lines.emplace_back("their first token", ToString(long_first_tokens));
    }
    if (server_cpu_us) {
      lines.emplace_back("server",
                         absl::StrCat(FormatDecimals(*server_cpu_us, 0),
                                      " us of CPU a token"));
    }
    lines.emplace_back(
        "this program",
        absl::StrCat(FormatDecimals(own_cpu_us, 0), " us of CPU a token"));
    return FormatProperties(lines);
  }

  std::string Json() const {
    nlohmann::ordered_json json = {
        {"streams", options.streams},
        {"seconds", seconds},
        {"tokens_per_s", tokens_per_s},
        {"between_tokens", ToJson(gaps)},
        {"first_token", ToJson(first_tokens)},
        {"long_prompts", long_prompts},
        {"long_prompt_tokens_per_s", PromptTokensPerSecond()},
        {"long_first_token", ToJson(long_first_tokens)},
        {"own_cpu_us_per_token", own_cpu_us}};
    if (server_cpu_us) json["server_cpu_us_per_token"] = *server_cpu_us;
    return json.dump() + "\n";
  }

  const BenchOptions& options;
  double seconds;
  double tokens_per_s;
  uint64_t long_prompts;
  TimeSpread gaps;
  TimeSpread first_tokens;
  TimeSpread long_first_tokens;
  // Of each token of the streams, with all that was done meanwhile.
  std::optional<double> server_cpu_us;
  double own_cpu_us = 0;
};

}  // namespace

absl::StatusOr<int> RunBenchCommand(const CommandLine& line,
                                    const CommandContext& context) {
  Terminal& terminal = context.terminal;
  ASSIGN_OR_RETURN(const v1::Model model, context.client.GetModel());
  std::vector<int64_t> pids = {getpid()};
  if (line.server_pid > 0) pids.push_back(line.server_pid);
  // Of each process, from the beginning of the measured time to its end.
  std::vector<double> cpu(pids.size());
  absl::Status counted;
  const auto on_measured = [&](bool end) {
    for (size_t i = 0; i < pids.size(); ++i) {
      const absl::StatusOr<double> seconds = CpuSeconds(pids[i]);
      counted.Update(seconds.status());
      if (seconds.ok()) cpu[i] = end ? *seconds - cpu[i] : *seconds;
    }
  };
  Cancellation interrupted;
  context.interrupts.WatchCall(&interrupted);
  const absl::StatusOr<BenchResult> result = RunBench(
      context.client, model, line.bench,
      {.on_measured = on_measured, .on_progress = [&](uint64_t tokens) {
         terminal.Progress(FormatTokens(tokens));
         return counted.ok() && !interrupted.cancelled();
       }});
  context.interrupts.WatchCall(nullptr);
  terminal.Progress("");
  if (interrupted.cancelled()) return kInterruptedExitCode;
  RETURN_IF_ERROR(counted);
  RETURN_IF_ERROR(result.status());
  Report report(*result, line.bench);
  const double tokens = static_cast<double>(result->tokens);
  report.own_cpu_us = 1e6 * cpu[0] / tokens;
  if (pids.size() > 1) report.server_cpu_us = 1e6 * cpu[1] / tokens;
  terminal.Print(line.json ? report.Json() : report.Text());
  return 0;
}

}  // namespace reprise
