#include "client/command_line.h"

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/client_addresses.h"
#include "client/format.h"
#include "client/generate_options.h"
#include "client/input.h"
#include "client/number_option.h"
#include "client/session_commands.h"
#include "engine/base/arguments.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr char kDescription[] =
    "Streams completions from a Reprise server and looks after sessions,\n"
    "conversations that the server keeps as a small state.";

constexpr char kFooter[] =
    "--server, --json and --verbose may stand before or after the command.\n"
    "Exit status: 0 done, 1 an error of the server (which checks most values "
    "of\n"
    "options), the connection or the output, 2 wrong arguments, 130 "
    "interrupted\n"
    "with Ctrl-C.\n"
    "\n"
    "Examples:\n"
    "  reprise complete 'In the beginning' --max-tokens=50\n"
    "  reprise complete 'In the beginning' --session=genesis\n"
    "  reprise complete ' And God said' --session=genesis\n"
    "  reprise sessions list\n"
    "  reprise chat --session=genesis\n"
    "\n"
    "`reprise COMMAND --help` tells more. No server yet? Start one with\n"
    "`reprise-server`.";

constexpr char kCompleteFooter[] =
    "The text goes to stdout as it comes, exactly as the model wrote it (on a\n"
    "terminal without control characters); all else goes to stderr. Defaults\n"
    "stand in brackets.\n"
    "\n"
    "With --session the server keeps the conversation: the session is made if\n"
    "there is none of that name, and the next completion goes on from there.\n"
    "Ctrl-C stops; the server keeps what it had sent, some tokens more than "
    "was\n"
    "shown, maybe.\n"
    "\n"
    "With --json each message of the stream is one line of protobuf JSON:\n"
    "first {\"started\":...}, then {\"delta\":{\"text\":...}} many times, "
    "last\n"
    "{\"finished\":...}. Fields that are 0, false or empty are left out, but "
    "for\n"
    "optional ones that are set (\"revision\", \"seed\"); 64-bit numbers are\n"
    "strings. An error is one line on stderr,\n"
    "{\"error\":{\"code\":...,\"message\":...}}.\n"
    "\n"
    "Examples:\n"
    "  reprise complete 'In the beginning'\n"
    "  reprise complete 'In the beginning' --temperature=0 --max-tokens=100\n"
    "  reprise complete 'Thou shalt' --stop='.' --include-stop --seed=7\n"
    "  reprise complete - --session=book < chapter1.txt\n"
    "  reprise complete --messages=conversation.json --max-tokens=200\n"
    "  reprise complete 'Amen' --load=talk.rpse --save=talk.rpse\n"
    "  reprise complete 'Amen' --json | jq -j '.delta.text // empty'";

constexpr char kChatFooter[] =
    "Each line that you type is a user's message, by the model's chat "
    "template;\n"
    "to a model that has none it is sent as it is, with a newline. The answer\n"
    "streams back and both are kept in the session. Ctrl-C stops an answer; "
    "the\n"
    "server keeps what it had sent, some tokens more than was shown, maybe.\n"
    "Ctrl-D leaves; /help lists the commands. With stdin from a pipe, every "
    "line\n"
    "of it is a turn.\n"
    "\n"
    "Examples:\n"
    "  reprise chat\n"
    "  reprise chat --system='You are terse.'\n"
    "  reprise chat --session=genesis --temperature=0.7 --stop=$'\\n'\n"
    "  printf 'And God said,\\nAnd it was\\n' | reprise chat --max-tokens=20";

constexpr char kTokenizeFooter[] =
    "Of --messages it shows the prompt that the model's chat template makes.\n"
    "\n"
    "Examples:\n"
    "  reprise tokenize 'In the beginning'\n"
    "  reprise tokenize --messages=conversation.json\n"
    "  reprise tokenize - --json < chapter1.txt | jq '.ids | length'";

constexpr char kScoreFooter[] =
    "Shows how well the model foretells the text: perplexity, nats for each\n"
    "token, bits for each byte (which compare models with other tokens, too).\n"
    "The first token has nothing before it and is not scored.\n"
    "\n"
    "With --json each message of the stream is one line of protobuf JSON: the\n"
    "log-probabilities of the next tokens in \"tokens\", and in \"totals\" "
    "what\n"
    "is known so far; the last line has them all.\n"
    "\n"
    "Examples:\n"
    "  reprise score 'In the beginning God created the heaven and the earth.'\n"
    "  reprise score --file=chapter1.txt\n"
    "  reprise score - --json < chapter1.txt | jq .totals | tail -n 7";

constexpr char kInspectFooter[] =
    "Reads the config and the headers of the files, and no weights. The KV\n"
    "cache it compares with is that of a softmax model with as many layers,\n"
    "keys and values as wide as the model, and f32 numbers as in the state.\n"
    "\n"
    "Examples:\n"
    "  reprise inspect models/embedded\n"
    "  reprise inspect models/embedded --json | jq .state_bytes";

constexpr char kBenchFooter[] =
    "Keeps --streams completions of random tokens going, and says how fast "
    "their\n"
    "tokens come and how evenly. --prompts adds long prompts, one after the "
    "other,\n"
    "which the streams should not feel. CPU times are those of a token of the\n"
    "streams, with all that was done meanwhile.\n"
    "\n"
    "Examples:\n"
    "  reprise bench\n"
    "  reprise bench --streams=32 --prompts=1 --long-prompt-tokens=8192\n"
    "  reprise bench --server-pid=$(pgrep -n reprise-server) --json";

CLI::Option* AddText(CLI::App& app, const std::string& description,
                     CommandLine& line) {
  const auto set = [&line](const std::string& value) {
    line.text = value;
    line.has_text = true;
  };
  return app.add_option_function<std::string>("TEXT", set, description)
      ->type_name("");
}

void AddTextOrMessages(CLI::App& app, const std::string& description,
                       CommandLine& line) {
  CLI::Option* text = AddText(app, description, line);
  app.add_option("--messages", line.messages_file,
                 "Instead: a JSON array of {\"role\", \"content\"}; - reads "
                 "stdin")
      ->type_name("FILE")
      ->group("Input")
      ->excludes(text);
}

void AddComplete(CLI::App& root, CommandLine& line) {
  CLI::App& app = AddCommand(root, "complete", "Continues a text",
                             Command::kComplete, line);
  AddTextOrMessages(app, "The text to continue; - reads stdin", line);
  app.add_option_function<std::string>(
         "--session",
         [&line](const std::string& id) {
           line.request.set_session_id(id);
           line.request.set_create_session(true);
         },
         "Goes on with this session, or makes it")
      ->type_name("ID");
  app.add_option_function<std::string>(
         "--preset",
         [&line](const std::string& name) { line.request.set_preset(name); },
         "Goes on from this preset, and keeps nothing")
      ->type_name("NAME")
      ->excludes("--session");
  AddStateOptions(app, line);
  AddMaxTokensOption(app, /*default_text=*/"16", line.request);
  app.add_flag("--echo", line.echo, "Shows the text before its continuation")
      ->group("Output");
  AddGenerateOptions(app, line.request);
  AddCompleteOptions(app, line.request);
  app.footer(kCompleteFooter);
}

void AddChat(CLI::App& root, CommandLine& line) {
  CLI::App& app = AddCommand(root, "chat", "Talks with the model, turn by turn",
                             Command::kChat, line);
  app.add_option_function<std::string>(
         "--session",
         [&line](const std::string& id) { line.request.set_session_id(id); },
         "Goes on with this session, or makes it [new]")
      ->type_name("ID");
  app.add_option("--preset", line.preset,
                 "Makes the session, which begins with this preset")
      ->type_name("NAME");
  app.add_option("--system", line.system,
                 "The system message of a new session; needs a chat template")
      ->type_name("TEXT")
      ->group("Input");
  AddMaxTokensOption(app, /*default_text=*/"200", line.request);
  AddGenerateOptions(app, line.request);
  app.footer(kChatFooter);
}

void AddScore(CLI::App& root, CommandLine& line) {
  CLI::App& app =
      AddCommand(root, "score", "Shows how likely a text is to the model",
                 Command::kScore, line);
  CLI::Option* text = AddText(app, "The text; - reads stdin", line);
  app.add_option("--file", line.file, "Reads the text from a file; - is stdin")
      ->type_name("FILE")
      ->excludes(text);
  AddNumber<uint32_t>(app, "Options", "--logprobs",
                      "Alternatives for each token, 0..20; needs --json",
                      [&line](uint32_t n) { line.score.set_logprobs(n); });
  app.add_flag_callback(
      "--special-tokens",
      [&line] { line.score.set_allow_special_tokens(true); },
      "Names of special tokens in the text mean them");
  app.add_option_function<std::string>(
         "--request-id",
         [&line](const std::string& id) { line.score.set_request_id(id); },
         "Names the request in the server's log at level debug")
      ->type_name("ID");
  app.footer(kScoreFooter);
}

void AddTokenize(CLI::App& root, CommandLine& line) {
  CLI::App& app = AddCommand(root, "tokenize", "Shows the tokens of a text",
                             Command::kTokenize, line);
  AddTextOrMessages(app, "The text; - reads stdin", line);
  app.add_flag("--special-tokens", line.special_tokens,
               "Names of special tokens in the text mean them");
  app.footer(kTokenizeFooter);
}

void AddInspect(CLI::App& root, CommandLine& line) {
  CLI::App& app = AddCommand(
      root, "inspect", "Shows what a checkpoint is made of; needs no server",
      Command::kInspect, line);
  app.add_option("DIR", line.model_dir,
                 "The model's folder: config.json and safetensors files")
      ->type_name("")
      ->required();
  app.footer(kInspectFooter);
}

void AddBench(CLI::App& root, CommandLine& line) {
  CLI::App& app = AddCommand(root, "bench", "Measures a server under load",
                             Command::kBench, line);
  BenchOptions& bench = line.bench;
  const auto add = [&](const std::string& name, const std::string& description,
                       auto& value, auto min, auto max) {
    using T = std::remove_reference_t<decltype(value)>;
    AddNumber<T>(app, "Options", name, description,
                 [&value](T n) { value = n; },
                 {.min = static_cast<T>(min), .max = static_cast<T>(max)})
        ->default_str(std::to_string(value));
  };
  add("--streams", "Completions at any time", bench.streams, 1, 1024);
  add("--prompt-tokens", "Tokens of their prompts", bench.prompt_tokens, 1,
      1'000'000);
  add("--max-tokens",
      "Tokens of their answers, 0: as many as the server allows",
      bench.max_tokens, 0, 1'000'000'000);
  add("--prompts", "Long prompts at any time", bench.prompts, 0, 1024);
  add("--long-prompt-tokens", "Tokens of a long prompt",
      bench.long_prompt_tokens, 1, 1'000'000);
  add("--seconds", "How long it is measured", bench.seconds, 1, 3600);
  AddNumber<int64_t>(
      app, "Options", "--server-pid",
      "The server's process, if it runs here: its CPU time is told",
      [&line](int64_t n) { line.server_pid = n; }, {.min = 1, .max = 1 << 30});
  app.footer(kBenchFooter);
}

void AddGlobalOptions(CLI::App& app, CommandLine& line) {
  app.set_version_flag("--version", "reprise " REPRISE_VERSION);
  app.add_option("--server", line.server,
                 "Where the server listens; or several, with one store: "
                 "A:1,B:2")
      ->type_name("HOST:PORT")
      ->envname("REPRISE_SERVER")
      ->capture_default_str();
  AddNumber<int64_t>(app, "Options", "--connect-timeout-ms",
                     "How long to wait for a server that does not answer",
                     [&line](int64_t n) { line.connect_timeout_ms = n; },
                     {.min = 1, .max = 3'600'000})
      ->default_str(std::to_string(line.connect_timeout_ms));
  AddNumber<int64_t>(app, "Options", "--retry-timeout-ms",
                     "How long an answer is tried again whose server went "
                     "away, 0: not at all",
                     [&line](int64_t n) { line.retry_timeout_ms = n; },
                     {.min = 0, .max = 3'600'000})
      ->default_str(std::to_string(line.retry_timeout_ms));
  app.add_flag("--json", line.json, "JSON lines for machines");
  app.add_flag("-v,--verbose", line.verbose,
               "Figures of each completion on stderr, also in a pipe");
}

// What CLI11 cannot say about options that stand on different levels.
std::string FindConflict(const CommandLine& line) {
  const v1::OutputOptions& output = line.request.output();
  if (!line.json && (output.has_logprobs() || output.has_token_ids() ||
                     output.has_prompt_logprobs())) {
    return "--logprobs, --prompt-logprobs and --token-ids are only shown with "
           "--json";
  }
  const bool completes =
      line.command == Command::kComplete || line.command == Command::kTokenize;
  if (completes && !line.has_text && line.messages_file.empty()) {
    return "TEXT (- reads stdin) or --messages is required";
  }
  if (line.echo && !line.messages_file.empty()) {
    return "--echo shows a text, and --messages has none";
  }
  if (line.command == Command::kScore && !line.has_text && line.file.empty()) {
    return "TEXT (- reads stdin) or --file is required";
  }
  if (!line.json && line.score.has_logprobs()) {
    return "--logprobs is only shown with --json";
  }
  if (line.json && line.echo) return "--echo does not go with --json";
  if (!line.request.has_session_id() &&
      (line.request.has_expected_revision() || line.request.has_commit())) {
    return "--expected-revision and --no-commit need --session";
  }
  if (line.save_file.empty() && line.request.output().has_snapshot()) {
    return "--encoding is that of the state which --save writes";
  }
  if (!line.save_file.empty() && line.request.n() > 1) {
    return "--save writes one state, and --n makes several";
  }
  return "";
}

// What goes into a message; the text is checked when it is read.
absl::Status CheckTexts(const CommandLine& line) {
  // REPRISE_SERVER is no matter of a command that calls none.
  const auto addresses = ParseAddresses(line.server);
  if (line.command != Command::kInspect && !addresses.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server: ", addresses.status().message()));
  }
  RETURN_IF_ERROR(CheckUtf8(line.request.session_id(), "--session"));
  RETURN_IF_ERROR(CheckUtf8(line.request.request_id(), "--request-id"));
  RETURN_IF_ERROR(CheckUtf8(line.score.request_id(), "--request-id"));
  RETURN_IF_ERROR(CheckUtf8(line.system, "--system"));
  for (const std::string& stop : line.request.stopping().stop()) {
    RETURN_IF_ERROR(CheckUtf8(stop, "--stop"));
  }
  const char* const name =
      line.command == Command::kPresetsDelete ? "NAME" : "ID";
  for (const std::string& id : line.ids) RETURN_IF_ERROR(CheckUtf8(id, name));
  RETURN_IF_ERROR(CheckUtf8(line.fork.id(), "ID"));
  RETURN_IF_ERROR(CheckUtf8(line.rewind.id(), "ID"));
  RETURN_IF_ERROR(CheckUtf8(line.export_session.id(), "ID"));
  RETURN_IF_ERROR(CheckUtf8(line.import_session.session_id(), "--id"));
  RETURN_IF_ERROR(CheckUtf8(line.request.preset(), "--preset"));
  RETURN_IF_ERROR(CheckUtf8(line.preset, "--preset"));
  RETURN_IF_ERROR(CheckUtf8(line.save_preset.name(), "NAME"));
  RETURN_IF_ERROR(CheckUtf8(line.save_preset.session_id(), "ID"));
  return CheckUtf8(line.fork.new_id(), "NEW_ID");
}

// Whether an option of any command has that name and needs a value; no two
// commands disagree about it.
bool TakesValue(const CLI::App& app, const std::string& name) {
  const CLI::Option* option = app.get_option_no_throw(name);
  if (option != nullptr) return option->get_items_expected_max() > 0;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (TakesValue(*command, name)) return true;
  }
  return false;
}

// What CLI11 tells as "A subcommand is required", whatever stands there. Empty
// if there is a command.
std::string ExplainNoCommand(const CLI::App& app) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App& parent = given.empty() ? app : *given[0];
  std::string commands;
  if (!parent.get_subcommands().empty()) return "";
  for (const CLI::App* command : parent.get_subcommands({})) {
    commands += (commands.empty() ? "" : ", ") + command->get_name();
  }
  if (commands.empty()) return "";
  const std::string kind =
      given.empty() ? "command" : parent.get_name() + " command";
  const std::string list = "the commands are " + commands;
  // Those of `sessions` fall through to the root.
  for (const std::string& stray : app.remaining(/*recurse=*/true)) {
    if (stray == "--") continue;
    return stray.starts_with('-')
               ? "no such option: " + stray + "; nor is there a " + kind
               : "'" + stray + "' is no " + kind + "; " + list;
  }
  return "a " + kind + " is required; " + list;
}

ParsedCommandLine UsageError(const std::string& message, bool json) {
  ParsedCommandLine parsed;
  parsed.err =
      json
          ? FormatError(absl::InvalidArgumentError(message), json) + "\n"
          : "reprise: " + message + "\nRun with --help for more information.\n";
  parsed.exit_code = kUsageExitCode;
  return parsed;
}

}  // namespace

ParsedCommandLine ParseCommandLine(int argc, const char* const* argv) {
  ParsedCommandLine parsed;
  CommandLine line;
  CLI::App app(kDescription, "reprise");
  // Lets --server and --json stand after the command; inherited by it.
  app.fallthrough();
  app.require_subcommand(1);
  app.get_formatter()->column_width(28);
  app.footer(kFooter);
  AddGlobalOptions(app, line);
  AddComplete(app, line);
  AddChat(app, line);
  AddSessions(app, line);
  AddPresets(app, line);
  AddScore(app, line);
  AddTokenize(app, line);
  AddInspect(app, line);
  AddBench(app, line);
  AddCommand(app, "model", "Shows what the server serves", Command::kModel,
             line);
  if (argc <= 1) {
    parsed.err = app.help();
    parsed.exit_code = kUsageExitCode;
    return parsed;
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  const bool json = HasFlag(arguments, "--json");
  const std::string missing =
      FindMissingValue(arguments, [&app](std::string_view name) {
        return TakesValue(app, std::string(name));
      });
  if (!missing.empty()) return UsageError(missing, json);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    parsed.out = app.help();
    return parsed;
  } catch (const CLI::CallForVersion& version) {
    parsed.out = std::string(version.what()) + "\n";
    return parsed;
  } catch (const CLI::RequiredError& error) {
    const std::string no_command = ExplainNoCommand(app);
    return UsageError(no_command.empty() ? error.what() : no_command, json);
  } catch (const CLI::ParseError& error) {
    return UsageError(error.what(), json);
  }
  const std::string conflict = FindConflict(line);
  if (!conflict.empty()) return UsageError(conflict, json);
  const absl::Status texts = CheckTexts(line);
  if (!texts.ok()) {
    return UsageError(std::string(FromAbsl(texts.message())), json);
  }
  parsed.command = std::move(line);
  return parsed;
}

}  // namespace reprise
