#include <string>
#include <vector>

#include "client/commands.h"
#include "client/format.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

std::string PlaceName(v1::SessionPlace place) {
  switch (place) {
    case v1::SESSION_PLACE_ACTIVE:
      return "active";
    case v1::SESSION_PLACE_RESIDENT:
      return "resident";
    case v1::SESSION_PLACE_MEMORY:
      return "memory";
    case v1::SESSION_PLACE_SUSPENDED:
      return "suspended";
    default:
      return v1::SessionPlace_Name(place);
  }
}

std::string SourceName(v1::ResumeSource source) {
  switch (source) {
    case v1::RESUME_SOURCE_NONE:
      return "nothing: it is empty";
    case v1::RESUME_SOURCE_SLOT:
      return "its slot: it was resident";
    case v1::RESUME_SOURCE_MEMORY:
      return "memory";
    case v1::RESUME_SOURCE_STORE:
      return "the store";
    default:
      return v1::ResumeSource_Name(source);
  }
}

std::string Expiry(const v1::Session& session) {
  return session.has_expires_unix_ms() ? FormatTime(session.expires_unix_ms())
                                       : "never";
}

void PrintPage(const v1::ListSessionsResponse& page, Terminal& terminal) {
  Table table({{"ID", Align::kLeft},
               {"REVISION", Align::kRight},
               {"TOKENS", Align::kRight},
               {"PLACE", Align::kLeft},
               {"SNAPSHOT", Align::kRight},
               {"UPDATED", Align::kLeft},
               {"EXPIRES", Align::kLeft}});
  for (const v1::Session& session : page.sessions()) {
    table.AddRow({session.id(), std::to_string(session.revision()),
                  FormatCount(session.tokens()), PlaceName(session.place()),
                  FormatBytes(session.snapshot_bytes()),
                  FormatTime(session.updated_unix_ms()), Expiry(session)});
  }
  terminal.Print(table.ToString());
}

void PrintCheckpoints(const v1::Session& session, Terminal& terminal) {
  if (session.checkpoints_size() == 0) return;
  Table table({{"REWIND TO", Align::kRight},
               {"TOKENS", Align::kRight},
               {"SNAPSHOT", Align::kRight},
               {"COMMITTED", Align::kLeft}});
  for (const v1::Checkpoint& checkpoint : session.checkpoints()) {
    table.AddRow({std::to_string(checkpoint.revision()),
                  FormatCount(checkpoint.tokens()),
                  FormatBytes(checkpoint.snapshot_bytes()),
                  FormatTime(checkpoint.unix_ms())});
  }
  terminal.Print("\n" + table.ToString());
}

// Page after page, each as its own table or JSON line: there may be a million.
absl::Status List(const CommandLine& line, const CommandContext& context) {
  v1::ListSessionsRequest request;
  request.set_page_size(line.page_size);
  uint64_t count = 0;
  do {
    ASSIGN_OR_RETURN(const v1::ListSessionsResponse page,
                     context.client.ListSessions(request));
    count += page.sessions_size();
    if (line.json) {
      RETURN_IF_ERROR(PrintJson(page, context.terminal));
    } else if (page.sessions_size() > 0) {
      PrintPage(page, context.terminal);
    }
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && !context.terminal.out_closed() &&
           context.terminal.status().ok());
  if (!line.json) {
    context.terminal.Note(FormatCount(count) +
                          (count == 1 ? " session" : " sessions"));
  }
  return absl::OkStatus();
}

absl::Status Show(const CommandLine& line, const CommandContext& context,
                  const std::string& id) {
  ASSIGN_OR_RETURN(const v1::Session session, context.client.GetSession(id));
  if (line.json) return PrintJson(session, context.terminal);
  std::vector<std::pair<std::string, std::string>> properties = {
      {"session", session.id()},
      {"revision", std::to_string(session.revision())},
      {"tokens", FormatCount(session.tokens())},
      {"place", PlaceName(session.place())},
      {"snapshot", FormatBytes(session.snapshot_bytes())},
      {"created", FormatTime(session.created_unix_ms())},
      {"updated", FormatTime(session.updated_unix_ms())},
      {"expires", Expiry(session)}};
  if (!session.forked_from().empty()) {
    properties.emplace_back("forked from", session.forked_from());
  }
  context.terminal.Print(FormatProperties(properties));
  PrintCheckpoints(session, context.terminal);
  return absl::OkStatus();
}

absl::Status Suspend(const CommandLine& line, const CommandContext& context,
                     const std::string& id) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  ASSIGN_OR_RETURN(const v1::Session session,
                   context.client.SuspendSession(id));
  if (line.json) return PrintJson(session, context.terminal);
  context.terminal.Print(session.id() + " is suspended, after " +
                         Since(start_ns) + ": " + DescribeSession(session) +
                         "\n");
  return absl::OkStatus();
}

absl::Status Resume(const CommandLine& line, const CommandContext& context,
                    const std::string& id) {
  ASSIGN_OR_RETURN(const v1::ResumeSessionResponse response,
                   context.client.ResumeSession(id));
  if (line.json) return PrintJson(response, context.terminal);
  context.terminal.Print(response.session().id() + " is resident, from " +
                         SourceName(response.resumed_from()) + ", after " +
                         FormatDuration(response.resume_us()) + ": " +
                         DescribeSession(response.session()) + "\n");
  return absl::OkStatus();
}

absl::Status Fork(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  ASSIGN_OR_RETURN(const v1::Session session,
                   context.client.ForkSession(line.fork));
  if (line.json) return PrintJson(session, context.terminal);
  context.terminal.Print(session.id() + " is a fork of " + line.fork.id() +
                         ", after " + Since(start_ns) + ": " +
                         DescribeSession(session) + "\n");
  return absl::OkStatus();
}

absl::Status Rewind(const CommandLine& line, const CommandContext& context) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  ASSIGN_OR_RETURN(const v1::Session session,
                   context.client.RewindSession(line.rewind));
  if (line.json) return PrintJson(session, context.terminal);
  context.terminal.Print(session.id() + " is as it was at revision " +
                         std::to_string(line.rewind.revision()) + ", after " +
                         Since(start_ns) + ": " + DescribeSession(session) +
                         "\n");
  return absl::OkStatus();
}

absl::Status Delete(const CommandLine& line, const CommandContext& context,
                    const std::string& id) {
  RETURN_IF_ERROR(context.client.DeleteSession(id));
  if (line.json) {
    return PrintJson(v1::DeleteSessionResponse(), context.terminal);
  }
  context.terminal.Print(id + " is deleted\n");
  return absl::OkStatus();
}

absl::Status RunForOne(const CommandLine& line, const CommandContext& context,
                       const std::string& id) {
  switch (line.command) {
    case Command::kSessionsShow:
      return Show(line, context, id);
    case Command::kSessionsSuspend:
      return Suspend(line, context, id);
    case Command::kSessionsResume:
      return Resume(line, context, id);
    default:
      return Delete(line, context, id);
  }
}

}  // namespace

std::string DescribeSession(const v1::Session& session) {
  return "revision " + std::to_string(session.revision()) + ", " +
         FormatTokens(session.tokens()) + ", " +
         FormatBytes(session.snapshot_bytes());
}

absl::Status RunSessions(const CommandLine& line,
                         const CommandContext& context) {
  if (line.command == Command::kSessionsList) return List(line, context);
  if (line.command == Command::kSessionsFork) return Fork(line, context);
  if (line.command == Command::kSessionsRewind) return Rewind(line, context);
  return RunForEach(line, context, [&](const std::string& id) {
    return RunForOne(line, context, id);
  });
}

}  // namespace reprise
