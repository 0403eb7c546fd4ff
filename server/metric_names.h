// The closed sets of label values and the buckets of the metrics, as
// docs/metrics.md lists them. Each set is in the order of its enum in
// server/metric_values.h.
#ifndef SERVER_METRIC_NAMES_H_
#define SERVER_METRIC_NAMES_H_

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace reprise {

template <size_t N>
using Names = std::array<std::string_view, N>;

inline constexpr Names<6> kSources = {"cold",  "slot",   "memory",
                                      "store", "client", "prefix"};
inline constexpr Names<4> kPrefixMisses = {"short", "unknown", "not_kept",
                                           "logprobs"};
inline constexpr Names<6> kFinishReasons = {
    "stop", "stop_token", "stop_string", "length", "time_limit", "cancelled"};
inline constexpr Names<7> kRejectReasons = {
    "queue_full",   "queue_timeout", "quota",          "draining",
    "session_busy", "too_large",     "unauthenticated"};
inline constexpr Names<5> kCancelCauses = {"client", "deadline", "disconnect",
                                           "slow_reader", "shutdown"};
inline constexpr Names<13> kSessionOps = {
    "create", "acquire", "commit", "suspend", "resume", "fork",  "delete",
    "touch",  "expire",  "rewind", "repeat",  "export", "import"};
inline constexpr Names<3> kSnapshotOps = {"read", "write", "open"};
inline constexpr Names<9> kSnapshotFailures = {
    "checksum",  "seal", "version", "model_mismatch", "shape",
    "nonfinite", "io",   "nospace", "truncated"};
inline constexpr Names<3> kPhases = {"prefill", "decode", "mixed"};
inline constexpr Names<3> kSessionStates = {"active", "resident", "suspended"};
inline constexpr Names<2> kResults = {"ok", "error"};
inline constexpr Names<2> kTokenSources = {"computed", "cached"};
// Where snapshots are, nearest first. Every store is "store", so that a
// dashboard does not change with the store that is configured.
inline constexpr Names<2> kTiers = {"memory", "store"};
inline constexpr Names<3> kByteTiers = {"memory", "store", "prefix"};
inline constexpr Names<4> kResumeTiers = {"slot", "memory", "store", "client"};
// How a state is written: its elements, and whether they are compressed.
inline constexpr Names<4> kEncodings = {"f32", "f32_zstd", "bf16", "bf16_zstd"};

template <typename Enum>
constexpr size_t Index(Enum value) {
  return static_cast<size_t>(value);
}

// As go-grpc-prometheus spells the codes; dashboards match on it.
std::string CodeName(absl::StatusCode code);
// How a request went, coarser than its code: ok, cancelled, rejected (a limit
// was reached, or another turn was running), invalid, error.
std::string OutcomeName(absl::StatusCode code);

// Upper bounds of histogram buckets.
using Buckets = std::vector<double>;
Buckets FirstTokenSeconds();
Buckets InterTokenSeconds();  // of steps and writes, too
Buckets PerTokenSeconds();
Buckets RequestPartSeconds();
Buckets RequestSeconds();
Buckets StoreSeconds();
Buckets RpcSeconds();
Buckets TokenCounts();
Buckets BatchRows();
Buckets SnapshotBytes();

}  // namespace reprise

#endif  // SERVER_METRIC_NAMES_H_
