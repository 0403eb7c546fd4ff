#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
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

std::string Number(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

// Of times, in milliseconds.
struct Spread {
  explicit Spread(std::vector<double> seconds) : count(seconds.size()) {
    if (seconds.empty()) return;
    std::sort(seconds.begin(), seconds.end());
    const auto at = [&seconds](double part) {
      const double last = static_cast<double>(seconds.size() - 1);
      return 1e3 * seconds[static_cast<size_t>(part * last + 0.5)];
    };
    median = at(0.5);
    p99 = at(0.99);
    longest = at(1);
  }

  std::string ToString() const {
    if (count == 0) return "none";
    return absl::StrCat("median ", Number(median, 2), " ms, p99 ",
                        Number(p99, 2), " ms (", Number(p99 / median, 2),
                        " times), longest ", Number(longest, 2), " ms");
  }

  nlohmann::ordered_json ToJson() const {
    return {{"count", count},
            {"median_ms", median},
            {"p99_ms", p99},
            {"longest_ms", longest}};
  }

  size_t count;
  double median = 0;
  double p99 = 0;
  double longest = 0;
};

struct Report {
  Report(const BenchResult& result, const BenchOptions& options)
      : options(options),
        seconds(result.seconds),
        tokens_per_s(static_cast<double>(result.tokens) / seconds),
        long_prompts(result.long_prompts),
        gaps(result.gaps),
        first_tokens(result.first_tokens),
        long_first_tokens(result.long_first_tokens) {}

  double PromptTokensPerSecond() const {
    return static_cast<double>(long_prompts) * options.long_prompt_tokens /
           seconds;
  }

  std::string ToString() const {
    std::vector<std::pair<std::string, std::string>> lines = {
        {"streams",
         absl::StrCat(options.streams, " for ", Number(seconds, 1), " s")},
        {"tokens/s", Number(tokens_per_s, 1)},
        {"between tokens", gaps.ToString()},
        {"first token", first_tokens.ToString()},
    };
    if (options.prompts > 0) {
      lines.emplace_back(
          "long prompts",
          absl::StrCat(long_prompts, " of ",
                       FormatTokens(options.long_prompt_tokens), ", ",
                       Number(PromptTokensPerSecond(), 1), " tokens/s"));
      lines.emplace_back("their first token", long_first_tokens.ToString());
    }
    if (server_cpu_us) {
      lines.emplace_back("server", absl::StrCat(Number(*server_cpu_us, 0),
                                                " us of CPU a token"));
    }
    lines.emplace_back("this program", absl::StrCat(Number(own_cpu_us, 0),
                                                    " us of CPU a token"));
    return FormatProperties(lines);
  }

  std::string ToJson() const {
    nlohmann::ordered_json json = {
        {"streams", options.streams},
        {"seconds", seconds},
        {"tokens_per_s", tokens_per_s},
        {"between_tokens", gaps.ToJson()},
        {"first_token", first_tokens.ToJson()},
        {"long_prompts", long_prompts},
        {"long_prompt_tokens_per_s", PromptTokensPerSecond()},
        {"long_first_token", long_first_tokens.ToJson()},
        {"own_cpu_us_per_token", own_cpu_us}};
    if (server_cpu_us) json["server_cpu_us_per_token"] = *server_cpu_us;
    return json.dump() + "\n";
  }

  const BenchOptions& options;
  double seconds;
  double tokens_per_s;
  uint64_t long_prompts;
  Spread gaps;
  Spread first_tokens;
  Spread long_first_tokens;
  // Of each token that came, measured or not.
  std::optional<double> server_cpu_us;
  double own_cpu_us = 0;
};

}  // namespace

absl::Status RunBenchCommand(const CommandLine& line,
                             const CommandContext& context) {
  Terminal& terminal = context.terminal;
  ASSIGN_OR_RETURN(const v1::Model model, context.client.GetModel());
  const std::vector<int64_t> pids = {getpid(), line.server_pid};
  std::vector<double> before(pids.size());
  const size_t processes = line.server_pid > 0 ? 2 : 1;
  for (size_t i = 0; i < processes; ++i) {
    ASSIGN_OR_RETURN(before[i], CpuSeconds(pids[i]));
  }
  uint64_t tokens = 0;
  const absl::StatusOr<BenchResult> result =
      RunBench(context.client, model, line.bench, [&](uint64_t so_far) {
        tokens = so_far;
        terminal.Progress(FormatTokens(tokens));
        return true;
      });
  terminal.Progress("");
  RETURN_IF_ERROR(result.status());
  Report report(*result, line.bench);
  for (size_t i = 0; i < processes; ++i) {
    ASSIGN_OR_RETURN(const double now, CpuSeconds(pids[i]));
    const double us = 1e6 * (now - before[i]) / static_cast<double>(tokens);
    if (i == 0) report.own_cpu_us = us;
    if (i == 1) report.server_cpu_us = us;
  }
  terminal.Print(line.json ? report.ToJson() : report.ToString());
  return absl::OkStatus();
}

}  // namespace reprise
