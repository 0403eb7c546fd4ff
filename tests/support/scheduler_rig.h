// A scheduler with everything around it that a test holds in its hands: fake
// engine, tokenizer and clock, a store in memory, tasks that run when told to.
#ifndef TESTS_SUPPORT_SCHEDULER_RIG_H_
#define TESTS_SUPPORT_SCHEDULER_RIG_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/metrics.h"
#include "server/scheduler.h"
#include "server/session_manager.h"
#include "server/store/snapshot_store.h"
#include "tests/support/answer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_engine.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/faulty_store.h"
#include "tests/support/manual_executor.h"
#include "tests/support/token_trace.h"

namespace reprise {

class SchedulerRig {
 public:
  struct Options {
    FakeEngine::Options engine;
    FakeTokenizer tokenizer;
    SchedulerOptions scheduler;
    SessionManagerOptions sessions;
  };

  SchedulerRig() : SchedulerRig(Options()) {}
  explicit SchedulerRig(Options options)
      : engine(options.engine), tokenizer(std::move(options.tokenizer)) {
    engine.before_step = [this](std::span<const StepSegment> segments) {
      trace.Watch(engine, segments);
    };
    auto manager = SessionManager::Create(
        engine.info().fingerprints, engine.layout(), engine.info().vocab_size,
        store, metrics, clock, options.sessions);
    CHECK(manager.ok());
    sessions = *std::move(manager);
    scheduler =
        std::make_unique<Scheduler>(engine, tokenizer, *sessions, executor,
                                    metrics, clock, options.scheduler);
  }
  ~SchedulerRig() { executor.RunAll(); }

  // Submits; the request is expected to be taken.
  std::shared_ptr<TokenStream> Submit(TurnRequest request,
                                      int64_t max_deltas = 1'000'000) {
    auto stream = std::make_shared<TokenStream>(max_deltas);
    EXPECT_EQ(scheduler->Submit(std::move(request), stream), absl::OkStatus());
    return stream;
  }

  // One round, after the tasks that wait. Returns whether anything happened.
  bool Round() {
    const bool ran = executor.RunAll() > 0;
    return scheduler->RunOnce() || ran;
  }
  void RunUntilIdle() {
    for (int i = 0; i < 1'000'000 && !scheduler->idle(); ++i) {
      if (!Round()) clock.AdvanceMs(1);
    }
    EXPECT_TRUE(scheduler->idle());
  }
  Answer Run(TurnRequest request) {
    auto stream = Submit(std::move(request));
    RunUntilIdle();
    Answer answer;
    answer.Read(*stream);
    return answer;
  }

  std::vector<int32_t> Encode(std::string_view text) {
    return *tokenizer.Encode(text, /*allow_special=*/true);
  }

  // A session as it is committed.
  struct Session {
    SessionRecord record;
    FakeState state;
    std::vector<int32_t> tokens;  // all, with the pending one
  };
  Session Look(const std::string& id) {
    auto lease = sessions->Acquire({"", id}, {});
    CHECK(lease.ok());
    Session session;
    session.record = lease->record();
    session.state = engine.Load(lease->slot());
    session.tokens = trace.History(session.state);
    EXPECT_EQ(session.record.position,
              static_cast<int64_t>(session.tokens.size()));
    if (session.record.pending_token.has_value()) {
      session.tokens.push_back(*session.record.pending_token);
    }
    return session;
  }
  // The text of tokens, without an unfinished character at the end.
  std::string TextOf(std::span<const int32_t> tokens) {
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (int32_t token : tokens) text += decoder.Push(token);
    return text;
  }

  FakeClock clock;
  FakeEngine engine;
  FakeTokenizer tokenizer;
  TokenTrace trace;
  Metrics metrics{"fake"};
  std::unique_ptr<SnapshotStore> memory = NewMemoryStore();
  FaultyStore store{*memory};
  ManualExecutor executor;
  std::unique_ptr<SessionManager> sessions;
  std::unique_ptr<Scheduler> scheduler;  // goes first
};

// A turn of session `id` that makes the session if need be; with an empty id,
// a stateless request.
inline TurnRequest MakeTurn(const std::string& id, std::vector<int32_t> prompt,
                            int64_t max_new_tokens = 16, uint64_t seed = 1) {
  TurnRequest request;
  if (!id.empty()) request.session = SessionKey{"", id};
  request.acquire.create = true;
  request.prompt = std::move(prompt);
  request.max_new_tokens = max_new_tokens;
  request.sampling.seed = seed;
  request.want_token_ids = true;
  return request;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_SCHEDULER_RIG_H_
