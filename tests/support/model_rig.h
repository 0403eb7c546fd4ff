// A scheduler on a real model, with everything else around it in a test's
// hands. Tokens in, tokens out: no text is looked at.
#ifndef TESTS_SUPPORT_MODEL_RIG_H_
#define TESTS_SUPPORT_MODEL_RIG_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "server/metrics.h"
#include "server/scheduler.h"
#include "server/session_manager.h"
#include "server/store/snapshot_store.h"
#include "tests/support/answer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/manual_executor.h"

namespace reprise {

class ModelRig {
 public:
  ModelRig(const std::string& dir, const SchedulerOptions& options)
      : engine_(*LoadEngine({.model_dir = dir,
                             .weights = WeightType::kF32,
                             .max_context = 4096})),
        // A piece for every token, whatever it is.
        tokenizer_(std::vector<std::string>(
            static_cast<size_t>(engine_->info().vocab_size), "a")),
        sessions_(*SessionManager::Create(engine_->info().fingerprints,
                                          engine_->layout(),
                                          engine_->info().vocab_size, *store_,
                                          metrics_, clock_, {.num_slots = 4})),
        scheduler_(*engine_, tokenizer_, *sessions_, executor_, metrics_,
                   clock_, options) {}

  int64_t vocab_size() const { return engine_->info().vocab_size; }
  SessionManager& sessions() { return *sessions_; }

  // Runs all requests together.
  std::vector<Answer> Run(std::vector<TurnRequest> requests) {
    std::vector<std::shared_ptr<TokenStream>> streams;
    for (TurnRequest& request : requests) {
      streams.push_back(std::make_shared<TokenStream>(/*max_deltas=*/1000));
      EXPECT_EQ(scheduler_.Submit(std::move(request), streams.back()),
                absl::OkStatus());
    }
    while (!scheduler_.idle()) {
      executor_.RunAll();
      scheduler_.RunOnce();
    }
    std::vector<Answer> answers(streams.size());
    for (size_t i = 0; i < streams.size(); ++i) answers[i].Read(*streams[i]);
    return answers;
  }

 private:
  FakeClock clock_;
  Metrics metrics_{"model"};
  ManualExecutor executor_;
  std::unique_ptr<SnapshotStore> store_ = NewMemoryStore();
  std::unique_ptr<Engine> engine_;
  FakeTokenizer tokenizer_;
  std::unique_ptr<SessionManager> sessions_;
  Scheduler scheduler_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_MODEL_RIG_H_
