#include "server/metrics.h"

#include <prometheus/exposer.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "server/metric_names.h"
#include "server/metrics_poke.h"
#include "server/metrics_registry.h"

namespace reprise {
namespace {

Labels RpcLabels(std::string_view service, std::string_view method,
                 std::string_view type) {
  return {{"grpc_service", std::string(service)},
          {"grpc_method", std::string(method)},
          {"grpc_type", std::string(type)}};
}

// kTiers is the beginning of kByteTiers.
size_t TierIndex(std::string_view tier) {
  return std::find(kByteTiers.begin(), kByteTiers.end(), tier) -
         kByteTiers.begin();
}

}  // namespace

// ---- All of them ------------------------------------------------------------

// Families in the order of docs/metrics.md. What is observed per token, step or
// session is a child resolved here; what is observed once per request, with the
// product of several closed sets as labels, is looked up then.
struct Metrics::Impl {
  explicit Impl(std::string_view name) : model{{"model", std::string(name)}} {}

  const Labels model;
  Registrar r;

  // Latency.
  Histograms<kSources.size()> first_token = r.Each(
      r.HistogramFamily("reprise_time_to_first_token_seconds",
                        "From a request's arrival to its first token.", model),
      "source", kSources, {}, FirstTokenSeconds());
  Histogram& inter_token =
      r.HistogramFamily("reprise_inter_token_latency_seconds",
                        "Between two tokens of one stream.", model)
          .Add({}, InterTokenSeconds());
  Histogram& per_token =
      r.HistogramFamily(
           "reprise_time_per_output_token_seconds",
           "Mean time between the tokens of a completion, one value each.",
           model)
          .Add({}, PerTokenSeconds());
  Family<Histogram>& duration =
      r.HistogramFamily("reprise_request_duration_seconds",
                        "From a request's arrival to its end.", model);
  Histogram& queue_seconds =
      r.HistogramFamily("reprise_request_queue_seconds",
                        "Waiting for a place among the running.", model)
          .Add({}, RequestPartSeconds());
  Histogram& prefill_seconds =
      r.HistogramFamily("reprise_request_prefill_seconds",
                        "Reading the prompt.", model)
          .Add({}, RequestPartSeconds());
  Histogram& decode_seconds =
      r.HistogramFamily("reprise_request_decode_seconds", "Generating tokens.",
                        model)
          .Add({}, RequestPartSeconds());

  // Tokens.
  Histogram& prompt_tokens =
      r.HistogramFamily("reprise_prompt_tokens",
                        "Prompt tokens of a request, computed ones.", model)
          .Add({}, TokenCounts());
  Histogram& generation_tokens =
      r.HistogramFamily("reprise_generation_tokens",
                        "Generated tokens of a request.", model)
          .Add({}, TokenCounts());
  Counters<2> prompt_tokens_total = r.Each(
      r.CounterFamily("reprise_prompt_tokens_total",
                      "Prompt tokens, computed or taken from a state.", model),
      "source", kTokenSources, {});
  Counter& generated_tokens_total =
      r.CounterFamily("reprise_generated_tokens_total", "Generated tokens.",
                      model)
          .Add({});
  Counter& prefix_queries =
      r.CounterFamily("reprise_prefix_cache_queries_tokens_total",
                      "Tokens of prompts looked up in the prefix cache.", model)
          .Add({});
  Counter& prefix_hits =
      r.CounterFamily("reprise_prefix_cache_hit_tokens_total",
                      "Of them, tokens whose state was found.", model)
          .Add({});
  Counters<kPrefixMisses.size()> prefix_misses =
      r.Each(r.CounterFamily("reprise_prefix_cache_misses_total",
                             "Prompts of which no state was found.", model),
             "reason", kPrefixMisses, {});

  // Requests.
  Family<Counter>& requests_total = r.CounterFamily(
      "reprise_requests_total", "Requests that ended, by how they ended.");
  Counters<7> rejected =
      r.Each(r.CounterFamily("reprise_requests_rejected_total",
                             "Requests refused because of a limit."),
             "reason", kRejectReasons, {});
  Counters<5> cancelled =
      r.Each(r.CounterFamily("reprise_cancellations_total",
                             "Requests that ended early, by cause."),
             "cause", kCancelCauses, {});
  Gauge& running = r.GaugeFamily("reprise_requests_running",
                                 "Requests taking part in steps.", model)
                       .Add({});
  Gauge& waiting =
      r.GaugeFamily("reprise_requests_waiting", "Requests in the queue.", model)
          .Add({});
  Gauge& waiting_tokens =
      r.GaugeFamily("reprise_waiting_prompt_tokens",
                    "Prompt tokens of the requests in the queue.", model)
          .Add({});
  Histogram& send_stall =
      r.HistogramFamily("reprise_stream_send_stall_seconds",
                        "From the start of a write to the client to its end.")
          .Add({}, InterTokenSeconds());

  // Steps.
  Histograms<3> batch_size =
      r.Each(r.HistogramFamily("reprise_batch_size", "Rows of a step.", model),
             "phase", kPhases, {}, BatchRows());
  Histograms<3> step_seconds =
      r.Each(r.HistogramFamily("reprise_step_duration_seconds",
                               "Time of one step of the engine.", model),
             "phase", kPhases, {}, InterTokenSeconds());

  // Sessions and snapshots.
  Gauges<3> sessions = r.Each(
      r.GaugeFamily("reprise_sessions", "Sessions, by where they are.", model),
      "state", kSessionStates, {});
  std::array<Counters<2>, kSessionOps.size()> session_ops = [this] {
    Family<Counter>& family = r.CounterFamily(
        "reprise_session_operations_total", "What was done with sessions.");
    std::array<Counters<2>, kSessionOps.size()> children;
    for (size_t op = 0; op < kSessionOps.size(); ++op) {
      children[op] = r.Each(family, "result", kResults,
                            {{"op", std::string(kSessionOps[op])}});
    }
    return children;
  }();
  Histograms<5> resume_seconds = [this] {
    const Histograms<4> tiers =
        r.Each(r.HistogramFamily("reprise_session_resume_seconds",
                                 "Bringing a session's state to its slot."),
               "tier", kResumeTiers, {}, StoreSeconds());
    return Histograms<5>{nullptr, tiers[0], tiers[1], tiers[2], tiers[3]};
  }();
  Histograms<2> write_seconds =
      r.Each(r.HistogramFamily("reprise_snapshot_write_seconds",
                               "Writing a session's snapshot."),
             "tier", kTiers, {}, StoreSeconds());
  Histograms<kEncodings.size()> snapshot_bytes = r.Each(
      r.HistogramFamily("reprise_snapshot_size_bytes",
                        "Size of a snapshot written to the store or given to "
                        "a client.",
                        model),
      "encoding", kEncodings, {}, SnapshotBytes());
  Gauges<kByteTiers.size()> store_bytes =
      r.Each(r.GaugeFamily("reprise_snapshot_store_bytes",
                           "Bytes of all snapshots in a tier, about."),
             "tier", kByteTiers, {});
  Gauges<kByteTiers.size()> store_capacity =
      r.Each(r.GaugeFamily("reprise_snapshot_store_capacity_bytes",
                           "Bytes that a tier may hold; 0 if unknown."),
             "tier", kByteTiers, {});
  Gauge& pool_used = r.GaugeFamily("reprise_state_pool_used_ratio",
                                   "Share of the slots that is taken.")
                         .Add({{"tier", "slot"}});
  std::array<Counters<9>, kSnapshotOps.size()> failures = [this] {
    Family<Counter>& family =
        r.CounterFamily("reprise_snapshot_failures_total",
                        "Snapshots that could not be read or written.");
    std::array<Counters<9>, kSnapshotOps.size()> children;
    for (size_t op = 0; op < kSnapshotOps.size(); ++op) {
      children[op] = r.Each(family, "reason", kSnapshotFailures,
                            {{"op", std::string(kSnapshotOps[op])}});
    }
    return children;
  }();

  // RPCs.
  Family<Counter>& rpc_started = r.CounterFamily("grpc_server_started_total",
                                                 "RPCs started on the server.");
  Family<Counter>& rpc_handled = r.CounterFamily(
      "grpc_server_handled_total", "RPCs completed on the server.");
  Family<Histogram>& rpc_seconds = r.HistogramFamily(
      "grpc_server_handling_seconds", "Time of an RPC on the server.");

  // Build, model, process.
  Family<Gauge>& model_info = r.GaugeFamily(
      "reprise_model_info", "The model being served; the value is 1.");
  Gauge& model_load_seconds =
      r.GaugeFamily("reprise_model_load_seconds",
                    "Reading the checkpoint and packing the weights.", model)
          .Add({});
  // shared: an Exposer only takes weak pointers to what it serves
  std::shared_ptr<ProcessCollector> process =
      std::make_shared<ProcessCollector>();

  // Destroyed first: its threads use the registry. It listens on host:port.
  std::string host;
  int port = 0;
  std::unique_ptr<prometheus::Exposer> exposer;
};

Metrics::Metrics(std::string_view model_name)
    : impl_(std::make_unique<Impl>(model_name)) {
  impl_->r
      .GaugeFamily("reprise_build_info",
                   "The server's version; the value is 1.")
      .Add({{"version", REPRISE_VERSION}})
      .Set(1);
}

Metrics::~Metrics() {
  if (impl_->exposer == nullptr) return;
  PokeWhile(impl_->host, impl_->port, [this] { impl_->exposer.reset(); });
}

absl::Status Metrics::Listen(const std::string& address, int* bound_port) {
  // Each connection holds a thread until its request is whole or times out, so
  // a scrape waits a second for every 32 before it that say nothing: with a
  // hundred, a third of Prometheus's time-out of 10 s. A thread that waits
  // costs some kilobytes.
  const std::vector<std::string> options = {"listening_ports",    address,
                                            "num_threads",        "32",
                                            "request_timeout_ms", "1000"};
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(options);
    exposer->RegisterCollectable(impl_->r.registry());
    exposer->RegisterCollectable(impl_->process);
    const std::vector<int> ports = exposer->GetListeningPorts();
    *bound_port = ports.empty() ? 0 : ports[0];
    impl_->host = address.substr(0, address.rfind(':'));
    impl_->port = *bound_port;
    impl_->exposer = std::move(exposer);
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        "cannot listen for metrics on " + address +
        ": the port is taken or the address is not this machine's");
  }
  return absl::OkStatus();
}

std::string Metrics::Scrape() const {
  std::vector<prometheus::MetricFamily> all = impl_->r.registry()->Collect();
  for (prometheus::MetricFamily& family : impl_->process->Collect()) {
    all.push_back(std::move(family));
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

// ---- Observations -----------------------------------------------------------

void Metrics::ObserveFirstToken(ResumeSource source, double seconds) {
  impl_->first_token[Index(source)]->Observe(seconds);
}

void Metrics::ObserveInterToken(double seconds, int64_t count) {
  if (count == 1) return impl_->inter_token.Observe(seconds);
  if (count < 1) return;
  static const Buckets buckets = InterTokenSeconds();
  std::vector<double> increments(buckets.size() + 1, 0);
  const auto bucket = std::lower_bound(buckets.begin(), buckets.end(), seconds);
  const auto times = static_cast<double>(count);
  increments[bucket - buckets.begin()] = times;
  impl_->inter_token.ObserveMultiple(increments, seconds * times);
}

void Metrics::ObserveStep(Phase phase, int64_t rows, double seconds) {
  impl_->batch_size[Index(phase)]->Observe(static_cast<double>(rows));
  impl_->step_seconds[Index(phase)]->Observe(seconds);
}

void Metrics::AddPromptTokens(int64_t computed, int64_t cached) {
  impl_->prompt_tokens_total[0]->Increment(static_cast<double>(computed));
  impl_->prompt_tokens_total[1]->Increment(static_cast<double>(cached));
}

void Metrics::AddGeneratedTokens(int64_t count) {
  impl_->generated_tokens_total.Increment(static_cast<double>(count));
}

void Metrics::ObservePrefix(int64_t tokens, int64_t hit,
                            std::optional<PrefixMiss> miss) {
  impl_->prefix_queries.Increment(static_cast<double>(tokens));
  impl_->prefix_hits.Increment(static_cast<double>(hit));
  if (miss.has_value()) impl_->prefix_misses[Index(*miss)]->Increment();
}

void Metrics::ObserveRequest(const RequestObservation& request) {
  impl_->queue_seconds.Observe(request.queue_seconds);
  impl_->prefill_seconds.Observe(request.prefill_seconds);
  const auto tokens = static_cast<double>(request.generated_tokens);
  impl_->prompt_tokens.Observe(static_cast<double>(request.prompt_tokens));
  impl_->generation_tokens.Observe(tokens);
  if (tokens > 0) impl_->decode_seconds.Observe(request.decode_seconds);
}

void Metrics::ObserveTimePerOutputToken(double seconds) {
  impl_->per_token.Observe(seconds);
}

void Metrics::CountRequest(std::string_view method, absl::StatusCode code,
                           std::string_view finish_reason, double seconds) {
  const bool known = std::find(kFinishReasons.begin(), kFinishReasons.end(),
                               finish_reason) != kFinishReasons.end();
  impl_->requests_total
      .Add({{"method", std::string(method)},
            {"grpc_code", CodeName(code)},
            {"finish_reason", known ? std::string(finish_reason) : "none"}})
      .Increment();
  impl_->duration
      .Add({{"method", std::string(method)}, {"outcome", OutcomeName(code)}},
           RequestSeconds())
      .Observe(seconds);
}

void Metrics::CountRejected(RejectReason reason) {
  impl_->rejected[Index(reason)]->Increment();
}

void Metrics::CountCancellation(CancelCause cause) {
  impl_->cancelled[Index(cause)]->Increment();
}

void Metrics::ObserveSendStall(double seconds) {
  impl_->send_stall.Observe(seconds);
}

void Metrics::SetRequests(int64_t running, int64_t waiting,
                          int64_t waiting_prompt_tokens) {
  impl_->running.Set(static_cast<double>(running));
  impl_->waiting.Set(static_cast<double>(waiting));
  impl_->waiting_tokens.Set(static_cast<double>(waiting_prompt_tokens));
}

void Metrics::RpcStarted(std::string_view service, std::string_view method,
                         std::string_view type) {
  impl_->rpc_started.Add(RpcLabels(service, method, type)).Increment();
}

void Metrics::RpcHandled(std::string_view service, std::string_view method,
                         std::string_view type, absl::StatusCode code,
                         double seconds) {
  Labels labels = RpcLabels(service, method, type);
  impl_->rpc_seconds.Add(labels, RpcSeconds()).Observe(seconds);
  labels["grpc_code"] = CodeName(code);
  impl_->rpc_handled.Add(labels).Increment();
}

void Metrics::SetSessions(int64_t active, int64_t resident, int64_t suspended) {
  impl_->sessions[0]->Set(static_cast<double>(active));
  impl_->sessions[1]->Set(static_cast<double>(resident));
  impl_->sessions[2]->Set(static_cast<double>(suspended));
}

void Metrics::CountSessionOp(SessionOp op, bool ok) {
  impl_->session_ops[Index(op)][ok ? 0 : 1]->Increment();
}

void Metrics::ObserveResume(ResumeSource source, double seconds) {
  if (source == ResumeSource::kNone) return;  // nothing was resumed
  impl_->resume_seconds[Index(source)]->Observe(seconds);
}

void Metrics::ObserveSnapshotWrite(std::string_view tier, double seconds,
                                   int64_t bytes) {
  impl_->write_seconds[TierIndex(tier)]->Observe(seconds);
  if (tier == "store") ObserveSnapshotSize({}, bytes);
}

void Metrics::ObserveSnapshotSize(const SnapshotEncoding& encoding,
                                  int64_t bytes) {
  const size_t index = (encoding.exact() ? 0 : 2) + (encoding.zstd ? 1 : 0);
  impl_->snapshot_bytes[index]->Observe(static_cast<double>(bytes));
}

void Metrics::CountSnapshotFailure(SnapshotOp op, SnapshotFailure reason) {
  impl_->failures[Index(op)][Index(reason)]->Increment();
}

void Metrics::SetSnapshotStore(std::string_view tier, double bytes,
                               double capacity) {
  impl_->store_bytes[TierIndex(tier)]->Set(bytes);
  impl_->store_capacity[TierIndex(tier)]->Set(capacity);
}

void Metrics::SetStatePoolUsed(double ratio) { impl_->pool_used.Set(ratio); }

void Metrics::SetModel(const ModelInfo& info, double load_seconds) {
  char fingerprint[17];
  std::snprintf(fingerprint, sizeof(fingerprint), "%016llx",
                static_cast<unsigned long long>(info.fingerprints.model));
  impl_->model_info
      .Add({{"model", info.name},
            {"family", info.family},
            {"weights", std::string(WeightTypeName(info.weight_type))},
            {"fingerprint", fingerprint},
            {"cpu_isa", info.cpu_isa}})
      .Set(1);
  impl_->model_load_seconds.Set(load_seconds);
}

}  // namespace reprise
