#include <chrono>
#include <cmath>
#include <string>
#include <utility>

#include "client/commands.h"
#include "client/format.h"
#include "client/input.h"
#include "client/turn.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

using SteadyClock = std::chrono::steady_clock;

// Faster than anybody reads, and no work for the terminal.
constexpr auto kProgressPeriod = std::chrono::milliseconds(100);

// Shows the messages of a Score call as they come.
class ScoreViewer {
 public:
  ScoreViewer(bool json, Terminal& terminal)
      : json_(json), terminal_(terminal) {}

  // False if nobody reads any more.
  bool OnMessage(const v1::ScoreResponse& message) {
    totals_ = message.totals();
    if (!json_) {
      ShowProgress();
      return true;
    }
    status_ = PrintJson(message, terminal_);
    return status_.ok() && terminal_.status().ok() && !terminal_.out_closed();
  }

  // The call is over.
  void End() { terminal_.Progress(""); }

  const v1::ScoreTotals& totals() const { return totals_; }
  const absl::Status& status() const { return status_; }

 private:
  void ShowProgress() {
    const auto now = SteadyClock::now();
    if (now - shown_ < kProgressPeriod || totals_.scored_tokens() == 0) return;
    shown_ = now;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const auto scored = static_cast<double>(totals_.scored_tokens());
    const auto all = static_cast<double>(totals_.text_tokens());
    terminal_.Progress(FormatDecimals(100 * scored / all, 0) + "% of " +
                       FormatTokens(totals_.text_tokens()) + ", " +
                       FormatCount(static_cast<uint64_t>(scored / seconds)) +
                       " tokens/s, perplexity " +
                       FormatDecimals(totals_.perplexity(), 3));
  }

  const bool json_;
  Terminal& terminal_;
  const SteadyClock::time_point start_ = SteadyClock::now();
  SteadyClock::time_point shown_ = start_;
  v1::ScoreTotals totals_;
  absl::Status status_;
};

std::string Result(const v1::ScoreTotals& totals) {
  const auto tokens = static_cast<double>(totals.scored_tokens());
  const auto bytes = static_cast<double>(totals.scored_bytes());
  const double nats = -totals.logprob();
  const std::string bits_per_byte =
      bytes > 0 ? FormatDecimals(nats / std::log(2.0) / bytes, 4) : "no bytes";
  return FormatProperties({
      {"tokens", FormatCount(totals.text_tokens()) + ", of which " +
                     FormatCount(totals.scored_tokens()) + " scored, " +
                     FormatCount(totals.scored_bytes()) + " bytes"},
      {"nats per token", FormatDecimals(nats / tokens, 4)},
      {"bits per byte", bits_per_byte},
      {"perplexity", FormatDecimals(totals.perplexity(), 4)},
  });
}

absl::StatusOr<std::string> GetScored(const CommandLine& line,
                                      const CommandContext& context) {
  if (line.file.empty()) return GetText(line, context);
  if (line.file != "-") return ReadTextFile(line.file);
  ASSIGN_OR_RETURN(std::string text, ReadAll(context.in_fd));
  RETURN_IF_ERROR(CheckUtf8(text));
  return text;
}

}  // namespace

absl::StatusOr<int> RunScore(const CommandLine& line,
                             const CommandContext& context) {
  Terminal& terminal = context.terminal;
  v1::ScoreRequest request = line.score;
  ASSIGN_OR_RETURN(*request.mutable_text(), GetScored(line, context));
  ScoreViewer viewer(line.json, terminal);
  Cancellation cancellation;
  context.interrupts.WatchCall(&cancellation);
  const absl::Status status = context.client.Score(
      request,
      [&viewer](const v1::ScoreResponse& message) {
        return viewer.OnMessage(message);
      },
      &cancellation);
  context.interrupts.WatchCall(nullptr);
  viewer.End();
  RETURN_IF_ERROR(viewer.status());
  // A cancel that we asked for is not an error.
  if (terminal.out_closed()) return 0;
  if (!cancellation.cancelled()) RETURN_IF_ERROR(status);
  if (!line.json && viewer.totals().scored_tokens() > 0) {
    terminal.Print(Result(viewer.totals()));
  }
  return cancellation.cancelled() ? kInterruptedExitCode : 0;
}

}  // namespace reprise
