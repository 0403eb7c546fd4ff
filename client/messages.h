// Conversations as people write them down.
#ifndef CLIENT_MESSAGES_H_
#define CLIENT_MESSAGES_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "proto/inference.pb.h"

namespace reprise {

// The messages of a JSON array of objects with a "role" and a "content", both
// strings. InvalidArgument, naming `source` and the place ("[2].role"), for
// anything else: what would not reach the model is not left out in silence.
absl::StatusOr<v1::Messages> ParseMessages(std::string_view json,
                                           const std::string& source);

}  // namespace reprise

#endif  // CLIENT_MESSAGES_H_
