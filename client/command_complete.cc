#include <string>
#include <utility>

#include "client/commands.h"
#include "client/turn.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

bool IsNewSession(const TurnResult& result) {
  return result.started && !result.started->session_id().empty() &&
         result.started->revision() == 0 &&
         result.started->resumed_from() == v1::RESUME_SOURCE_NONE;
}

}  // namespace

absl::StatusOr<int> RunComplete(const CommandLine& line,
                                const CommandContext& context) {
  Terminal& terminal = context.terminal;
  ASSIGN_OR_RETURN(std::string text, GetText(line, context));
  if (line.echo) terminal.Print(text);
  v1::GenerateRequest request = line.request;
  request.set_text(std::move(text));
  const TurnResult result =
      RunTurn(context.client, request,
              line.json ? TurnFormat::kJson : TurnFormat::kText, terminal,
              &context.interrupts);
  if (line.verbose || (terminal.interactive() && !line.json)) {
    terminal.Note(SummariseTurn(result));
  } else if (!line.json && IsNewSession(result)) {
    terminal.Note("reprise: session " + result.started->session_id() +
                  " is new");
  }
  RETURN_IF_ERROR(result.status);
  return result.interrupted ? kInterruptedExitCode : 0;
}

}  // namespace reprise
