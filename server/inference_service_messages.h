// From the messages of a conversation to what a turn is fed, by the model's
// chat template.
#ifndef SERVER_INFERENCE_SERVICE_MESSAGES_H_
#define SERVER_INFERENCE_SERVICE_MESSAGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"

namespace reprise {

// Most messages of a request, most bytes of a role, and of all contents
// together: a template works on four bytes for each character, and several
// copies of them.
inline constexpr int kMaxMessages = 1024;
inline constexpr size_t kMaxRoleBytes = 64;
inline constexpr size_t kMaxContentBytes = size_t{4} << 20;

// The prompt of the turn, or, on a session, the two that it may come to; and
// what ends an answer, unless the request ignores that. The rest of `turn` is
// filled in. FailedPrecondition if the model has no template that can do it;
// InvalidArgument, naming the field ("messages[2].role"), its value and its
// range, or with the template's line and its words if it refuses the messages.
absl::Status ApplyMessages(const v1::GenerateRequest& request,
                           const ServiceContext& context, TurnRequest& turn);

// The prompt of a conversation that begins with these messages. Fails likewise.
absl::StatusOr<std::vector<int32_t>> MessagesToPrompt(
    const v1::Messages& messages, bool allow_special,
    const ServiceContext& context);

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_MESSAGES_H_
