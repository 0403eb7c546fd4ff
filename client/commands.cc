#include "client/commands.h"

#include <string>
#include <utility>
#include <vector>

#include "client/field_flags.h"
#include "client/format.h"
#include "client/input.h"
#include "client/messages.h"
#include "client/turn.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

std::string StateOfASession(const v1::Model& model) {
  std::string text = FormatBytes(model.state_bytes());
  if (model.state_bytes_per_token() > 0) {
    text += ", and " + FormatBytes(model.state_bytes_per_token()) + " a token";
  }
  return text;
}

}  // namespace

absl::Status RunTokenize(const CommandLine& line,
                         const CommandContext& context) {
  v1::TokenizeRequest request;
  if (line.messages_file.empty()) {
    ASSIGN_OR_RETURN(*request.mutable_text(), GetText(line, context));
  } else {
    ASSIGN_OR_RETURN(*request.mutable_messages(), GetMessages(line, context));
  }
  request.set_allow_special_tokens(line.special_tokens);
  ASSIGN_OR_RETURN(const v1::TokenizeResponse response,
                   context.client.Tokenize(request));
  if (line.json) return PrintJson(response, context.terminal);
  Table table({{"ID", Align::kRight}, {"TOKEN", Align::kLeft}});
  for (int i = 0; i < response.ids_size(); ++i) {
    table.AddRow(
        {std::to_string(response.ids(i)),
         i < response.pieces_size() ? QuoteBytes(response.pieces(i)) : ""});
  }
  context.terminal.Print(table.ToString());
  context.terminal.Note(FormatTokens(response.ids_size()));
  return absl::OkStatus();
}

absl::Status RunModel(const CommandLine& line, const CommandContext& context) {
  ASSIGN_OR_RETURN(const v1::Model model, context.client.GetModel());
  if (line.json) return PrintJson(model, context.terminal);
  const v1::ServerLimits& limits = model.limits();
  context.terminal.Print(FormatProperties({
      {"model", model.name()},
      {"family", model.family()},
      {"description", model.description()},
      {"parameters", FormatCount(model.num_parameters())},
      {"layers", std::to_string(model.num_layers())},
      {"width", std::to_string(model.d_model())},
      {"vocabulary", FormatCount(model.vocab_size())},
      {"tokenizer", model.tokenizer()},
      {"chat template", model.chat_template().empty()
                            ? "no: " + model.chat_template_problem()
                            : model.chat_template()},
      {"weights",
       model.weight_type() + ", " + FormatBytes(model.weight_bytes())},
      {"state of a session", StateOfASession(model)},
      {"longest session", model.has_max_context()
                              ? FormatTokens(model.max_context())
                              : "any length"},
      {"fingerprint", model.fingerprint()},
      {"instruction set", model.cpu_isa()},
      {"longest prompt", FormatTokens(limits.max_prompt_tokens())},
      {"longest answer", FormatTokens(limits.max_new_tokens())},
      {"requests at once",
       FormatCount(limits.max_running_requests()) + ", and " +
           FormatCount(limits.max_queued_requests()) + " waiting"},
      {"resident sessions", FormatCount(limits.resident_sessions())},
      {"server version", model.server_version()},
  }));
  return absl::OkStatus();
}

absl::StatusOr<std::string> GetText(const CommandLine& line,
                                    const CommandContext& context) {
  std::string text = line.text;
  if (text == "-") {
    ASSIGN_OR_RETURN(text, ReadAll(context.in_fd));
  }
  RETURN_IF_ERROR(CheckUtf8(text));
  return text;
}

absl::StatusOr<v1::Messages> GetMessages(const CommandLine& line,
                                         const CommandContext& context) {
  const bool from_stdin = line.messages_file == "-";
  const std::string source = from_stdin ? "stdin" : line.messages_file;
  ASSIGN_OR_RETURN(const std::string json,
                   from_stdin ? ReadAll(context.in_fd) : ReadTextFile(source));
  return ParseMessages(json, source);
}

absl::Status RunForEach(
    const CommandLine& line, const CommandContext& context,
    absl::FunctionRef<absl::Status(const std::string& id)> run) {
  absl::Status failed;
  for (const std::string& id : line.ids) {
    const absl::Status status = run(id);
    if (status.ok() && context.terminal.status().ok()) continue;
    if (!failed.ok()) ReportError(failed, line, context.terminal);
    failed = status;
    if (absl::IsUnavailable(status) || !context.terminal.status().ok()) break;
  }
  return failed;
}

absl::Status PrintJson(const google::protobuf::Message& message,
                       Terminal& terminal) {
  ASSIGN_OR_RETURN(const std::string json, ToJsonLine(message));
  terminal.Print(json);
  return absl::OkStatus();
}

int ReportError(const absl::Status& status, const CommandLine& line,
                Terminal& terminal) {
  const std::string message(FromAbsl(status.message()));
  const absl::Status shown =
      line.json ? status
                : absl::Status(status.code(), NameFlag(line.command, message));
  terminal.Error(FormatError(shown, line.json));
  return kErrorExitCode;
}

namespace {

absl::StatusOr<int> Dispatch(const CommandLine& line,
                             const CommandContext& context) {
  switch (line.command) {
    case Command::kComplete:
      return RunComplete(line, context);
    case Command::kChat:
      return RunChat(line, context);
    case Command::kBench:
      return RunBenchCommand(line, context);
    case Command::kScore:
      return RunScore(line, context);
    case Command::kSessionsExport:
    case Command::kSessionsImport:
      RETURN_IF_ERROR(RunStates(line, context));
      return 0;
    case Command::kPresetsList:
    case Command::kPresetsSave:
    case Command::kPresetsDelete:
      RETURN_IF_ERROR(RunPresets(line, context));
      return 0;
    case Command::kTokenize:
      RETURN_IF_ERROR(RunTokenize(line, context));
      return 0;
    case Command::kModel:
      RETURN_IF_ERROR(RunModel(line, context));
      return 0;
    default:
      RETURN_IF_ERROR(RunSessions(line, context));
      return 0;
  }
}

}  // namespace

int RunCommand(const CommandLine& line, const CommandContext& context) {
  const absl::StatusOr<int> exit_code = Dispatch(line, context);
  if (!exit_code.ok()) {
    return ReportError(exit_code.status(), line, context.terminal);
  }
  const absl::Status written = context.terminal.status();
  if (!written.ok()) return ReportError(written, line, context.terminal);
  return *exit_code;
}

}  // namespace reprise
