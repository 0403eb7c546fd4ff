// Random schedules of everything that can happen to turns: arrivals, cancels,
// slow readers, suspends, passing time, a failing store, tasks in any order.
// Whatever the order, every answer must be what a plain loop gives from the
// revision that it started from, and the sessions a line of such answers.
//
//   REPRISE_SIMULATION_SEEDS=100000  more than the usual number of runs
//   REPRISE_SIMULATION_SEED=123      that run alone
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "server/scheduler.h"
#include "tests/support/reference_completion.h"
#include "tests/support/reference_stop.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

// One request and what has been seen of its answer.
struct Client {
  TurnRequest request;
  std::shared_ptr<TokenStream> stream;
  Answer answer;
};

// How often what happened, over all runs: none of it may be missing.
using Tally = std::map<std::string, int>;

class Simulation {
 public:
  Simulation(uint64_t seed, Tally& tally) : random_(seed), tally_(tally) {
    SchedulerRig::Options options;
    options.engine.max_rows = 128 + Below(400);
    options.sessions.num_slots = 2 + Below(5);
    options.sessions.memory_tier_bytes = Below(2) ? 0 : 1 << 20;
    options.sessions.idle_timeout_ms = 50;
    options.scheduler.max_running = 1 + Below(8);
    options.scheduler.prefill_rows = 1 + Below(200);
    options.scheduler.max_queued = 6;
    options.scheduler.queue_timeout_ms = 300;
    options.scheduler.slow_reader_timeout_ms = 200;
    rig_ = std::make_unique<SchedulerRig>(std::move(options));
  }

  void Run() {
    const int64_t actions = 50 + Below(200);
    for (int64_t i = 0; i < actions; ++i) Act();
    rig_->store.FailWithProbability(0);
    rig_->store.FailCall(0, StoreFault::kUnavailable);  // none
    Finish();
    for (const Client& client : clients_) CheckStatus(client);
    for (const std::string& id : ids_) CheckSession(id);
    for (const Client& client : clients_) {
      if (!client.request.session) CheckAnswer(client, ReferenceSession());
    }
    rig_->sessions->SuspendAll();
    EXPECT_EQ(rig_->sessions->num_free_slots(), rig_->sessions->num_slots());
  }

 private:
  int64_t Below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }
  Client& AnyClient() { return clients_[Below(std::ssize(clients_))]; }
  const std::string& AnyId() { return ids_[Below(std::ssize(ids_))]; }

  void Act() {
    const int64_t dice = Below(100);
    if (dice < 12 || clients_.empty()) return Submit();
    if (dice < 45) {
      rig_->scheduler->RunOnce();
    } else if (dice < 65) {
      if (const size_t waiting = rig_->executor.waiting(); waiting > 0) {
        rig_->executor.RunTask(Below(static_cast<int64_t>(waiting)));
      }
    } else if (dice < 85) {
      Client& client = AnyClient();
      client.answer.Read(*client.stream);
    } else if (dice < 88) {
      AnyClient().stream->Cancel(static_cast<CancelCause>(Below(5)));
    } else if (dice < 92) {
      rig_->sessions->Suspend({"", AnyId()}).status().IgnoreError();
    } else if (dice < 95) {
      rig_->clock.AdvanceMs(Below(4) == 0 ? 100 : 5);
    } else if (dice < 96) {
      rig_->sessions->Sweep();
    } else if (dice < 98) {
      rig_->store.FailWithProbability(Below(2) ? 0 : 0.2);
    } else {
      rig_->store.FailCall(1 + Below(4), static_cast<StoreFault>(Below(3)));
    }
  }

  void Submit() {
    Client client;
    TurnRequest& request = client.request;
    const bool stateless = Below(4) == 0;
    request = MakeTurn(stateless ? "" : AnyId(), {}, Below(25), random_());
    request.tenant = Below(2) ? "one" : "two";
    request.prompt.resize(Below(5) == 0 ? Below(200) : Below(5));
    for (int32_t& token : request.prompt) {
      token = static_cast<int32_t>(Below(32));
    }
    request.sampling.temperature = Below(2) ? 1 : 0;
    request.sampling.repetition_penalty = Below(2) ? 1 : 1.3f;
    request.min_new_tokens = Below(4);
    if (Below(2)) request.eos_tokens = {FakeTokenizer::kEos};
    if (Below(3) == 0) request.stop_tokens = {5};
    if (Below(2)) request.stop = {"ab", "c", "d\n"};
    request.include_stop = Below(2);
    request.commit = Below(5) != 0;
    request.keep_on_cancel = Below(2);
    if (!request.commit || stateless) {
      request.n = static_cast<int32_t>(1 + Below(2));
    }
    if (Below(4) == 0) request.time_limit_ms = Below(100);
    client.stream = std::make_shared<TokenStream>(1 + Below(20));
    const absl::Status status = rig_->scheduler->Submit(request, client.stream);
    if (status.ok()) {
      clients_.push_back(std::move(client));
    } else {
      EXPECT_TRUE(absl::IsResourceExhausted(status) ||
                  absl::IsInvalidArgument(status))
          << status;
    }
  }

  void Finish() {
    for (int i = 0; i < 100'000 && !rig_->scheduler->idle(); ++i) {
      for (Client& client : clients_) client.answer.Read(*client.stream);
      if (!rig_->Round()) rig_->clock.AdvanceMs(1);
    }
    EXPECT_TRUE(rig_->scheduler->idle());
    for (Client& client : clients_) client.answer.Read(*client.stream);
  }

  // -- checks --

  void CheckStatus(const Client& client) {
    ASSERT_TRUE(client.answer.status.has_value());
    const absl::Status& status = *client.answer.status;
    const Answer& answer = client.answer;
    ++tally_[absl::StatusCodeToString(status.code())];
    for (const auto& [index, end] : answer.finished) {
      ++tally_[std::string(FinishReasonName(end.reason)) +
               (end.revision ? " kept" : "")];
    }
    if (status.ok()) {
      EXPECT_TRUE(answer.started.has_value());
      EXPECT_EQ(std::ssize(answer.finished), client.request.n);
      return;
    }
    using absl::StatusCode;
    const StatusCode allowed[] = {
        StatusCode::kCancelled,         StatusCode::kDeadlineExceeded,
        StatusCode::kAborted,           StatusCode::kUnavailable,
        StatusCode::kResourceExhausted, StatusCode::kInvalidArgument};
    EXPECT_NE(std::find(std::begin(allowed), std::end(allowed), status.code()),
              std::end(allowed))
        << status;
  }

  // Walks the revisions of a session from the first to the stored one.
  void CheckSession(const std::string& id) {
    const auto info = rig_->sessions->Get({"", id});
    if (!info.ok()) {
      EXPECT_TRUE(absl::IsNotFound(info.status())) << info.status();
      return;
    }
    const auto stored = rig_->Look(id);
    ReferenceSession session;
    for (uint64_t base = 0; base <= stored.record.revision; ++base) {
      std::optional<ReferenceSession> next =
          CheckTurns(id, base, session, stored.tokens);
      if (base == stored.record.revision) {
        EXPECT_FALSE(next.has_value()) << "a committed turn is lost";
        break;
      }
      ASSERT_TRUE(next.has_value()) << "nobody made revision " << base + 1;
      session = *std::move(next);
      ++tally_["revisions"];
    }
    EXPECT_EQ(stored.tokens, session.tokens);
    EXPECT_EQ(stored.record.sampler.draws, session.memory.draws);
  }

  // Checks the turns that began at a revision, and returns the next one, if
  // there is one: of the turn whose commit was acknowledged, or else of one
  // whose commit failed, since the store may have lost its answer only. That
  // one must fit what is stored now.
  std::optional<ReferenceSession> CheckTurns(const std::string& id,
                                             uint64_t base,
                                             const ReferenceSession& session,
                                             std::span<const int32_t> stored) {
    std::optional<ReferenceSession> next, unsure;
    for (const Client& client : clients_) {
      const Answer& answer = client.answer;
      if (!client.request.session || client.request.session->id != id ||
          !answer.started || answer.started->revision != base) {
        continue;
      }
      const ReferenceSession after = CheckAnswer(client, session);
      const auto end = answer.finished.find(0);
      if (end != answer.finished.end() && end->second.revision) {
        EXPECT_EQ(*end->second.revision, base + 1);
        EXPECT_FALSE(next.has_value()) << "two turns made one revision";
        next = after;
      } else if (end == answer.finished.end() &&
                 after.tokens.size() > session.tokens.size() &&
                 after.tokens.size() <= stored.size() &&
                 std::ranges::equal(after.tokens,
                                    stored.first(after.tokens.size()))) {
        unsure = after;
      }
    }
    return next.has_value() ? next : unsure;
  }

  // Checks every completion of an answer that began at `base`, and returns the
  // session after the first.
  ReferenceSession CheckAnswer(const Client& client,
                               const ReferenceSession& base) {
    ReferenceSession after = base;
    if (!client.answer.started.has_value()) return after;
    EXPECT_EQ(client.answer.started->cached_tokens,
              std::max<int64_t>(0, std::ssize(base.tokens) - 1));
    for (int32_t i = client.request.n - 1; i >= 0; --i) {
      after = base;
      CheckCompletion(client, i, after);
    }
    return after;
  }

  void CheckCompletion(const Client& client, int32_t index,
                       ReferenceSession& session) {
    Answer answer = client.answer;
    TurnRequest request = client.request;
    request.sampling.seed += static_cast<uint64_t>(index);
    ReferenceSession whole = session;
    const auto output = ReferenceTurn(request, whole);
    const ReferenceStop cut =
        ReferenceCut(rig_->tokenizer, request, output, session.pending_text);
    const std::vector<int32_t>& ids = answer.ids[index];
    const auto end = answer.finished.find(index);
    // Without an end the commit failed, after whatever end it was.
    const bool ended = end != answer.finished.end();
    const bool fits_cut =
        cut.found && answer.texts[index] == cut.text && ids == cut.kept;
    if (ended ? end->second.reason == FinishReason::kStopString : fits_cut) {
      EXPECT_TRUE(fits_cut);
      session = AfterStop(request, cut, session);
      return;
    }
    const bool cut_short = !ended ||
                           end->second.reason == FinishReason::kCancelled ||
                           end->second.reason == FinishReason::kTimeLimit;
    if (cut_short) {
      ASSERT_LE(ids.size(), output.size());
    } else {
      EXPECT_FALSE(cut.found);
      ASSERT_EQ(ids.size(), output.size());
    }
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), output.begin()));
    request.max_new_tokens = std::ssize(ids);
    ReferenceTurn(request, session);
    const std::string text =
        ReferenceText(rig_->tokenizer, request, ids, session.pending_text);
    EXPECT_EQ(answer.texts[index], text);
  }

  ReferenceSession AfterStop(const TurnRequest& request,
                             const ReferenceStop& cut,
                             ReferenceSession session) {
    for (int32_t token : request.prompt) {
      ReferenceRemember(token, request, session);
    }
    if (!request.prompt.empty()) session.pending_text.clear();
    for (int32_t token : cut.kept) ReferenceRemember(token, request, session);
    std::string rest = cut.rest;
    if (cut.kept.empty() && !rest.empty()) {
      // The last turn began the first character, or it is a broken one (3
      // bytes of U+FFFD).
      const std::string& begun = session.pending_text;
      if (!begun.empty())
        rest.erase(0, rest.starts_with(begun) ? begun.size() : 3);
    }
    for (int32_t token : rig_->Encode(rest)) {
      ReferenceRemember(token, request, session);
    }
    if (!cut.kept.empty() || !cut.text.empty()) session.pending_text.clear();
    if (request.sampling.temperature > 0) {
      session.memory.draws += cut.kept.size();
    }
    return session;
  }

  std::mt19937_64 random_;
  Tally& tally_;
  const std::vector<std::string> ids_ = {"s0", "s1", "s2"};
  std::unique_ptr<SchedulerRig> rig_;
  std::vector<Client> clients_;
};

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : std::strtoull(value, nullptr, 10);
}

TEST(SchedulerSimulationTest, NoScheduleChangesWhatIsSaid) {
  SetLogLevel(LogLevel::kError);  // the faults are made up
  uint64_t first = 0;
  uint64_t count = FromEnvironment("REPRISE_SIMULATION_SEEDS", 500);
  if (std::getenv("REPRISE_SIMULATION_SEED") != nullptr) {
    first = FromEnvironment("REPRISE_SIMULATION_SEED", 0);
    count = 1;
  }
  Tally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    SCOPED_TRACE("REPRISE_SIMULATION_SEED=" + std::to_string(seed));
    Simulation(seed, tally).Run();
    if (HasFailure()) return;
  }
  if (count < 500) return;
  for (const char* what :
       {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "ABORTED", "UNAVAILABLE",
        "RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "stop", "stop kept",
        "stop_token kept", "stop_string", "stop_string kept", "length",
        "length kept", "time_limit kept", "cancelled", "cancelled kept",
        "revisions"}) {
    EXPECT_GT(tally[what], 10) << what;
  }
}

}  // namespace
}  // namespace reprise
