// Everything that Prometheus can scrape. Names, labels and buckets are part of
// the interface (docs/metrics.md). Label values come from closed sets; children
// are resolved when the process starts, not per token.
#ifndef SERVER_METRICS_H_
#define SERVER_METRICS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "server/metric_values.h"

namespace reprise {

// Thread-safe; observations take no lock of ours.
class Metrics {
 public:
  // Collects into a registry of its own; nothing listens yet.
  explicit Metrics(std::string_view model_name);
  ~Metrics();

  // Serves /metrics on HOST:PORT. Unavailable if the port is taken. The port
  // that was bound is written to `*bound_port` (for port 0).
  absl::Status Listen(const std::string& address, int* bound_port);
  // The text that a scrape returns.
  std::string Scrape() const;

  // Per token and step, from the scheduler's thread.
  void ObserveFirstToken(ResumeSource source, double seconds);
  // `count` gaps of `seconds` each between tokens of one stream.
  void ObserveInterToken(double seconds, int64_t count);
  void ObserveStep(Phase phase, int64_t rows, double seconds);
  void AddPromptTokens(int64_t computed, int64_t cached);
  void AddGeneratedTokens(int64_t count);
  // Of a prompt of so many tokens, `hit` were found; why none, if none were.
  void ObservePrefix(int64_t tokens, int64_t hit,
                     std::optional<PrefixMiss> miss);

  // Per request.
  void ObserveRequest(const RequestObservation& request);
  // Of a completion of two tokens or more, the first left out.
  void ObserveTimePerOutputToken(double seconds);
  void CountRequest(std::string_view method, absl::StatusCode code,
                    std::string_view finish_reason, double seconds);
  void CountRejected(RejectReason reason);
  void CountCancellation(CancelCause cause);
  void ObserveSendStall(double seconds);
  void SetRequests(int64_t running, int64_t waiting,
                   int64_t waiting_prompt_tokens);

  // Per RPC, the names of go-grpc-prometheus. `method` is one of the service's.
  void RpcStarted(std::string_view service, std::string_view method,
                  std::string_view type);
  void RpcHandled(std::string_view service, std::string_view method,
                  std::string_view type, absl::StatusCode code, double seconds);

  // Sessions and snapshots.
  void SetSessions(int64_t active, int64_t resident, int64_t suspended);
  void CountSessionOp(SessionOp op, bool ok);
  void ObserveResume(ResumeSource source, double seconds);
  // `tier` is "memory" (snapshot bytes in this process) or "store", whatever
  // kind of store it is; of SetSnapshotStore also "prefix".
  void ObserveSnapshotWrite(std::string_view tier, double seconds,
                            int64_t bytes);
  // Of one for a client; those for the store are observed with the write.
  void ObserveSnapshotSize(const SnapshotEncoding& encoding, int64_t bytes);
  void CountSnapshotFailure(SnapshotOp op, SnapshotFailure reason);
  void SetSnapshotStore(std::string_view tier, double bytes, double capacity);
  void SetStatePoolUsed(double ratio);

  // Once.
  void SetModel(const ModelInfo& info, double load_seconds);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // SERVER_METRICS_H_
