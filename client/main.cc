// reprise: the command line of a Reprise server.
#include <signal.h>
#include <unistd.h>

#include <memory>

#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/command_line.h"
#include "client/commands.h"
#include "client/interrupts.h"
#include "client/terminal.h"
#include "engine/base/bytes.h"
#include "engine/base/standard_streams.h"

namespace reprise {
namespace {

// Tells a newcomer what to do about it.
absl::Status ExplainNoServer(const absl::Status& status,
                             const std::string& address) {
  const std::string problem(FromAbsl(status.message()));
  const bool nobody = problem.starts_with("no ");  // server, answer
  const std::string start = "Start one with `reprise-server --listen=" +
                            address.substr(0, address.find(',')) + "`, or name";
  return absl::Status(status.code(), problem + ". " +
                                         (nobody ? start : "Name") +
                                         " another with --server=HOST:PORT");
}

int Main(int argc, char** argv) {
  // A closed pipe is an error of write, not the end of the process: the call
  // should be cancelled in order.
  signal(SIGPIPE, SIG_IGN);
  Terminal terminal(StandardTerminal());
  ParsedCommandLine parsed = ParseCommandLine(argc, argv);
  if (!parsed.command) {
    terminal.Print(parsed.out);
    if (!parsed.err.empty()) terminal.Prompt(parsed.err);
    return terminal.status().ok()
               ? parsed.exit_code
               : ReportError(terminal.status(), CommandLine(), terminal);
  }
  const CommandLine& line = *parsed.command;
  if (line.command == Command::kInspect) return RunInspect(line, terminal);
  Interrupts interrupts;
  const absl::StatusOr<std::unique_ptr<Client>> client = Client::Connect(
      {.address = line.server, .connect_timeout_ms = line.connect_timeout_ms});
  if (!client.ok()) {
    return ReportError(ExplainNoServer(client.status(), line.server), line,
                       terminal);
  }
  return RunCommand(line, CommandContext{.client = **client,
                                         .terminal = terminal,
                                         .interrupts = interrupts,
                                         .in_is_terminal = isatty(0) == 1});
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  reprise::OpenStandardStreams();
  return reprise::Main(argc, argv);
}
