#include <array>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/commands.h"
#include "client/format.h"
#include "client/input.h"
#include "client/number_option.h"
#include "client/state_file.h"
#include "client/turn.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr uint32_t kDefaultMaxTokens = 200;  // the help of --max-tokens says so

constexpr char kHelp[] =
    "/session      what the server says of this session\n"
    "/suspend      puts the session away in the store; the next line resumes "
    "it\n"
    "/fork [NAME]  goes on in a copy of this session\n"
    "/rewind [N]   goes back to revision N, or takes the last turn back\n"
    "/save FILE    writes the session to a file\n"
    "/load FILE    goes on in a new session made of a file\n"
    "/quit         leaves, as Ctrl-D does; the session stays on the server\n"
    "/help         this list\n"
    "A line that begins with // is sent with one / less.";

std::string DrawChatId() {
  std::random_device random;
  std::array<char, 32> id;
  std::snprintf(id.data(), id.size(), "chat-%08x", random());
  return id.data();
}

// Stdin and stdout are for the conversation.
absl::Status CheckNamesFile(const std::string& command,
                            const std::string& file) {
  if (!file.empty() && file != "-") return absl::OkStatus();
  return absl::InvalidArgumentError(command + " needs a FILE");
}

// A conversation until the input ends.
class Chat {
 public:
  Chat(const CommandLine& line, const CommandContext& context)
      : line_(line), context_(context), request_(line.request) {
    if (!request_.has_session_id()) {
      drawn_ = DrawChatId();
      request_.set_session_id(drawn_);
    }
    request_.set_create_session(true);
    if (!request_.stopping().has_max_new_tokens()) {
      request_.mutable_stopping()->set_max_new_tokens(kDefaultMaxTokens);
    }
  }

  absl::StatusOr<int> Run() {
    RETURN_IF_ERROR(FindTemplate());
    if (!line_.preset.empty()) {
      v1::CreateSessionRequest create;
      create.set_id(session());
      create.set_preset(line_.preset);
      RETURN_IF_ERROR(context_.client.CreateSession(create).status());
      made_ = true;
    }
    Greet();
    const absl::StatusOr<int> exit_code = Converse();
    SayGoodbye();
    return exit_code;
  }

 private:
  absl::StatusOr<int> Converse() {
    LineReader reader(context_.in_fd, context_.interrupts.prompt_fd());
    while (!leaving_) {
      ASSIGN_OR_RETURN(const InputLine input, Read(reader));
      if (input.kind == InputLine::Kind::kEnd) break;
      if (input.kind == InputLine::Kind::kInterrupted) {
        context_.terminal.Note("\nCtrl-D or /quit leaves");
        continue;
      }
      const absl::Status status = Obey(input.text);
      if (context_.terminal.out_closed()) break;
      RETURN_IF_ERROR(context_.terminal.status());
      if (interrupted_) return kInterruptedExitCode;
      // At a terminal one bad turn is no reason to leave: a server that is gone
      // may come back, and the session with it.
      if (!context_.in_is_terminal) {
        RETURN_IF_ERROR(status);
      } else if (!status.ok()) {
        ReportError(status, line_, context_.terminal);
      }
    }
    return 0;
  }

  bool talkative() const { return context_.in_is_terminal && !line_.json; }
  const std::string& session() const { return request_.session_id(); }

  void Greet() {
    if (!talkative()) return;
    context_.terminal.Note("session " + session() +
                           "; /help lists the commands, Ctrl-D leaves");
    if (has_template_) return;
    context_.terminal.Note(
        "the model has no chat template to use: it continues the text");
  }

  // In a pipe of a session that is there and whose name is not known.
  void SayGoodbye() {
    const bool unknown = made_ && session() == drawn_ && !line_.json;
    if (!talkative() && !unknown) return;
    // After the ^D.
    if (talkative() && !leaving_) context_.terminal.Note("");
    context_.terminal.Note("go on later with: reprise chat --session=" +
                           session());
  }

  absl::StatusOr<InputLine> Read(LineReader& reader) {
    if (!context_.in_is_terminal) return reader.Next();
    context_.interrupts.WatchPrompt(true);
    context_.terminal.Prompt("> ");
    absl::StatusOr<InputLine> input = reader.Next();
    context_.interrupts.WatchPrompt(false);
    context_.interrupts.ClearPrompt();
    return input;
  }

  absl::Status Obey(const std::string& input) {
    if (input.starts_with("//")) return Say(input.substr(1));
    if (!input.starts_with("/")) return Say(input);
    const size_t space = input.find(' ');
    const std::string command = input.substr(0, space);
    const std::string argument =
        space == std::string::npos ? "" : input.substr(space + 1);
    if (command == "/quit" || command == "/exit") {
      leaving_ = true;
      return absl::OkStatus();
    }
    if (command == "/help") {
      context_.terminal.Note(kHelp);
      return absl::OkStatus();
    }
    if (command == "/session") return RunOnSession(Command::kSessionsShow);
    if (command == "/suspend") return RunOnSession(Command::kSessionsSuspend);
    if (command == "/fork") return Fork(argument);
    if (command == "/rewind") return Rewind(argument);
    if (command == "/save") return Save(argument);
    if (command == "/load") return Load(argument);
    return absl::InvalidArgumentError("no such command: " + command +
                                      "; /help lists them");
  }

  // The same as `reprise sessions ...` for this session.
  absl::Status RunOnSession(Command command) {
    CommandLine line;
    line.command = command;
    line.json = line_.json;
    line.ids = {session()};
    return RunSessions(line, context_);
  }

  absl::Status Fork(const std::string& name) {
    RETURN_IF_ERROR(CheckUtf8(name, "the name"));
    v1::ForkSessionRequest request;
    request.set_id(session());
    if (!name.empty()) request.set_new_id(name);
    const int64_t start_ns = Clock::Real().MonotonicNs();
    ASSIGN_OR_RETURN(const v1::Session fork,
                     context_.client.ForkSession(request));
    context_.terminal.Note("this is session " + fork.id() + " now, a fork of " +
                           session() + ", after " + Since(start_ns) + ": " +
                           DescribeSession(fork));
    request_.set_session_id(fork.id());
    before_turns_.clear();  // a fork has no earlier revisions
    return absl::OkStatus();
  }

  absl::Status Save(const std::string& file) {
    RETURN_IF_ERROR(CheckNamesFile("/save", file));
    CommandLine line;
    line.command = Command::kSessionsExport;
    line.json = line_.json;
    line.export_session.set_id(session());
    line.state_file = file;
    return RunStates(line, context_);
  }

  // A name of its own: the session that was saved may be there still.
  absl::Status Load(const std::string& file) {
    RETURN_IF_ERROR(CheckNamesFile("/load", file));
    const int64_t start_ns = Clock::Real().MonotonicNs();
    v1::SnapshotChunk target;
    target.set_session_id(DrawChatId());
    ASSIGN_OR_RETURN(const std::string bytes, ReadStateFile(file));
    ASSIGN_OR_RETURN(const v1::Session loaded,
                     context_.client.ImportSession(bytes, target));
    context_.terminal.Note("this is session " + loaded.id() + " now, from " +
                           file + ", after " + Since(start_ns) + ": " +
                           DescribeSession(loaded));
    request_.set_session_id(loaded.id());
    before_turns_.clear();
    begun_ = false;  // not known
    return absl::OkStatus();
  }

  absl::Status Rewind(const std::string& argument) {
    CommandLine line;
    line.command = Command::kSessionsRewind;
    line.json = line_.json;
    line.rewind.set_id(session());
    if (!argument.empty()) {
      uint64_t revision = 0;
      if (!ParseNumber(argument, revision)) {
        return absl::InvalidArgumentError(
            "/rewind: '" + argument +
            "' is not a revision; /session lists those that are kept");
      }
      line.rewind.set_revision(revision);
    } else if (!before_turns_.empty()) {
      line.rewind.set_revision(before_turns_.back());
    } else {
      return absl::FailedPreconditionError(
          "/rewind: there is no turn of this chat to take back; /session lists "
          "the revisions that are kept");
    }
    RETURN_IF_ERROR(RunSessions(line, context_));
    begun_ = false;  // not known any more
    if (argument.empty()) {
      before_turns_.pop_back();
    } else {
      before_turns_.clear();  // what they led to is not where it stands
    }
    return absl::OkStatus();
  }

  // Whether what is said are messages.
  absl::Status FindTemplate() {
    ASSIGN_OR_RETURN(const v1::Model model, context_.client.GetModel());
    has_template_ = !model.chat_template().empty();
    if (line_.system.empty()) return absl::OkStatus();
    if (!has_template_) {
      return absl::FailedPreconditionError("--system needs a chat template: " +
                                           model.chat_template_problem());
    }
    ASSIGN_OR_RETURN(const bool begun, HasBegun());
    if (!begun) return absl::OkStatus();
    return absl::InvalidArgumentError(
        "--system: session " + session() +
        " has begun already, and that is where a system message stands");
  }

  absl::StatusOr<bool> HasBegun() {
    const absl::StatusOr<v1::Session> now =
        context_.client.GetSession(session());
    if (absl::IsNotFound(now.status())) return false;
    RETURN_IF_ERROR(now.status());
    return now->tokens() > 0;
  }

  // A model without a chat template continues a text, so the line is sent as
  // one. The system message goes with the first turn that is kept.
  absl::Status SetInput(const std::string& text) {
    if (!has_template_) {
      request_.set_text(text + "\n");
      return absl::OkStatus();
    }
    v1::Messages& messages = *request_.mutable_messages();
    messages.Clear();
    const auto add = [&messages](const char* role, const std::string& content) {
      v1::Message& message = *messages.add_messages();
      message.set_role(role);
      message.set_content(content);
    };
    if (!line_.system.empty() && !begun_) {
      ASSIGN_OR_RETURN(begun_, HasBegun());
      if (!begun_) add("system", line_.system);
    }
    add("user", text);
    return absl::OkStatus();
  }

  absl::Status Say(const std::string& text) {
    RETURN_IF_ERROR(CheckUtf8(text));
    RETURN_IF_ERROR(SetInput(text));
    TurnResult result = RunTurn(
        context_.client, request_, {.timeout_ms = line_.retry_timeout_ms},
        line_.json ? TurnFormat::kJson : TurnFormat::kText, context_.terminal,
        &context_.interrupts);
    if (!line_.json) context_.terminal.EndLine();
    const bool began = result.started.has_value() || result.status.ok();
    const bool interactive = context_.terminal.interactive() && !line_.json;
    if (began && (line_.verbose || interactive)) {
      context_.terminal.Note(SummariseTurn(result));
    }
    NoteTurn(result);
    if (result.interrupted) {
      interrupted_ = !context_.in_is_terminal;
      const bool over = interrupted_ || result.left_at.has_value();
      return over ? absl::OkStatus() : WaitForTurnEnd();
    }
    return result.status;
  }

  // Going back to before an interrupted turn of which nothing was kept does no
  // harm.
  void NoteTurn(const TurnResult& result) {
    if (!result.started.has_value()) return;
    const bool committed =
        !result.finished.empty() && result.finished.front().has_revision();
    if (committed || result.interrupted) {
      if (result.left_at != 0) made_ = true;
      before_turns_.push_back(result.started->revision());
    }
  }

  // After an interrupted turn the server commits what was streamed, and would
  // refuse the next turn while it does.
  absl::Status WaitForTurnEnd() {
    constexpr int kTries = 100;
    constexpr auto kPause = std::chrono::milliseconds(50);
    for (int i = 0; i < kTries; ++i) {
      const absl::StatusOr<v1::Session> now =
          context_.client.GetSession(session());
      // Not found: it was the first turn and nothing was streamed.
      if (absl::IsNotFound(now.status())) return absl::OkStatus();
      RETURN_IF_ERROR(now.status());
      if (now->place() != v1::SESSION_PLACE_ACTIVE) return absl::OkStatus();
      std::this_thread::sleep_for(kPause);
    }
    return absl::AbortedError("the interrupted turn of session " + session() +
                              " is still running");
  }

  const CommandLine& line_;
  const CommandContext& context_;
  v1::GenerateRequest request_;  // of the next turn, all but the input
  bool has_template_ = false;    // of the model
  bool begun_ = false;           // the session has something, as far as known
  // The session's revision before each turn that can be taken back.
  std::vector<uint64_t> before_turns_;
  std::string drawn_;         // the name of the first session, if it had none
  bool made_ = false;         // and it is on the server, as far as known
  bool leaving_ = false;      // by /quit
  bool interrupted_ = false;  // with nobody at a prompt to go on
};

}  // namespace

absl::StatusOr<int> RunChat(const CommandLine& line,
                            const CommandContext& context) {
  return Chat(line, context).Run();
}

}  // namespace reprise
