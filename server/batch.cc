#include "server/batch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/client_states.h"

namespace reprise {
namespace {

double Seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// When the last token was sampled; when the prompt was read, if none was.
int64_t LastTokenNs(const Turn& turn) {
  int64_t last_ns = turn.prompt_read_ns;
  for (const std::unique_ptr<Completion>& completion : turn.completions) {
    last_ns = std::max(last_ns, completion->last_token_ns);
  }
  return last_ns;
}

int64_t LogitRows(const StepSegment& segment) {
  switch (segment.logits) {
    case LogitsFor::kNone:
      return 0;
    case LogitsFor::kLastRow:
      return 1;
    case LogitsFor::kAllRows:
      return static_cast<int64_t>(segment.tokens.size());
  }
  return 0;
}

// InvalidArgument for a turn that has nothing to begin with, or no room for
// the tokens that it asks for.
absl::Status CheckStart(const TurnRequest& request, const SessionRecord& record,
                        std::optional<int64_t> max_context) {
  const bool pending = record.pending_token.has_value();
  if (request.prompt.empty() && !pending) {
    return absl::InvalidArgumentError(absl::StrCat(
        ToAbsl(request.input),
        ": is empty, and the session has no token to continue from"));
  }
  const int64_t before = record.position + (pending ? 1 : 0);
  const int64_t prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t tokens = before + prompt;
  const int64_t most = max_context.value_or(kMaxPosition);
  if (tokens + request.max_new_tokens <= most) return absl::OkStatus();
  // Where the input alone is too much, no number of new tokens would do.
  const bool input = tokens > most;
  return absl::InvalidArgumentError(absl::StrCat(
      input ? ToAbsl(request.input) : "stopping.max_new_tokens", ": ",
      input ? prompt : request.max_new_tokens, " tokens after ",
      input ? before : tokens,
      " of the conversation are more than a session of this model can hold, ",
      most, max_context.has_value() ? " (--max-context of the server)" : ""));
}

// The mean time between a completion's tokens, of which there are two or more.
int64_t NsPerToken(const Completion& completion) {
  return (completion.last_token_ns - completion.first_token_ns) /
         (completion.sequence->generated() - 1);
}

}  // namespace

Batch::Batch(Engine& engine, const Tokenizer& tokenizer,
             SessionManager& sessions, Executor& executor, Metrics& metrics,
             const Clock& clock, const BatchOptions& options,
             std::function<void(Completion*)> on_committed)
    : engine_(engine),
      tokenizer_(tokenizer),
      sessions_(sessions),
      executor_(executor),
      metrics_(metrics),
      clock_(clock),
      options_(options),
      on_committed_(std::move(on_committed)),
      sampler_(engine.info().vocab_size),
      prefixes_(engine.layout(), options.prefix_cache_bytes) {}

Batch::~Batch() {
  for (const std::unique_ptr<Turn>& turn : turns_) {
    if (turn->closed) continue;
    metrics_.CountCancellation(CancelCause::kShutdown);
    turn->completions.clear();  // and with them the leases
    turn->stream->Close(CancelledStatus(CancelCause::kShutdown,
                                        options_.slow_reader_timeout_ms));
  }
}

// ---- The beginning ---------------------------------------------------------

void Batch::Add(std::unique_ptr<Turn> added) {
  turns_.push_back(std::move(added));
  Turn& turn = *turns_.back();
  CHECK(turn.leases.ok() && !turn.leases->empty());
  SessionLease& lease = turn.leases->front();
  const SessionRecord& record = lease.record();
  const int64_t leases = static_cast<int64_t>(turn.leases->size());
  leases_ += leases;
  running_ += leases;
  turn.leased_ns = clock_.MonotonicNs();
  absl::Status status = SettlePrompt(record, turn.request);
  turn.resume_us = lease.resume_us();
  turn.unfinished = static_cast<int32_t>(leases);
  turn.usage.prompt_tokens = static_cast<int64_t>(turn.request.prompt.size());
  turn.usage.cached_tokens = record.position;
  turn.started.prompt_tokens = turn.usage.prompt_tokens;
  turn.started.cached_tokens = turn.usage.cached_tokens;
  turn.source = lease.source();
  turn.started.resumed_from = turn.source;
  turn.started.resume_reason = lease.resume_reason();
  if (!lease.stateless() || turn.request.snapshot.has_value()) {
    turn.revision_before = record.revision;
  }
  if (turn.request.snapshot.has_value()) {
    turn.request.snapshot->snapshot = std::string();
  }
  turn.started.revision = turn.revision_before;
  if (status.ok()) {
    status = CheckStart(turn.request, record, engine_.layout().max_context());
  }
  if (!status.ok()) {
    turn.leases->clear();
    leases_ -= leases;
    running_ -= leases;
    Close(turn, std::move(status));
    return;
  }
  std::vector<int64_t> save = StartFromPrefix(turn, lease);
  turn.completions.push_back(std::make_unique<Completion>(
      turn,
      std::make_unique<Sequence>(turn.request, tokenizer_, engine_.layout(),
                                 std::move(lease), std::move(save))));
  Completion& first = *turn.completions.front();
  if (turn.request.prompt_logprobs != PromptLogprobs::kWithStarted) {
    PushStarted(turn);
  }
  if (first.sequence->prompt_read()) PromptRead(turn);
  if (first.sequence->ended()) Finish(first);
}

void Batch::PushStarted(Turn& turn) {
  turn.stream->Push(std::move(turn.started));
}

// The other completions begin here, as copies of the first.
void Batch::PromptRead(Turn& turn) {
  turn.prompt_read_ns = clock_.MonotonicNs();
  metrics_.AddPromptTokens(turn.usage.prompt_tokens - turn.prefix_tokens,
                           turn.usage.cached_tokens);
  Sequence& first = *turn.completions.front()->sequence;
  if (turn.request.prompt_logprobs == PromptLogprobs::kWithStarted) {
    turn.started.prompt_logprobs = first.TakePromptLogprobs();
    PushStarted(turn);
  }
  for (size_t i = 1; i < turn.leases->size(); ++i) {
    turn.completions.push_back(std::make_unique<Completion>(
        turn,
        first.Fork(static_cast<int32_t>(i), std::move((*turn.leases)[i]))));
    Completion& fork = *turn.completions.back();
    if (fork.sequence->ended()) Finish(fork);
  }
  turn.leases->clear();
}

// ---- Steps -----------------------------------------------------------------

bool Batch::FillPlan() {
  active_.clear();
  plannable_.clear();
  // The planner serves in this order. A text that is only scored may be long,
  // and nobody waits for its first token.
  for (const bool streamed : {false, true}) {
    for (const std::unique_ptr<Turn>& turn : turns_) {
      if (StreamsPrompt(turn->request) == streamed) AddPlannable(*turn);
    }
  }
  PlanStep(plannable_, options_.prefill_rows, engine_.max_rows(), plan_);
  return !plan_.empty();
}

void Batch::AddPlannable(const Turn& turn) {
  for (const std::unique_ptr<Completion>& completion : turn.completions) {
    const Sequence& sequence = *completion->sequence;
    if (sequence.ended()) continue;
    const bool streams = sequence.decoding() || StreamsPrompt(turn.request);
    active_.push_back(completion.get());
    plannable_.push_back({.prefill_tokens = sequence.prefill_tokens(),
                          .paused = turn.full && streams});
  }
}

bool Batch::Step() {
  if (!FillPlan()) return false;
  segments_.clear();
  for (const PlannedSegment& planned : plan_) {
    Sequence& sequence = *active_[planned.sequence]->sequence;
    segments_.push_back(sequence.NextSegment(planned.rows));
  }
  const int64_t start_ns = clock_.MonotonicNs();
  const MatrixView<float> logits = engine_.Step(segments_);
  step_end_ns_ = clock_.MonotonicNs();
  tokens_ = 0;
  even_gaps_ = 0;
  ObserveStep(start_ns);
  SampleTokens(logits);
  int64_t row = 0;
  for (size_t i = 0; i < plan_.size(); ++i) {
    const int64_t rows = LogitRows(segments_[i]);
    Advance(*active_[plan_[i].sequence], plan_[i].rows, logits.Rows(row, rows));
    row += rows;
  }
  if (tokens_ > 0) metrics_.AddGeneratedTokens(tokens_);
  if (even_gaps_ > 0) {
    metrics_.ObserveInterToken(Seconds(step_end_ns_ - last_step_end_ns_),
                               even_gaps_);
  }
  last_step_end_ns_ = step_end_ns_;
  return true;
}

void Batch::ObserveStep(int64_t start_ns) {
  int64_t rows = 0;
  bool prefill = false, decode = false;
  for (const PlannedSegment& planned : plan_) {
    rows += planned.rows;
    const bool decoding = active_[planned.sequence]->sequence->decoding();
    decode |= decoding;
    prefill |= !decoding;
  }
  const Phase phase = prefill && decode ? Phase::kMixed
                      : prefill         ? Phase::kPrefill
                                        : Phase::kDecode;
  metrics_.ObserveStep(phase, rows, Seconds(step_end_ns_ - start_ns));
}

void Batch::SampleTokens(MatrixView<float> logits) {
  int64_t row = 0;
  for (size_t i = 0; i < plan_.size(); ++i) {
    Sequence& sequence = *active_[plan_[i].sequence]->sequence;
    if (sequence.decoding()) sampler_.Add(sequence, logits.RowSpan(row));
    row += LogitRows(segments_[i]);
  }
  sampler_.SampleAll();
}

void Batch::Advance(Completion& completion, int64_t rows,
                    MatrixView<float> logits) {
  Sequence& sequence = *completion.sequence;
  const bool was_read = sequence.prompt_read();
  const int64_t generated = sequence.generated();
  sequence.Advance(rows, logits);
  KeepPrefix(completion);
  if (sequence.generated() > generated) CountToken(completion);
  if (!was_read && sequence.prompt_read()) PromptRead(completion.turn);
  PushDelta(completion);
  if (sequence.ended()) Finish(completion);
}

void Batch::CountToken(Completion& completion) {
  Turn& turn = completion.turn;
  ++tokens_;
  ++turn.usage.completion_tokens;
  if (completion.first_token_ns == 0) {
    completion.first_token_ns = step_end_ns_;
    if (completion.sequence->index() == 0) {
      metrics_.ObserveFirstToken(
          turn.source, Seconds(step_end_ns_ - turn.request.arrival_ns));
    }
  } else if (completion.last_token_ns == last_step_end_ns_) {
    ++even_gaps_;
  } else {
    metrics_.ObserveInterToken(Seconds(step_end_ns_ - completion.last_token_ns),
                               /*count=*/1);
  }
  completion.last_token_ns = step_end_ns_;
}

void Batch::PushDelta(Completion& completion) {
  if (!completion.sequence->has_delta()) return;
  DeltaEvent delta = completion.sequence->TakeDelta();
  delta.usage = completion.turn.usage;
  if (RecordsOutcome(completion.turn.request)) {
    completion.turn.outcome.Add(delta.text, delta.token_ids);
  }
  completion.turn.stream->Push(std::move(delta));
}

// ---- The end ---------------------------------------------------------------

bool Batch::EndTurns() {
  const int64_t now_ns = clock_.MonotonicNs();
  bool ended = false;
  for (const std::unique_ptr<Turn>& turn : turns_) {
    const bool live =
        std::any_of(turn->completions.begin(), turn->completions.end(),
                    [](const auto& completion) { return completion->live(); });
    if (!live) continue;
    const bool was_full = std::exchange(turn->full, turn->stream->full());
    if (turn->full && !was_full) turn->full_since_ns = now_ns;
    if (turn->full && now_ns - turn->full_since_ns >=
                          options_.slow_reader_timeout_ms * kNsPerMs) {
      turn->stream->Cancel(CancelCause::kSlowReader);
    }
    if (const auto cause = turn->stream->cancelled(); cause.has_value()) {
      metrics_.CountCancellation(*cause);
      turn->status = CancelledStatus(*cause, options_.slow_reader_timeout_ms);
      Interrupt(*turn, FinishReason::kCancelled, turn->request.keep_on_cancel);
      ended = true;
    } else if (TimeIsUp(turn->request, now_ns)) {
      Interrupt(*turn, FinishReason::kTimeLimit, /*keep=*/true);
      ended = true;
    }
  }
  return ended;
}

void Batch::Interrupt(Turn& turn, FinishReason reason, bool keep) {
  const bool read = turn.completions.front()->sequence->prompt_read();
  if (!read && turn.request.prompt_logprobs == PromptLogprobs::kWithStarted) {
    PushStarted(turn);
  }
  // Completions that had not begun yet hold their slots all the same.
  for (size_t i = 1; i < turn.leases->size(); ++i) {
    FinishedEvent event;
    event.index = static_cast<int32_t>(i);
    event.reason = reason;
    event.usage = turn.usage;
    event.timings = TimingsOf(*turn.completions.front());
    turn.stream->Push(std::move(event));
    --turn.unfinished;
    --running_;
    --leases_;
  }
  turn.leases->clear();
  for (const std::unique_ptr<Completion>& completion : turn.completions) {
    if (!completion->live()) continue;
    completion->sequence->Interrupt(reason, keep);
    PushDelta(*completion);
    Finish(*completion);
  }
}

void Batch::Finish(Completion& completion) {
  Sequence& sequence = *completion.sequence;
  --running_;
  if (!sequence.status().ok()) {
    DropLease(completion);
    Failed(completion.turn, sequence.status());
    return;
  }
  if (!sequence.to_commit() && !sequence.to_seal()) {
    DropLease(completion);
    Finished(completion, KeptState());
    return;
  }
  completion.commit_start_ns = clock_.MonotonicNs();
  if (RecordsOutcome(completion.turn.request)) CompleteOutcome(completion);
  executor_.Run([this, &completion] {
    completion.kept = Keep(completion);
    on_committed_(&completion);
  });
}

// Sealed first: what the client cannot be given is not committed either.
absl::StatusOr<KeptState> Batch::Keep(Completion& completion) {
  const TurnRequest& request = completion.turn.request;
  Sequence& sequence = *completion.sequence;
  const bool commit = sequence.to_commit();
  const bool seal = sequence.to_seal();
  SessionLease lease = sequence.TakeLease();
  KeptState kept;
  if (seal) {
    SessionKey from{request.tenant, ""};
    if (request.session.has_value()) from.id = request.session->id;
    if (request.snapshot.has_value()) from.id = request.snapshot->label.session;
    ASSIGN_OR_RETURN(kept.sealed, sessions_.client_states().Seal(
                                      from, lease, *request.seal));
  }
  if (commit) {
    ASSIGN_OR_RETURN(kept.revision, sessions_.Commit(std::move(lease),
                                                     completion.turn.outcome));
  }
  return kept;
}

void Batch::CompleteOutcome(Completion& completion) {
  Turn& turn = completion.turn;
  const Sequence& sequence = *completion.sequence;
  TurnOutcome& outcome = turn.outcome;
  outcome.reason = sequence.reason();
  outcome.matched_stop = sequence.matched_stop();
  outcome.matched_token = sequence.matched_token();
  outcome.usage = turn.usage;
  outcome.seed = turn.request.sampling.seed;
  outcome.revision_before = turn.revision_before;
}

void Batch::Committed(Completion& completion) {
  --leases_;
  if (!completion.kept.ok()) {
    Failed(completion.turn, completion.kept.status());
    return;
  }
  Finished(completion, *std::move(completion.kept));
}

void Batch::DropLease(Completion& completion) {
  SessionLease dropped = completion.sequence->TakeLease();
  --leases_;
}

// The turn's other completions hold leases and may be committing: it is closed
// with the last of them.
void Batch::Failed(Turn& turn, const absl::Status& status) {
  turn.status = status;
  if (--turn.unfinished == 0) Close(turn, turn.status);
}

void Batch::Finished(Completion& completion, KeptState kept) {
  Turn& turn = completion.turn;
  const Sequence& sequence = *completion.sequence;
  FinishedEvent event;
  event.index = sequence.index();
  event.reason = sequence.reason();
  event.matched_stop = sequence.matched_stop();
  event.matched_token = sequence.matched_token();
  event.usage = turn.usage;
  event.timings = TimingsOf(completion);
  if (sequence.generated() > 1) {
    metrics_.ObserveTimePerOutputToken(Seconds(NsPerToken(completion)));
  }
  event.revision = kept.revision;
  event.sealed = std::move(kept.sealed);
  turn.stream->Push(std::move(event));
  if (--turn.unfinished > 0) return;

  RequestObservation observed;
  observed.queue_seconds = Seconds(turn.admitted_ns - turn.request.arrival_ns);
  if (turn.prompt_read_ns > 0) {
    observed.prefill_seconds = Seconds(turn.prompt_read_ns - turn.leased_ns);
    observed.decode_seconds = Seconds(LastTokenNs(turn) - turn.prompt_read_ns);
  }
  observed.prompt_tokens = turn.usage.prompt_tokens - turn.prefix_tokens;
  observed.generated_tokens = turn.usage.completion_tokens;
  metrics_.ObserveRequest(observed);
  Close(turn, turn.status);
}

RequestTimings Batch::TimingsOf(const Completion& completion) const {
  const Turn& turn = completion.turn;
  const int64_t now_ns = clock_.MonotonicNs();
  const int64_t arrival_ns = turn.request.arrival_ns;
  RequestTimings timings;
  timings.queue_us = (turn.admitted_ns - arrival_ns) / 1000;
  timings.resume_us = turn.resume_us;
  if (turn.prompt_read_ns > 0) {
    timings.prefill_us = (turn.prompt_read_ns - turn.leased_ns) / 1000;
  }
  const int64_t generated = completion.sequence->generated();
  if (generated > 0) {
    timings.first_token_us = (completion.first_token_ns - arrival_ns) / 1000;
  }
  if (generated > 1) {
    timings.per_token_us = NsPerToken(completion) / 1000;
  }
  if (completion.commit_start_ns > 0) {
    timings.commit_us = (now_ns - completion.commit_start_ns) / 1000;
  }
  timings.total_us = (now_ns - arrival_ns) / 1000;
  return timings;
}

void Batch::Close(Turn& turn, absl::Status status) {
  turn.closed = true;
  turn.stream->Close(std::move(status));
}

int64_t Batch::ForgetClosed() {
  return static_cast<int64_t>(std::erase_if(
      turns_, [](const std::unique_ptr<Turn>& turn) { return turn->closed; }));
}

}  // namespace reprise
