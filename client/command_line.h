// The arguments of `reprise`.
#ifndef CLIENT_COMMAND_LINE_H_
#define CLIENT_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "client/bench.h"
#include "proto/inference.pb.h"

namespace reprise {

constexpr int kErrorExitCode = 1;
constexpr int kUsageExitCode = 2;

enum class Command {
  kComplete,
  kChat,
  kInspect,
  kSessionsList,
  kSessionsShow,
  kSessionsSuspend,
  kSessionsResume,
  kSessionsFork,
  kSessionsRewind,
  kSessionsDelete,
  kSessionsExport,
  kSessionsImport,
  kPresetsList,
  kPresetsSave,
  kPresetsDelete,
  kScore,
  kTokenize,
  kModel,
  kBench,
};

struct CommandLine {
  Command command = Command::kModel;
  // Every command.
  std::string server = "127.0.0.1:8980";  // checked by ParseAddresses
  int64_t connect_timeout_ms = 5'000;
  int64_t retry_timeout_ms = 20'000;  // complete and chat; 0 = no retry
  bool json = false;
  bool verbose = false;
  // complete, score and tokenize; "-" stands for stdin.
  std::string text;
  bool has_text = false;  // it was given
  // complete and tokenize: instead of the text, the name of a file of messages,
  // or "-"; else empty
  std::string messages_file;
  std::string system;  // chat: what a new session begins with; or empty
  // complete and chat: all but the text or the messages.
  v1::GenerateRequest request;
  bool echo = false;  // complete
  // complete: the files of the state to begin with and of the one after it, or
  // empty
  std::string load_file;
  std::string save_file;
  std::string model_dir;  // inspect
  std::string preset;     // chat
  // sessions and presets
  std::vector<std::string> ids;
  v1::ForkSessionRequest fork;
  v1::RewindSessionRequest rewind;
  v1::SavePresetRequest save_preset;
  v1::ExportSessionRequest export_session;
  v1::SnapshotChunk import_session;  // all but what is in the file
  // export: where to, or empty; import: where from; "-" is stdout and stdin
  std::string state_file;
  uint32_t page_size = 100;
  // score: instead of the text, the name of a file that holds it, or
  // "-"; else empty
  std::string file;
  v1::ScoreRequest score;  // all but the text
  // tokenize
  bool special_tokens = false;
  BenchOptions bench;
  int64_t server_pid = 0;  // bench; 0 = not told
};

// Either a command to run, or a text to print and the exit code to end with
// (--help, --version, a usage error).
struct ParsedCommandLine {
  std::optional<CommandLine> command;
  std::string out;  // for stdout
  std::string err;  // for stderr
  int exit_code = 0;
};

// Reads the arguments and the environment's REPRISE_SERVER.
ParsedCommandLine ParseCommandLine(int argc, const char* const* argv);

}  // namespace reprise

#endif  // CLIENT_COMMAND_LINE_H_
