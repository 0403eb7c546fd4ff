// Sessions that become files, and files that become sessions.
#include <string>

#include "client/commands.h"
#include "client/format.h"
#include "client/state_file.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

absl::Status Export(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  const std::string& id = line.export_session.id();
  const std::string path =
      line.state_file.empty() ? id + ".rpse" : line.state_file;
  ASSIGN_OR_RETURN(const v1::SealedSnapshot state,
                   context.client.ExportSession(line.export_session));
  RETURN_IF_ERROR(WriteStateFile(path, state.data()));
  if (line.json) return PrintJson(state.info(), context.terminal);
  context.terminal.Print(id + " is in " + path + ", after " + Since(start_ns) +
                         ": " + DescribeState(state.info()) + "\n");
  return absl::OkStatus();
}

absl::Status Import(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  ASSIGN_OR_RETURN(
      const v1::Session session,
      ImportFile(line.state_file, line.import_session, context.client));
  if (line.json) return PrintJson(session, context.terminal);
  context.terminal.Print(session.id() + " is a session, from " +
                         line.state_file + ", after " + Since(start_ns) + ": " +
                         DescribeSession(session) + "\n");
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

absl::StatusOr<v1::Session> ImportFile(const std::string& path,
                                       const v1::SnapshotChunk& target,
                                       Client& client) {
  ASSIGN_OR_RETURN(const std::string bytes, ReadStateFile(path));
  return client.ImportSession(bytes, target);
}

absl::Status RunStates(const CommandLine& line, const CommandContext& context) {
  if (line.command == Command::kSessionsExport) return Export(line, context);
  return Import(line, context);
}

}  // namespace reprise
