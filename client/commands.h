// The commands of `reprise`. Each runs against a connected server, writes to
// the terminal, and returns the error that is to be shown, if there is one.
#ifndef CLIENT_COMMANDS_H_
#define CLIENT_COMMANDS_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/command_line.h"
#include "client/interrupts.h"
#include "client/terminal.h"

namespace reprise {

// What a command works with; all borrowed for its duration.
struct CommandContext {
  Client& client;
  Terminal& terminal;
  Interrupts& interrupts;
  int in_fd = 0;
  bool in_is_terminal = false;
};

// Runs line.command and returns the process's exit code, after telling the user
// of any error.
int RunCommand(const CommandLine& line, const CommandContext& context);

// Reports the `status` of a command on stderr, as JSON if line.json, else with
// fields as NameFlag names them, and returns kErrorExitCode.
int ReportError(const absl::Status& status, const CommandLine& line,
                Terminal& terminal);

// The command's TEXT, read from stdin if it is "-". InvalidArgument if it is
// not UTF-8; the errors of ReadAll.
absl::StatusOr<std::string> GetText(const CommandLine& line,
                                    const CommandContext& context);

// The messages of the command's --messages, read from stdin if it is "-". The
// errors of ParseMessages and of reading.
absl::StatusOr<v1::Messages> GetMessages(const CommandLine& line,
                                         const CommandContext& context);

// One line of protobuf JSON.
absl::Status PrintJson(const google::protobuf::Message& message,
                       Terminal& terminal);

// These return the exit code: 0, or kInterruptedExitCode.
absl::StatusOr<int> RunComplete(const CommandLine& line,
                                const CommandContext& context);
absl::StatusOr<int> RunScore(const CommandLine& line,
                             const CommandContext& context);
absl::StatusOr<int> RunBenchCommand(const CommandLine& line,
                                    const CommandContext& context);
absl::StatusOr<int> RunChat(const CommandLine& line,
                            const CommandContext& context);

// Needs no server. Returns the exit code, after telling the user of any error.
int RunInspect(const CommandLine& line, Terminal& terminal);

// Runs `run` for each of line.ids, also after one that failed; their errors are
// reported as they come, but for the last one, which is returned. Ends at once
// if the server is gone or stdout cannot be written.
absl::Status RunForEach(
    const CommandLine& line, const CommandContext& context,
    absl::FunctionRef<absl::Status(const std::string& id)> run);

// kSessionsList to kSessionsDelete.
absl::Status RunSessions(const CommandLine& line,
                         const CommandContext& context);

// kSessionsExport and kSessionsImport.
absl::Status RunStates(const CommandLine& line, const CommandContext& context);

// "8.3 ms": from `start_ns`, of Clock::Real().MonotonicNs(), until now.
std::string Since(int64_t start_ns);
// "revision 3, 120 tokens, 96.3 KiB"
std::string DescribeSession(const v1::Session& session);
// "revision 3, 120 tokens, 96.3 KiB as f32+zstd, until 2026-01-31 12:00:05"
std::string DescribeState(const v1::SnapshotInfo& info);

// kPresetsList to kPresetsDelete.
absl::Status RunPresets(const CommandLine& line, const CommandContext& context);

absl::Status RunTokenize(const CommandLine& line,
                         const CommandContext& context);
absl::Status RunModel(const CommandLine& line, const CommandContext& context);

}  // namespace reprise

#endif  // CLIENT_COMMANDS_H_
