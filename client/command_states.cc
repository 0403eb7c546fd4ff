// Sessions that become files, and files that become sessions.
#include <string>

#include "client/commands.h"
#include "client/format.h"
#include "client/input.h"
#include "client/state_file.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr char kStandardStream[] = "-";

absl::Status CheckTarget(const CommandLine& line, const std::string& path,
                         const Terminal& terminal) {
  if (path != kStandardStream) return CheckStateFile(path);
  if (line.json) {
    return absl::InvalidArgumentError(
        "--json: stdout is for the state; --out=FILE leaves it to the JSON");
  }
  if (!terminal.out_is_terminal()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--out: stdout is a terminal, and a state is no text");
}

absl::Status Export(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  Terminal& terminal = context.terminal;
  const std::string& id = line.export_session.id();
  const std::string path =
      line.state_file.empty() ? id + ".rpse" : line.state_file;
  RETURN_IF_ERROR(CheckTarget(line, path, terminal));
  ASSIGN_OR_RETURN(const v1::SealedSnapshot state,
                   context.client.ExportSession(line.export_session));
  const auto outcome = [&](const std::string& where) {
    return id + " is in " + where + ", after " + Since(start_ns) + ": " +
           DescribeState(state.info());
  };
  const auto warn = [&](const std::string& where) {
    if (!OpensInOneProcess(state.data())) return;
    terminal.Note(FormatNotice(OpensInOneProcessNotice(where), line.json));
  };
  if (path == kStandardStream) {
    terminal.Print(state.data());
    if (terminal.out_closed()) {  // half a state is none
      return absl::UnknownError("--out: the reader of stdout has gone");
    }
    if (!terminal.status().ok()) return absl::OkStatus();
    terminal.Note(outcome("stdout"));
    warn("what was written");
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(WriteStateFile(path, state.data()));
  if (line.json) {
    RETURN_IF_ERROR(PrintJson(state.info(), terminal));
  } else {
    terminal.Print(outcome(path) + "\n");
  }
  warn(path);
  return absl::OkStatus();
}

absl::Status Import(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  const bool from_stdin = line.state_file == kStandardStream;
  ASSIGN_OR_RETURN(const std::string bytes,
                   from_stdin ? ReadAll(context.in_fd, kMaxStateBytes)
                              : ReadStateFile(line.state_file));
  ASSIGN_OR_RETURN(const v1::Session session,
                   context.client.ImportSession(bytes, line.import_session));
  if (line.json) return PrintJson(session, context.terminal);
  context.terminal.Print(session.id() + " is a session, from " +
                         (from_stdin ? "stdin" : line.state_file) + ", after " +
                         Since(start_ns) + ": " + DescribeSession(session) +
                         "\n");
  return absl::OkStatus();
}

}  // namespace

std::string Since(int64_t start_ns) {
  const int64_t ns = Clock::Real().MonotonicNs() - start_ns;
  return FormatDuration(static_cast<uint64_t>(ns / 1000));
}

std::string DescribeState(const v1::SnapshotInfo& info) {
  const bool rounded = info.elements() == v1::STATE_ELEMENTS_BF16;
  std::string text = "revision " + std::to_string(info.revision()) + ", " +
                     FormatTokens(info.tokens()) + ", " +
                     FormatBytes(info.sealed_bytes()) + " as " +
                     (rounded ? "bf16" : "f32") + (info.zstd() ? "+zstd" : "");
  if (info.has_expires_unix_ms()) {
    text += ", until " + FormatTime(info.expires_unix_ms());
  }
  return text;
}

absl::Status RunStates(const CommandLine& line, const CommandContext& context) {
  if (line.command == Command::kSessionsExport) return Export(line, context);
  return Import(line, context);
}

}  // namespace reprise
