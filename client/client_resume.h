// A Generate call that survives the end of the server that carries it out.
#ifndef CLIENT_CLIENT_RESUME_H_
#define CLIENT_CLIENT_RESUME_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/client.h"
#include "client/client_cancellation.h"
#include "proto/inference.pb.h"

namespace reprise {

struct ResumeOptions {
  // How long a turn whose server went away is tried again, from when that was
  // noticed. 0: not at all.
  int64_t timeout_ms = 20'000;
};

// Lines for the user: "the server at A went away; continued on B".
using OnNotice = absl::FunctionRef<void(const std::string&)>;

// As Client::Generate, but if the server goes away, or says that it is
// Unavailable, the request is sent again, to the next of the client's
// addresses, and what was heard before is left out: `on_message` gets one
// Started, every text once, and one Finished for each completion.
//
// The request is given a seed and, for a turn that is committed, a request_id,
// if it has none; once its Started was heard it expects that revision. So the
// turn is committed once, by whichever server, and says what it would have said
// without the failure:
//   not committed       it runs again, from the last committed revision
//   committed           its recorded answer is heard (no log-probabilities)
//   committed in part   by a server that had to end and kept what was streamed:
//                       the session is rewound, and the turn runs again
// Without a session, or with a turn that commits nothing, it just runs again.
//
// Errors: those of Generate; Unavailable if no server carries it out in time,
// or one after another goes away with it; Aborted if somebody else's turn came
// between; DataLoss if the servers do not say the same. An answer that stops at
// its time_limit_ms may stop elsewhere, which is DataLoss too.
absl::Status GenerateResuming(Client& client, v1::GenerateRequest request,
                              const ResumeOptions& options,
                              Client::OnMessage on_message, OnNotice on_notice,
                              Cancellation& cancellation);

}  // namespace reprise

#endif  // CLIENT_CLIENT_RESUME_H_
