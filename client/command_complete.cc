#include <string>
#include <utility>

#include "client/commands.h"
#include "client/format.h"
#include "client/state_file.h"
#include "client/turn.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

bool IsNewSession(const TurnResult& result) {
  return result.started && !result.started->session_id().empty() &&
         result.started->revision() == 0 && !result.started->repeated() &&
         result.started->resumed_from() == v1::RESUME_SOURCE_NONE;
}

// A turn that was interrupted says nothing of a commit: if the server does not
// either, it keeps what was streamed, unless told otherwise.
bool IsKept(const CommandLine& line, const TurnResult& result) {
  if (line.request.commit() == v1::COMMIT_POLICY_NEVER) return false;
  if (result.left_at) return *result.left_at > result.started->revision();
  return !result.interrupted ||
         (line.request.on_cancel() != v1::ON_CANCEL_ROLL_BACK &&
          result.usage.completion_tokens() > 0);
}

absl::Status WriteSaved(const CommandLine& line, const std::string& sealed,
                        Terminal& terminal) {
  RETURN_IF_ERROR(WriteStateFile(line.save_file, sealed));
  if (OpensInOneProcess(sealed)) {
    terminal.Note(
        FormatNotice(OpensInOneProcessNotice(line.save_file), line.json));
  }
  return absl::OkStatus();
}

// Writes the state that the turn left, if it is wanted. A turn that was
// answered from its record has none with it, but the session is where it was
// left.
absl::Status SaveState(const CommandLine& line, const TurnResult& result,
                       const CommandContext& context) {
  if (line.save_file.empty()) return absl::OkStatus();
  const std::string not_written =
      "--save: " + line.save_file + " was not written, as the ";
  if (result.finished.empty()) {
    return absl::AbortedError(not_written + "turn did not end");
  }
  const v1::Finished& finished = result.finished[0];
  if (finished.has_snapshot()) {
    return WriteSaved(line, finished.snapshot().data(), context.terminal);
  }
  // Also of a turn that began to stream before its server went away, and was
  // answered to the end from the record by another: Started is the first one.
  if (finished.has_revision() && line.request.has_session_id()) {
    v1::ExportSessionRequest request;
    request.set_id(line.request.session_id());
    request.set_expected_revision(finished.revision());
    *request.mutable_seal() = line.request.output().snapshot();
    ASSIGN_OR_RETURN(const v1::SealedSnapshot state,
                     context.client.ExportSession(request));
    return WriteSaved(line, state.data(), context.terminal);
  }
  return absl::FailedPreconditionError(
      not_written +
      "server gave no state: the turn added nothing, or was rolled back");
}

}  // namespace

absl::StatusOr<int> RunComplete(const CommandLine& line,
                                const CommandContext& context) {
  Terminal& terminal = context.terminal;
  if (!line.save_file.empty()) RETURN_IF_ERROR(CheckStateFile(line.save_file));
  v1::GenerateRequest request = line.request;
  if (line.messages_file.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_text(), GetText(line, context));
    if (line.echo) terminal.Print(request.text());
  } else {
    ASSIGN_OR_RETURN(*request.mutable_messages(), GetMessages(line, context));
  }
  if (!line.load_file.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_snapshot(),
                     ReadStateFile(line.load_file));
  }
  if (!line.save_file.empty()) request.mutable_output()->mutable_snapshot();
  const TurnResult result =
      RunTurn(context.client, request, {.timeout_ms = line.retry_timeout_ms},
              line.json ? TurnFormat::kJson : TurnFormat::kText, terminal,
              &context.interrupts);
  // Of a turn that was refused there is nothing to sum up.
  const bool began = result.started.has_value() || result.status.ok();
  if (line.verbose || (terminal.interactive() && !line.json)) {
    if (began) terminal.Note(SummariseTurn(result));
  } else if (!line.json && result.status.ok() && IsNewSession(result)) {
    const std::string& id = result.started->session_id();
    terminal.Note(IsKept(line, result)
                      ? "reprise: session " + id + " is new"
                      : "reprise: nothing was kept of session " + id);
  }
  const absl::Status saved = SaveState(line, result, context);
  RETURN_IF_ERROR(result.status);
  RETURN_IF_ERROR(saved);
  return result.interrupted ? kInterruptedExitCode : 0;
}

}  // namespace reprise
