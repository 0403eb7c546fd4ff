// One Generate call as the user sees it: a spinner, the text as it comes, and
// a line of numbers; or the messages as JSON lines.
#ifndef CLIENT_TURN_H_
#define CLIENT_TURN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client.h"
#include "client/client_resume.h"
#include "client/interrupts.h"
#include "client/terminal.h"
#include "proto/inference.pb.h"

namespace reprise {

// `message` as protobuf JSON in one line with a newline: field names as in the
// .proto file, enums by name, 64-bit integers as strings, bytes as base64;
// fields with their default value are left out.
absl::StatusOr<std::string> ToJsonLine(
    const google::protobuf::Message& message);

enum class TurnFormat { kText, kJson };

// What came of a turn.
struct TurnResult {
  absl::Status status;
  bool interrupted = false;  // by Ctrl-C
  std::optional<v1::Started> started;
  std::vector<v1::Finished> finished;  // one for each completion
  v1::Usage usage;                     // the last that was received
  // Of an interrupted turn in a session, whose end is not heard: the session's
  // revision after it, if the server said; 0 if it has no such session.
  std::optional<uint64_t> left_at;
  bool rolls_back = false;    // when it is interrupted
  int64_t first_text_us = 0;  // measured here: from the call to the first Delta
  int64_t total_us = 0;       // from the call to its end
};

// Runs the turn, on another server if the first goes away, which is told on
// stderr; blocks until it is over, and after an interrupt for a moment until
// the server says what became of the session. `interrupts` may be null. The
// call ends early, without an error, if the reader of stdout goes away.
TurnResult RunTurn(Client& client, const v1::GenerateRequest& request,
                   const ResumeOptions& resume, TurnFormat format,
                   Terminal& terminal, Interrupts* interrupts);

// "24 tokens, first after 8.3 ms, 312 tokens/s; length limit; session s at
// revision 2, resumed from the store, 40 tokens cached; seed 7".
std::string SummariseTurn(const TurnResult& result);

}  // namespace reprise

#endif  // CLIENT_TURN_H_
