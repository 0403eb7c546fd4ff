// From requests as they come to what the scheduler takes. Everything that can
// be wrong with a request is found here, and named by its field's path.
#ifndef SERVER_INFERENCE_SERVICE_REQUEST_H_
#define SERVER_INFERENCE_SERVICE_REQUEST_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/inference.pb.h"
#include "server/inference_service_context.h"

namespace reprise {

// The turn that a Generate call asks for, defaults filled in, text and messages
// turned into tokens (so it takes as long as they are). `arrival_ns` is left 0.
// InvalidArgument, naming the field, its value and its range; the errors of
// ApplyMessages, and of ClientStates::Open for a snapshot.
absl::StatusOr<TurnRequest> ToTurnRequest(const v1::GenerateRequest& request,
                                          const ServiceContext& context);

// Likewise for Append: a turn that only reads.
absl::StatusOr<TurnRequest> ToTurnRequest(const v1::AppendRequest& request,
                                          const ServiceContext& context);

// Likewise for Score: a turn without a session that only reads, and streams the
// log-probabilities of what it reads.
absl::StatusOr<TurnRequest> ToTurnRequest(const v1::ScoreRequest& request,
                                          const ServiceContext& context);

// The ids of the field `text`. InvalidArgument naming it, as RefuseTokens and
// for what the tokenizer refuses.
absl::StatusOr<std::vector<int32_t>> EncodeText(std::string_view text,
                                                bool allow_special,
                                                const ServiceContext& context);

// InvalidArgument for an input of more tokens than the server takes, which is
// counted.
absl::Status RefuseTokens(std::string_view field,
                          const ServiceContext& context);

// One page of the sessions of `tenant`, which begins behind the token `after`.
struct SessionPage {
  std::vector<SessionInfo> sessions;
  std::string next;  // the next page's token, empty on the last one
};
// Blocks on the store. InvalidArgument, naming the field, for a size or a token
// that is none; the errors of SessionManager::List.
absl::StatusOr<SessionPage> ListPage(SessionManager& sessions,
                                     std::string_view tenant,
                                     std::optional<uint32_t> page_size,
                                     const std::string& after);

// The size that a request for a page gives, if it does.
template <class Request>
std::optional<uint32_t> PageSizeOf(const Request& request) {
  if (!request.has_page_size()) return std::nullopt;
  return request.page_size();
}

// The revision that a request expects, if it does.
template <class Request>
std::optional<uint64_t> ExpectedRevisionOf(const Request& request) {
  if (!request.has_expected_revision()) return std::nullopt;
  return request.expected_revision();
}

// What a SealOptions asks for, its field named `field`. InvalidArgument.
absl::StatusOr<SealOptions> ToSealOptions(const v1::SealOptions& options,
                                          const std::string& field);

// InvalidArgument, naming the field and the range, for a time to live below
// `least` or beyond a hundred years.
absl::Status ValidateTtl(uint64_t ttl_ms, std::string_view field,
                         uint64_t least);

// InvalidArgument, naming the first id that is not in the vocabulary.
absl::Status ValidateTokenIds(std::span<const int32_t> ids,
                              std::string_view field, int64_t vocab_size);

// What a client may ask for, beside what depends on the server's options.
inline constexpr size_t kMaxRequestIdBytes = 128;
inline constexpr int kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 256;
inline constexpr int kMaxStopTokens = 64;
inline constexpr uint32_t kMaxLogprobs = 20;
// Prompt tokens x (1 + alternatives): all of them travel in one message, about
// 20 bytes each, and clients of gRPC take 4 MiB at most by default.
inline constexpr int64_t kMaxPromptLogprobs = 65'536;
inline constexpr uint32_t kMaxCompletions = 16;
inline constexpr uint32_t kDefaultNewTokens = 16;
inline constexpr uint32_t kDefaultPage = 100;
inline constexpr uint32_t kMaxPage = 1000;

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_REQUEST_H_
