#include "server/scheduler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/kernels/state_kernels.h"
#include "server/batch.h"
#include "server/client_states.h"
#include "server/turn.h"
#include "server/turn_queue.h"
#include "server/waker.h"

namespace reprise {
namespace {

// How often time-outs are looked at, and a request that found no free slot
// tries again, while nothing else happens.
constexpr int64_t kTickMs = 10;

absl::Status QueueFull(std::string_view what, int64_t value,
                       std::string_view name, int64_t limit) {
  std::string text = "the queue is full: ";
  text += std::to_string(value);
  text += what;
  text += ", the limit (";
  text += name;
  text += ") is " + std::to_string(limit);
  return absl::ResourceExhaustedError(text);
}

// Tells what a turn answered before, as one that ends at once.
void AnswerAgain(const TurnOutcome& outcome, TokenStream& stream) {
  StartedEvent started;
  started.prompt_tokens = outcome.usage.prompt_tokens;
  started.cached_tokens = outcome.usage.cached_tokens;
  started.resume_reason = "the request was carried out before";
  started.revision = outcome.revision_before;
  started.repeated_seed = outcome.seed;
  stream.Push(std::move(started));
  if (!outcome.text.empty() || !outcome.token_ids.empty()) {
    DeltaEvent delta;
    delta.text = outcome.text;
    delta.token_ids = outcome.token_ids;
    delta.usage = outcome.usage;
    stream.Push(std::move(delta));
  }
  FinishedEvent finished;
  finished.reason = outcome.reason;
  finished.matched_stop = outcome.matched_stop;
  finished.matched_token = outcome.matched_token;
  finished.usage = outcome.usage;
  finished.revision = outcome.revision;
  stream.Push(std::move(finished));
  stream.Close(absl::OkStatus());
}

// What other threads reach the scheduler's thread by.
struct Signals {
  Waker waker;
  std::atomic<bool> stream_changed{false};  // cancelled, or room again
};

}  // namespace

// A turn is in one of three places: in queue; in acquiring, while its leases
// are being got on the executor; in batch, until its stream is closed.
struct Scheduler::Impl {
  Impl(Engine& engine, const Tokenizer& tokenizer, SessionManager& sessions,
       Executor& executor, Metrics& metrics, const Clock& clock,
       const SchedulerOptions& options);

  // Any thread.
  absl::Status CheckLimits(const TurnRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  // The executor's threads.
  absl::StatusOr<SessionLease> AcquireFirst(const TurnRequest& request);
  absl::StatusOr<std::vector<SessionLease>> AcquireAll(
      const TurnRequest& request);
  void PostAcquired(Turn* turn);
  void PostCommitted(Completion* completion);

  // The scheduler's thread.
  bool TakeCommitted();
  bool TakeAcquired();
  void Acquired(std::unique_ptr<Turn> turn);
  bool EndWaiting();
  absl::Status WhyOver(const Turn& turn, bool queued, int64_t now_ns) const;
  void CloseWaiting(Turn& turn, absl::Status why);
  bool Admit();
  std::unique_ptr<Turn> NextToAdmit();
  void CountTurns(int64_t closed);

  // Constant after construction.
  SessionManager& sessions;
  Executor& executor;
  Metrics& metrics;
  const Clock& clock;
  const SchedulerOptions options;

  // Synchronise themselves.
  // shared: the streams' callbacks may come after the scheduler is gone.
  const std::shared_ptr<Signals> signals = std::make_shared<Signals>();
  std::atomic<bool> stopping{false};

  // The scheduler's thread only.
  std::vector<std::unique_ptr<Turn>> acquiring;
  int64_t acquiring_slots = 0;  // one for each completion of those
  // After a lack of slots: nothing is admitted before that time, or before
  // fewer slots are held.
  int64_t retry_ns = 0;
  int64_t refused_leases = 0;
  int64_t next_look_ns = 0;  // at those that wait
  std::vector<Turn*> acquired_now;
  std::vector<Completion*> committed_now;
  std::array<int64_t, 3> gauges{-1, -1, -1};  // as last set
  Batch batch;

  mutable Mutex mu;
  TurnQueue queue ABSL_GUARDED_BY(mu);
  int64_t open ABSL_GUARDED_BY(mu) = 0;  // turns in all three places
  bool draining ABSL_GUARDED_BY(mu) = false;
  std::vector<Turn*> acquired ABSL_GUARDED_BY(mu);
  std::vector<Completion*> committed ABSL_GUARDED_BY(mu);
};

Scheduler::Impl::Impl(Engine& engine, const Tokenizer& tokenizer,
                      SessionManager& sessions, Executor& executor,
                      Metrics& metrics, const Clock& clock,
                      const SchedulerOptions& options)
    : sessions(sessions),
      executor(executor),
      metrics(metrics),
      clock(clock),
      options(options),
      batch(engine, tokenizer, sessions, executor, metrics, clock,
            {.prefill_rows = options.prefill_rows,
             .slow_reader_timeout_ms = options.slow_reader_timeout_ms,
             .prefix_cache_bytes = options.prefix_cache_bytes},
            [this](Completion* completion) { PostCommitted(completion); }) {
  // Otherwise decode rows could leave no room for a tile.
  CHECK(options.max_running >= 1);
  CHECK(options.max_running + kTileRows <= engine.max_rows());
}

Scheduler::Scheduler(Engine& engine, const Tokenizer& tokenizer,
                     SessionManager& sessions, Executor& executor,
                     Metrics& metrics, const Clock& clock,
                     const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(engine, tokenizer, sessions, executor,
                                   metrics, clock, options)) {}

Scheduler::~Scheduler() {
  Impl& impl = *impl_;
  impl.TakeCommitted();  // they are durable, and are to be told so
  std::vector<std::unique_ptr<Turn>> left;
  {
    MutexLock lock(impl.mu);
    left = impl.queue.RemoveIf([](const Turn&) { return true; });
  }
  for (std::unique_ptr<Turn>& turn : impl.acquiring) {
    left.push_back(std::move(turn));
  }
  for (const std::unique_ptr<Turn>& turn : left) {
    impl.metrics.CountCancellation(CancelCause::kShutdown);
    turn->stream->Close(CancelledStatus(CancelCause::kShutdown,
                                        /*slow_reader_timeout_ms=*/0));
  }
}

// ---- Any thread ------------------------------------------------------------

absl::Status Scheduler::Impl::CheckLimits(const TurnRequest& request) {
  if (draining) {
    metrics.CountRejected(RejectReason::kDraining);
    return absl::UnavailableError("the server is shutting down");
  }
  const int64_t completions =
      std::min(options.max_running, sessions.num_slots());
  if (request.n < 1 || request.n > completions) {
    return absl::InvalidArgumentError(
        "n: " + std::to_string(request.n) + " is not in 1.." +
        std::to_string(completions) + ", the completions that can run at once");
  }
  if (request.n > 1 && request.session.has_value() && request.commit) {
    return absl::InvalidArgumentError(
        "n: " + std::to_string(request.n) +
        " completions cannot all be committed to one session");
  }
  const int64_t requests = queue.size() + 1;
  const int64_t tokens = queue.prompt_tokens() + PromptTokens(request);
  if (requests > options.max_queued) {
    metrics.CountRejected(RejectReason::kQueueFull);
    return QueueFull(" requests would wait", requests, "max_queued",
                     options.max_queued);
  }
  if (tokens > options.max_queued_tokens) {
    metrics.CountRejected(RejectReason::kQueueFull);
    return QueueFull(" prompt tokens would wait", tokens, "max_queued_tokens",
                     options.max_queued_tokens);
  }
  return absl::OkStatus();
}

absl::Status Scheduler::Submit(TurnRequest request,
                               std::shared_ptr<TokenStream> stream) {
  Impl& impl = *impl_;
  if (request.arrival_ns == 0) request.arrival_ns = impl.clock.MonotonicNs();
  {
    MutexLock lock(impl.mu);
    if (absl::Status status = impl.CheckLimits(request); !status.ok()) {
      return status;
    }
    stream->SetReaderWakeup([signals = impl.signals] {
      signals->stream_changed = true;
      signals->waker.Wake();
    });
    ++impl.open;
    impl.queue.Push(
        std::make_unique<Turn>(std::move(request), std::move(stream)));
  }
  impl.signals->waker.Wake();
  return absl::OkStatus();
}

void Scheduler::BeginDrain() {
  MutexLock lock(impl_->mu);
  impl_->draining = true;
}

bool Scheduler::idle() const {
  MutexLock lock(impl_->mu);
  return impl_->open == 0;
}

void Scheduler::Run() {
  while (!impl_->stopping) {
    if (RunOnce()) continue;
    impl_->signals->waker.Sleep(idle() ? std::nullopt : std::optional(kTickMs));
  }
}

void Scheduler::Stop() {
  impl_->stopping = true;
  impl_->signals->waker.Wake();
}

bool Scheduler::RunOnce() {
  bool worked = impl_->TakeCommitted();
  worked |= impl_->TakeAcquired();
  worked |= impl_->EndWaiting();
  worked |= impl_->Admit();
  worked |= impl_->batch.EndTurns();
  worked |= impl_->batch.Step();
  impl_->CountTurns(impl_->batch.ForgetClosed());
  return worked;
}

// ---- The executor's threads ------------------------------------------------

absl::StatusOr<SessionLease> Scheduler::Impl::AcquireFirst(
    const TurnRequest& request) {
  if (request.session.has_value()) {
    return sessions.Acquire(*request.session, request.acquire);
  }
  if (request.preset.has_value()) {
    return sessions.AcquirePreset(*request.preset);
  }
  if (request.snapshot.has_value()) {
    return sessions.client_states().Acquire(*request.snapshot);
  }
  return sessions.AcquireStateless();
}

// All or none: a turn that had some and waited for the others could wait for
// another that does the same.
absl::StatusOr<std::vector<SessionLease>> Scheduler::Impl::AcquireAll(
    const TurnRequest& request) {
  std::vector<SessionLease> leases;
  for (int32_t i = 0; i < request.n; ++i) {
    absl::StatusOr<SessionLease> lease =
        i == 0 ? AcquireFirst(request) : sessions.AcquireStateless();
    if (!lease.ok()) return lease.status();
    leases.push_back(*std::move(lease));
  }
  return leases;
}

void Scheduler::Impl::PostAcquired(Turn* turn) {
  {
    MutexLock lock(mu);
    acquired.push_back(turn);
  }
  signals->waker.Wake();
}

void Scheduler::Impl::PostCommitted(Completion* completion) {
  {
    MutexLock lock(mu);
    committed.push_back(completion);
  }
  signals->waker.Wake();
}

// ---- The scheduler's thread ------------------------------------------------

bool Scheduler::Impl::TakeCommitted() {
  committed_now.clear();
  {
    MutexLock lock(mu);
    committed_now.swap(committed);
  }
  for (Completion* completion : committed_now) batch.Committed(*completion);
  return !committed_now.empty();
}

bool Scheduler::Impl::TakeAcquired() {
  acquired_now.clear();
  {
    MutexLock lock(mu);
    acquired_now.swap(acquired);
  }
  for (Turn* turn : acquired_now) {
    const auto place =
        std::find_if(acquiring.begin(), acquiring.end(),
                     [turn](const auto& owned) { return owned.get() == turn; });
    CHECK(place != acquiring.end());
    std::unique_ptr<Turn> owned = std::move(*place);
    acquiring.erase(place);
    Acquired(std::move(owned));
  }
  return !acquired_now.empty();
}

void Scheduler::Impl::Acquired(std::unique_ptr<Turn> turn) {
  acquiring_slots -= turn->request.n;
  if (turn->closed) {  // cancelled meanwhile; the leases go back
    turn = nullptr;
    CountTurns(/*closed=*/1);
    return;
  }
  if (turn->leases.ok() && turn->leases->front().repeated() != nullptr) {
    AnswerAgain(*turn->leases->front().repeated(), *turn->stream);
    turn = nullptr;
    CountTurns(/*closed=*/1);
    return;
  }
  if (turn->leases.ok()) {
    batch.Add(std::move(turn));
    return;
  }
  const absl::Status status = turn->leases.status();
  if (IsOutOfSlots(status)) {
    retry_ns = clock.MonotonicNs() + kTickMs * kNsPerMs;
    refused_leases = batch.leases();
    turn->refusal = status;
    MutexLock lock(mu);
    queue.PutBack(std::move(turn));
    return;
  }
  if (absl::IsAborted(status)) {
    metrics.CountRejected(RejectReason::kSessionBusy);
  } else if (absl::IsResourceExhausted(status)) {
    metrics.CountRejected(RejectReason::kQuota);
  }
  turn->stream->Close(status);
  turn = nullptr;
  CountTurns(/*closed=*/1);
}

// Looks at every waiting turn, which takes a lock of each: when a stream was
// cancelled, else once a tick and not once a step.
bool Scheduler::Impl::EndWaiting() {
  const int64_t now_ns = clock.MonotonicNs();
  const bool changed = signals->stream_changed.exchange(false);
  if (!changed && now_ns < next_look_ns) return false;
  next_look_ns = now_ns + kTickMs * kNsPerMs;
  std::vector<std::unique_ptr<Turn>> over;
  {
    MutexLock lock(mu);
    over = queue.RemoveIf([&](const Turn& turn) {
      return !WhyOver(turn, /*queued=*/true, now_ns).ok();
    });
  }
  for (const std::unique_ptr<Turn>& turn : over) {
    CloseWaiting(*turn, WhyOver(*turn, /*queued=*/true, now_ns));
  }
  const int64_t closed = static_cast<int64_t>(over.size());
  if (closed > 0) CountTurns(closed);
  bool worked = closed > 0;
  for (const std::unique_ptr<Turn>& turn : acquiring) {
    if (turn->closed) continue;
    const absl::Status why = WhyOver(*turn, /*queued=*/false, now_ns);
    if (why.ok()) continue;
    CloseWaiting(*turn, why);
    worked = true;
  }
  return worked;
}

// Why a turn that waits will not start; OK if it may.
absl::Status Scheduler::Impl::WhyOver(const Turn& turn, bool queued,
                                      int64_t now_ns) const {
  if (const auto cause = turn.stream->cancelled(); cause.has_value()) {
    return CancelledStatus(*cause, options.slow_reader_timeout_ms);
  }
  if (TimeIsUp(turn.request, now_ns)) {
    return absl::DeadlineExceededError(
        "stopping.time_limit_ms: " +
        std::to_string(*turn.request.time_limit_ms) +
        " ms passed before the request could start");
  }
  if (queued &&
      now_ns - turn.request.arrival_ns >= options.queue_timeout_ms * kNsPerMs) {
    std::string text = "the request waited for " +
                       std::to_string(options.queue_timeout_ms) +
                       " ms, the limit (queue_timeout_ms)";
    if (!turn.refusal.ok()) {
      text += "; last: ";
      text += FromAbsl(turn.refusal.message());
    }
    return absl::ResourceExhaustedError(text);
  }
  return absl::OkStatus();
}

void Scheduler::Impl::CloseWaiting(Turn& turn, absl::Status why) {
  if (const auto cause = turn.stream->cancelled(); cause.has_value()) {
    metrics.CountCancellation(*cause);
  } else if (absl::IsResourceExhausted(why)) {
    metrics.CountRejected(RejectReason::kQueueTimeout);
  }
  turn.closed = true;
  turn.stream->Close(std::move(why));
}

bool Scheduler::Impl::Admit() {
  const int64_t now_ns = clock.MonotonicNs();
  // Who found no slot keeps its place, so nobody else is admitted before.
  if (now_ns < retry_ns && batch.leases() >= refused_leases) return false;
  bool worked = false;
  while (std::unique_ptr<Turn> next = NextToAdmit()) {
    worked = true;
    if (absl::Status why = WhyOver(*next, /*queued=*/true, now_ns); !why.ok()) {
      CloseWaiting(*next, std::move(why));
      next = nullptr;
      CountTurns(/*closed=*/1);
      continue;
    }
    Turn* turn = next.get();
    turn->admitted_ns = now_ns;
    acquiring_slots += turn->request.n;
    acquiring.push_back(std::move(next));
    executor.Run([this, turn] {
      turn->leases = AcquireAll(turn->request);
      PostAcquired(turn);
    });
  }
  return worked;
}

// The first in the queue, if its completions may run with those there are.
std::unique_ptr<Turn> Scheduler::Impl::NextToAdmit() {
  MutexLock lock(mu);
  const Turn* front = queue.Front();
  if (front == nullptr) return nullptr;
  const int64_t more = acquiring_slots + front->request.n;
  if (batch.running() + more > options.max_running) return nullptr;
  if (batch.leases() + more > sessions.num_slots()) return nullptr;
  return queue.Pop();
}

void Scheduler::Impl::CountTurns(int64_t closed) {
  std::array<int64_t, 3> now;
  {
    MutexLock lock(mu);
    open -= closed;
    now = {batch.turns() + static_cast<int64_t>(acquiring.size()), queue.size(),
           queue.prompt_tokens()};
  }
  if (now == gauges) return;
  gauges = now;
  metrics.SetRequests(now[0], now[1], now[2]);
}

}  // namespace reprise
