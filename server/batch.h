// The turns that have their slots: the steps they take together, their answers,
// their ends. The queue before them is the scheduler's.
#ifndef SERVER_BATCH_H_
#define SERVER_BATCH_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/engine.h"
#include "engine/tokenizer.h"
#include "server/executor.h"
#include "server/metrics.h"
#include "server/plan_step.h"
#include "server/prefix_cache.h"
#include "server/session_manager.h"
#include "server/team_sampler.h"
#include "server/turn.h"

namespace reprise {

struct BatchOptions {
  int64_t prefill_rows = 0;
  int64_t slow_reader_timeout_ms = 0;
  int64_t prefix_cache_bytes = 0;
};

// Used by the scheduler's thread only.
class Batch {
 public:
  // All must outlive the batch. `on_committed` is called on the executor, with
  // a completion whose `revision` is there; Committed takes it in.
  Batch(Engine& engine, const Tokenizer& tokenizer, SessionManager& sessions,
        Executor& executor, Metrics& metrics, const Clock& clock,
        const BatchOptions& options,
        std::function<void(Completion*)> on_committed);
  // Gives back every lease and closes what is still open with Unavailable. No
  // commit may be running.
  ~Batch();

  // Takes in a turn whose leases were acquired.
  void Add(std::unique_ptr<Turn> turn);
  void Committed(Completion& completion);

  // Ends the turns that were cancelled, ran out of time or are not read, and
  // notes which streams are full. Returns whether there was one to end.
  bool EndTurns();
  // Plans and runs one step. Returns false if there was nothing to run.
  bool Step();
  // Destroys the turns that are over and returns how many they were.
  int64_t ForgetClosed();

  int64_t turns() const { return static_cast<int64_t>(turns_.size()); }
  // Completions that take part in steps.
  int64_t running() const { return running_; }
  // Slots that are held: theirs, and of those that commit.
  int64_t leases() const { return leases_; }

 private:
  std::vector<int64_t> StartFromPrefix(Turn& turn, SessionLease& lease);
  void KeepPrefix(Completion& completion);
  void PushStarted(Turn& turn);
  void PromptRead(Turn& turn);
  void Interrupt(Turn& turn, FinishReason reason, bool keep);
  bool FillPlan();
  void AddPlannable(const Turn& turn);
  void SampleTokens(MatrixView<float> logits);
  void Advance(Completion& completion, int64_t rows, MatrixView<float> logits);
  void CountToken(Completion& completion);
  void ObserveStep(int64_t start_ns);
  void PushDelta(Completion& completion);
  void Finish(Completion& completion);
  void CompleteOutcome(Completion& completion);
  // On the executor.
  absl::StatusOr<KeptState> Keep(Completion& completion);
  void Finished(Completion& completion, KeptState kept);
  void DropLease(Completion& completion);
  void Failed(Turn& turn, const absl::Status& status);
  void Close(Turn& turn, absl::Status status);
  RequestTimings TimingsOf(const Completion& completion) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  SessionManager& sessions_;
  Executor& executor_;
  Metrics& metrics_;
  const Clock& clock_;
  const BatchOptions options_;
  const std::function<void(Completion*)> on_committed_;
  TeamSampler sampler_;
  PrefixCache prefixes_;

  std::vector<std::unique_ptr<Turn>> turns_;  // in the order of their start
  int64_t running_ = 0;
  int64_t leases_ = 0;

  // Of the step being made; kept for their memory.
  std::vector<Completion*> active_;
  std::vector<PlannableSequence> plannable_;
  std::vector<PlannedSegment> plan_;
  std::vector<StepSegment> segments_;
  int64_t step_end_ns_ = 0;
  int64_t last_step_end_ns_ = 0;
  int64_t tokens_ = 0;     // sampled in this step
  int64_t even_gaps_ = 0;  // of them, those one step after the one before
};

}  // namespace reprise

#endif  // SERVER_BATCH_H_
