#include "client/turn.h"

#include <google/protobuf/util/json_util.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>

#include "client/format.h"
#include "engine/base/clock.h"

namespace reprise {
namespace {

int64_t NowUs() { return Clock::Real().MonotonicNs() / 1000; }

// Receives the messages of one call, shows them, and remembers what the summary
// needs.
class TurnViewer {
 public:
  TurnViewer(TurnFormat format, Terminal& terminal, TurnResult& result)
      : format_(format),
        terminal_(terminal),
        result_(result),
        spinner_(terminal),
        start_us_(NowUs()) {}

  // False to end the call.
  bool OnMessage(const v1::GenerateResponse& message) {
    Remember(message);
    if (format_ == TurnFormat::kJson) {
      ShowJson(message);
    } else {
      ShowText(message);
    }
    return !terminal_.out_closed() && result_.status.ok() &&
           terminal_.status().ok();
  }

  void OnNotice(const std::string& notice) {
    spinner_.Stop();
    terminal_.Note(FormatNotice(notice, format_ == TurnFormat::kJson));
  }

  // After the last message.
  void End() {
    spinner_.Stop();
    result_.total_us = NowUs() - start_us_;
    for (const auto& [index, text] : held_back_) {
      terminal_.EndLine();
      terminal_.Print("\n" + text);
    }
    if (terminal_.out_is_terminal()) terminal_.EndLine();
  }

 private:
  void Remember(const v1::GenerateResponse& message) {
    if (message.has_started()) result_.started = message.started();
    if (message.has_delta()) {
      result_.usage = message.delta().usage();
      if (result_.first_text_us == 0) {
        result_.first_text_us = NowUs() - start_us_;
      }
    }
    if (message.has_finished()) {
      result_.usage = message.finished().usage();
      result_.finished.push_back(message.finished());
    }
  }

  // States belong into files, not into lines.
  void ShowJson(const v1::GenerateResponse& message) {
    spinner_.Stop();
    const bool state = message.finished().has_snapshot();
    v1::GenerateResponse shown;
    if (state) {
      shown = message;
      shown.mutable_finished()->mutable_snapshot()->clear_data();
    }
    absl::StatusOr<std::string> line = ToJsonLine(state ? shown : message);
    if (line.ok()) {
      terminal_.Print(*line);
    } else {
      result_.status = line.status();
    }
  }

  // The first of several completions is shown as it comes. The others come at
  // the same time, so they have to wait.
  void ShowText(const v1::GenerateResponse& message) {
    if (!message.has_delta()) return;
    spinner_.Stop();
    const v1::Delta& delta = message.delta();
    if (delta.index() == 0) {
      terminal_.Print(delta.text());
    } else {
      held_back_[delta.index()] += delta.text();
    }
  }

  const TurnFormat format_;
  Terminal& terminal_;
  TurnResult& result_;
  Spinner spinner_;
  const int64_t start_us_;
  std::map<uint32_t, std::string> held_back_;  // by index
};

std::string ReasonName(const v1::Finished& finished) {
  switch (finished.reason()) {
    case v1::FINISH_REASON_STOP:
      return "end of text";
    case v1::FINISH_REASON_STOP_TOKEN:
      return "stop token " + std::to_string(finished.matched_token());
    case v1::FINISH_REASON_STOP_STRING:
      return "stop string " + QuoteBytes(finished.matched_stop());
    case v1::FINISH_REASON_LENGTH:
      return "length limit";
    case v1::FINISH_REASON_TIME_LIMIT:
      return "time limit";
    case v1::FINISH_REASON_CANCELLED:
      return "cancelled";
    default:
      return v1::FinishReason_Name(finished.reason());
  }
}

std::string ResumeName(const v1::Started& started) {
  if (started.repeated()) return "answered before and told again";
  std::string name;
  switch (started.resumed_from()) {
    case v1::RESUME_SOURCE_NONE:
      return "new";
    case v1::RESUME_SOURCE_SLOT:
      name = "resumed from its slot";
      break;
    case v1::RESUME_SOURCE_MEMORY:
      name = "resumed from memory";
      break;
    case v1::RESUME_SOURCE_STORE:
      name = "resumed from the store";
      break;
    case v1::RESUME_SOURCE_CLIENT:
      return "resumed from the client's state";
    case v1::RESUME_SOURCE_PREFIX:
      name = "begun from the prefix cache";
      break;
    default:
      name = v1::ResumeSource_Name(started.resumed_from());
  }
  if (!started.resume_reason().empty()) {
    name += " (" + started.resume_reason() + ")";
  }
  return name;
}

// The server's own figures if it gave them, else what was measured here.
std::string Speed(const TurnResult& result) {
  int64_t first_us = result.first_text_us;
  double rate = 0;
  const uint32_t tokens = result.usage.completion_tokens();
  if (!result.finished.empty() && result.finished[0].has_timings()) {
    const v1::Timings& timings = result.finished[0].timings();
    first_us = static_cast<int64_t>(timings.first_token_us());
    if (timings.per_token_us() > 0) {
      rate = 1e6 / static_cast<double>(timings.per_token_us());
    }
  } else if (tokens > 1 && result.total_us > first_us) {
    rate = (tokens - 1) * 1e6 / static_cast<double>(result.total_us - first_us);
  }
  std::string text;
  if (tokens > 0) text += ", first after " + FormatDuration(first_us);
  if (rate > 0) {
    std::array<char, 32> number;
    std::snprintf(number.data(), number.size(), ", %.0f tokens/s", rate);
    text += number.data();
  }
  return text;
}

// Of a turn whose end was not heard.
std::string OutcomeUnheard(const TurnResult& result) {
  const uint64_t before = result.started->revision();
  if (!result.left_at) return " was at revision " + std::to_string(before);
  const std::string after = std::to_string(*result.left_at);
  if (*result.left_at == before + 1) return " kept as revision " + after;
  if (*result.left_at != before) return " is at revision " + after;
  return (result.rolls_back ? " rolled back to revision "
                            : " stays at revision ") +
         after;
}

std::string SessionSummary(const TurnResult& result) {
  const v1::Started& started = *result.started;
  std::string text = "session " + started.session_id();
  const bool begun = started.revision() > 0 ||
                     started.resumed_from() != v1::RESUME_SOURCE_NONE;
  if (result.finished.empty() && result.left_at == 0 && !begun) {
    return "nothing was kept of session " + started.session_id();
  }
  if (result.finished.empty()) {
    text += OutcomeUnheard(result);
  } else if (result.finished[0].has_revision()) {
    text += " at revision " + std::to_string(result.finished[0].revision());
  } else if (started.revision() == 0) {
    return "nothing was kept of session " + started.session_id();
  } else {
    text += " stays at revision " + std::to_string(started.revision());
  }
  return text + ", " + ResumeName(started);
}

// The server commits what it had streamed, or not; that takes a moment. None
// if it does not say in time, or cannot.
std::optional<uint64_t> AskWhereItWasLeft(Client& client,
                                          const v1::GenerateRequest& request,
                                          const TurnResult& result) {
  constexpr int64_t kAnswerMs = 1000;
  constexpr int kTries = 20;
  constexpr auto kPause = std::chrono::milliseconds(50);
  // A new session is found once its first turn is committed.
  const bool may_commit = !result.rolls_back &&
                          request.commit() != v1::COMMIT_POLICY_NEVER &&
                          result.usage.completion_tokens() > 0;
  bool gone = false;
  for (int i = 0; i < kTries; ++i) {
    const absl::StatusOr<v1::Session> now =
        client.GetSession(result.started->session_id(), kAnswerMs);
    gone = absl::IsNotFound(now.status());
    if (gone && !may_commit) break;
    if (!gone && !now.ok()) return std::nullopt;
    if (!gone && now->place() != v1::SESSION_PLACE_ACTIVE) {
      return now->revision();
    }
    std::this_thread::sleep_for(kPause);
  }
  return gone ? std::optional<uint64_t>(0) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> ToJsonLine(
    const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status =
      google::protobuf::util::MessageToJsonString(message, &json, options);
  if (!status.ok()) {
    return absl::InternalError("cannot write the message as JSON: " +
                               status.ToString());
  }
  return json + "\n";
}

TurnResult RunTurn(Client& client, const v1::GenerateRequest& request,
                   const ResumeOptions& resume, TurnFormat format,
                   Terminal& terminal, Interrupts* interrupts) {
  TurnResult result;
  TurnViewer viewer(format, terminal, result);
  Cancellation cancellation;
  if (interrupts != nullptr) interrupts->WatchCall(&cancellation);
  const absl::Status status = GenerateResuming(
      client, request, resume,
      [&viewer](const v1::GenerateResponse& message) {
        return viewer.OnMessage(message);
      },
      [&viewer](const std::string& notice) { viewer.OnNotice(notice); },
      cancellation);
  if (interrupts != nullptr) interrupts->WatchCall(nullptr);
  viewer.End();
  result.interrupted = cancellation.cancelled();
  result.rolls_back = request.on_cancel() == v1::ON_CANCEL_ROLL_BACK;
  if (result.interrupted && result.started && result.finished.empty() &&
      !result.started->session_id().empty()) {
    result.left_at = AskWhereItWasLeft(client, request, result);
  }
  if (!terminal.status().ok()) result.status = terminal.status();
  // A cancel that we asked for is not an error.
  const bool ours = result.interrupted || terminal.out_closed();
  if (result.status.ok() && !ours) result.status = status;
  return result;
}

std::string SummariseTurn(const TurnResult& result) {
  std::string text = FormatTokens(result.usage.completion_tokens());
  if (!result.started || !result.started->repeated()) text += Speed(result);
  if (result.interrupted) text += "; interrupted";
  for (const v1::Finished& finished : result.finished) {
    text += "; " + ReasonName(finished);
  }
  if (result.started && !result.started->session_id().empty()) {
    text += "; " + SessionSummary(result);
  }
  if (result.started && result.started->session_id().empty() &&
      result.started->resumed_from() == v1::RESUME_SOURCE_CLIENT) {
    text += "; " + ResumeName(*result.started);
  }
  if (!result.finished.empty() && result.finished[0].has_snapshot()) {
    const v1::SnapshotInfo& info = result.finished[0].snapshot().info();
    text += "; state of " + FormatBytes(info.sealed_bytes()) + " at revision " +
            std::to_string(info.revision());
  }
  if (result.usage.cached_tokens() > 0) {
    text += ", " + FormatTokens(result.usage.cached_tokens()) + " cached";
  }
  if (result.started && result.started->sampling().temperature() > 0) {
    text += "; seed " + std::to_string(result.started->seed());
  }
  return text;
}

}  // namespace reprise
