#include "client/session_commands.h"

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "client/number_option.h"

namespace reprise {
namespace {

constexpr char kSessionsFooter[] =
    "A session is in a slot of the server (resident), as bytes in its memory,\n"
    "or only in its store (suspended). The next turn brings it back by "
    "itself.\n"
    "Of several sessions, one that fails is reported and the others are done;\n"
    "the exit status is 1 then.\n"
    "\n"
    "Examples:\n"
    "  reprise sessions list\n"
    "  reprise sessions suspend genesis\n"
    "  reprise sessions fork genesis genesis-2\n"
    "  reprise sessions show genesis\n"
    "  reprise sessions rewind genesis 1\n"
    "  reprise sessions export genesis --encoding=f32+zstd\n"
    "  reprise sessions import genesis.rpse --id=genesis-2\n"
    "  reprise sessions delete genesis genesis-2";

constexpr char kPresetsFooter[] =
    "A preset never changes. `complete --preset` goes on from it and keeps\n"
    "nothing, `chat --preset` makes a session that begins with it. `delete` "
    "of\n"
    "several goes on after one that fails; the exit status is 1 then.\n"
    "\n"
    "Examples:\n"
    "  reprise presets save helper genesis\n"
    "  reprise complete 'And God said' --preset=helper\n"
    "  reprise chat --preset=helper";

void AddIds(CLI::App& app, CommandLine& line) {
  app.add_option("ID", line.ids, "Sessions")->type_name("")->required();
}

// A name behind the command, of a session or a preset.
CLI::Option* AddName(CLI::App& app, const std::string& name,
                     const std::string& help,
                     std::function<void(const std::string&)> set) {
  return app.add_option_function<std::string>(name, std::move(set), help)
      ->type_name("");
}

void AddRewind(CLI::App& sessions, CommandLine& line) {
  CLI::App& app = AddCommand(sessions, "rewind",
                             "Goes back to an earlier revision of a session",
                             Command::kSessionsRewind, line);
  AddName(app, "ID", "The session", [&line](const std::string& id) {
    line.rewind.set_id(id);
  })->required();
  AddNumber<uint64_t>(app, "Options", "REVISION",
                      "One that `reprise sessions show ID` lists, or 0",
                      [&line](uint64_t n) { line.rewind.set_revision(n); })
      ->required();
  AddNumber<uint64_t>(
      app, "Options", "--expected-revision",
      "Refuses if the session is at another revision",
      [&line](uint64_t n) { line.rewind.set_expected_revision(n); });
  app.footer(
      "The state is that of the revision, bit for bit, and a new revision is\n"
      "made of it: a number never means two states, and one can go forward\n"
      "again the same way.");
}

constexpr char kExportFooter[] =
    "The file is sealed: a server opens it if it has the same keys (option\n"
    "--seal-keys of reprise-server), serves the same model, and the file is "
    "as\n"
    "it was. f32 keeps every bit; bf16 has half the bytes and is rounded.";

struct Encoding {
  std::string_view name;
  v1::StateElements elements;
  bool zstd;
};
constexpr Encoding kEncodings[] = {
    {"f32", v1::STATE_ELEMENTS_F32, false},
    {"bf16", v1::STATE_ELEMENTS_BF16, false},
    {"f32+zstd", v1::STATE_ELEMENTS_F32, true},
    {"bf16+zstd", v1::STATE_ELEMENTS_BF16, true},
};

// Null if there is none of that name.
const Encoding* FindEncoding(std::string_view name) {
  for (const Encoding& encoding : kEncodings) {
    if (encoding.name == name) return &encoding;
  }
  return nullptr;
}

// "f32, bf16, f32+zstd or bf16+zstd".
std::string EncodingNames() {
  std::string names;
  for (const Encoding& encoding : kEncodings) {
    if (&encoding != std::begin(kEncodings)) {
      names += &encoding + 1 == std::end(kEncodings) ? " or " : ", ";
    }
    names += encoding.name;
  }
  return names;
}

std::string CheckEncoding(std::string& text) {
  if (FindEncoding(text) != nullptr) return "";
  return "'" + text + "' is not " + EncodingNames();
}

// `seal` is called if the option is given.
void AddEncoding(CLI::App& app, const std::string& group,
                 std::function<v1::SealOptions*()> seal) {
  app.add_option_function<std::string>(
         "--encoding",
         [seal = std::move(seal)](const std::string& text) {
           const Encoding& encoding = *FindEncoding(text);  // it was checked
           v1::SealOptions& options = *seal();
           options.set_elements(encoding.elements);
           options.set_zstd(encoding.zstd);
         },
         EncodingNames() + " [f32]")
      ->type_name("NAME")
      ->group(group)
      ->check(CLI::Validator(CheckEncoding, ""));
}

void AddExport(CLI::App& sessions, CommandLine& line) {
  CLI::App& app = AddCommand(sessions, "export", "Writes a session to a file",
                             Command::kSessionsExport, line);
  AddName(app, "ID", "The session, which stays",
          [&line](const std::string& id) { line.export_session.set_id(id); })
      ->required();
  app.add_option("--out", line.state_file, "The file, - is stdout [ID.rpse]")
      ->type_name("FILE");
  AddEncoding(app, "Options",
              [&line] { return line.export_session.mutable_seal(); });
  AddNumber<uint64_t>(app, "Options", "--ttl-ms",
                      "The file opens for so long [no end]",
                      [&line](uint64_t n) {
                        line.export_session.mutable_seal()->set_ttl_ms(n);
                      });
  AddNumber<uint64_t>(
      app, "Options", "--expected-revision",
      "Refuses if the session is at another revision",
      [&line](uint64_t n) { line.export_session.set_expected_revision(n); });
  app.footer(kExportFooter);
}

void AddImport(CLI::App& sessions, CommandLine& line) {
  CLI::App& app = AddCommand(sessions, "import", "Makes a session of a file",
                             Command::kSessionsImport, line);
  app.add_option("FILE", line.state_file,
                 "What `export` or `--save` wrote, - is stdin")
      ->type_name("")
      ->required();
  app.add_option_function<std::string>(
         "--id",
         [&line](const std::string& id) {
           line.import_session.set_session_id(id);
         },
         "Its name [that of the session it was made of]")
      ->type_name("ID");
  AddNumber<uint64_t>(
      app, "Options", "--ttl-ms",
      "It is deleted when it was not used for so long [never]",
      [&line](uint64_t n) { line.import_session.set_ttl_ms(n); });
}

}  // namespace

void AddStateOptions(CLI::App& app, CommandLine& line) {
  const CLI::Validator names_file(
      [](std::string& text) -> std::string {
        return text == "-" ? "stdin and stdout are for the text; name a file"
                           : "";
      },
      "");
  app.add_option("--load", line.load_file,
                 "Goes on from the state in this file; the server keeps "
                 "nothing")
      ->type_name("FILE")
      ->check(names_file)
      ->excludes("--session")
      ->excludes("--preset");
  app.add_option("--save", line.save_file, "Writes the state after it there")
      ->type_name("FILE")
      ->check(names_file);
  AddEncoding(app, "Output", [&line] {
    return line.request.mutable_output()->mutable_snapshot();
  });
}

CLI::App& AddCommand(CLI::App& parent, const std::string& name,
                     const std::string& description, Command command,
                     CommandLine& line) {
  CLI::App* app = parent.add_subcommand(name, description);
  app->callback([&line, command] { line.command = command; });
  return *app;
}

void AddSessions(CLI::App& root, CommandLine& line) {
  CLI::App* app = root.add_subcommand("sessions", "Looks after sessions");
  app->require_subcommand(1);
  app->footer(kSessionsFooter);
  CLI::App& list = AddCommand(*app, "list", "Lists all sessions",
                              Command::kSessionsList, line);
  AddNumber<uint32_t>(list, "Options", "--page-size",
                      "Sessions in a table or line, 1..1000 [100]",
                      [&line](uint32_t n) { line.page_size = n; },
                      {.min = 1, .max = 1000});
  AddIds(
      AddCommand(*app, "show", "Shows sessions", Command::kSessionsShow, line),
      line);
  AddIds(AddCommand(*app, "suspend", "Puts sessions away in the store",
                    Command::kSessionsSuspend, line),
         line);
  AddIds(AddCommand(*app, "resume", "Brings sessions back to a slot now",
                    Command::kSessionsResume, line),
         line);
  CLI::App& fork =
      AddCommand(*app, "fork", "Makes a second session that goes on from here",
                 Command::kSessionsFork, line);
  AddName(fork, "ID", "The session", [&line](const std::string& id) {
    line.fork.set_id(id);
  })->required();
  AddName(fork, "NEW_ID", "The name of the new one [drawn]",
          [&line](const std::string& id) { line.fork.set_new_id(id); });
  AddRewind(*app, line);
  AddExport(*app, line);
  AddImport(*app, line);
  AddIds(AddCommand(*app, "delete", "Deletes sessions for good",
                    Command::kSessionsDelete, line),
         line);
}

void AddPresets(CLI::App& root, CommandLine& line) {
  CLI::App* app = root.add_subcommand(
      "presets", "Looks after presets, named states to start from");
  app->require_subcommand(1);
  app->footer(kPresetsFooter);
  AddCommand(*app, "list", "Lists all presets", Command::kPresetsList, line);
  CLI::App& save = AddCommand(*app, "save", "Makes a preset of a session",
                              Command::kPresetsSave, line);
  AddName(save, "NAME", "The preset", [&line](const std::string& name) {
    line.save_preset.set_name(name);
  })->required();
  AddName(
      save, "ID", "The session, which stays",
      [&line](const std::string& id) { line.save_preset.set_session_id(id); })
      ->required();
  AddCommand(*app, "delete", "Deletes presets for good",
             Command::kPresetsDelete, line)
      .add_option("NAME", line.ids, "Presets")
      ->type_name("")
      ->required();
}

}  // namespace reprise
