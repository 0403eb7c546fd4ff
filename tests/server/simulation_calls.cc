// The calls of the Sessions service, each checked against the history.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/server/simulation.h"

namespace reprise {
namespace {

constexpr int64_t kNone = -1;

absl::StatusCode CodeOf(const absl::Status& status) { return status.code(); }
template <typename T>
absl::StatusCode CodeOf(const absl::StatusOr<T>& result) {
  return result.status().code();
}

}  // namespace

// `claimed` is the session that the call keeps from others, for a turn or for
// upkeep.
template <typename Call>
Simulation::Called Simulation::Do(SimulatedStore::Purpose purpose,
                                  const SessionKey& claimed, bool for_turn,
                                  const Call& call) {
  const int64_t faults = store_.faults();
  const int64_t interleaved = interleaved_;
  const int64_t made = std::ssize(store_.history());
  const SessionKey outer_claimed = std::exchange(claimed_, claimed);
  const bool outer_for_turn = std::exchange(claimed_for_turn_, for_turn);
  store_.purpose = purpose;
  ++depth_;
  Called called;
  called.code = CodeOf(call());
  --depth_;
  claimed_ = outer_claimed;
  claimed_for_turn_ = outer_for_turn;
  called.clean = faults == store_.faults() && interleaved == interleaved_;
  for (int64_t i = made; i < std::ssize(store_.history()); ++i) {
    if (Made(i).by == purpose.by && Made(i).key == claimed) {
      called.made.push_back(i);
    }
  }
  Trace(static_cast<uint64_t>(called.code));
  return called;
}

int64_t Simulation::Live(const SessionKey& key) const {
  const int64_t current = store_.Current(key);
  if (current < 0 || store_.writers.contains(key)) return current;
  const int64_t expires = Made(current).expires_unix_ms;
  return expires > 0 && expires <= clock_.UnixMs() ? kNone : current;
}

bool Simulation::Busy(const SessionKey& key) const {
  if (depth_ > 0 && claimed_ == key) return true;
  return std::any_of(clients_.begin(), clients_.end(),
                     [&key](const Client& client) {
                       return !client.settled && client.request.session == key;
                     });
}

std::optional<uint64_t> Simulation::AnyExpectedRevision(const SessionKey& key) {
  if (Below(4) != 0) return std::nullopt;
  const int64_t current = store_.Current(key);
  const uint64_t revision = current < 0 ? 0 : Made(current).revision;
  return Below(4) == 0 ? revision + static_cast<uint64_t>(Below(2)) : revision;
}

void Simulation::CheckCode(const char* name, const Called& called,
                           absl::StatusCode expected, bool busy) {
  ++tally_[std::string(name) + " " + absl::StatusCodeToString(called.code)];
  if (!called.clean) return;
  if (busy && called.code == absl::StatusCode::kAborted) return;
  // What is expired and what is not may be otherwise while turns run.
  if (busy) return;
  EXPECT_EQ(called.code, expected)
      << name << ": " << absl::StatusCodeToString(called.code);
}

// A call that succeeded has made one revision, with the state that it was to
// have; one that failed has made none, unless its answer was lost.
void Simulation::CheckMade(const Called& called, MadeBy by) {
  if (called.code == absl::StatusCode::kOk) {
    ASSERT_EQ(called.made.size(), 1u);
  } else if (called.code != absl::StatusCode::kUnavailable) {
    EXPECT_TRUE(called.made.empty());
  }
  for (const int64_t i : called.made) {
    const MadeRevision& made = Made(i);
    EXPECT_EQ(made.by, by);
    EXPECT_EQ(made.request_id, "") << "no request made it";
    static const MadeRevision kEmpty;
    const MadeRevision& from = made.from < 0 ? kEmpty : Made(made.from);
    EXPECT_EQ(made.state.Hash(), from.state.Hash());
    EXPECT_EQ(made.record.pending_token, from.record.pending_token);
    EXPECT_EQ(made.record.sampler.draws, from.record.sampler.draws);
    EXPECT_EQ(made.record.pending_text, from.record.pending_text);
    if (by != MadeBy::kRewind) {
      EXPECT_EQ(made.revision, from.revision);
    }
  }
}

// ---- Calls ------------------------------------------------------------------

void Simulation::CallSessions() {
  const SessionKey key = AnyKey();
  const int64_t dice = Below(20);
  if (dice < 1) return Create(key);
  if (dice < 3) return Fork(AnyKey(), key);
  if (dice < 5) {
    return Fork(key, PresetKey(key.tenant, "p" + std::to_string(Below(3))));
  }
  if (dice < 9) return Rewind(key);
  if (dice < 12) return Suspend(key);
  if (dice < 13) return Delete(key);
  if (dice < 15) return Touch(key);
  if (dice < 17) return Get(key);
  if (dice < 18) return List(key.tenant);
  Sweep();
}

void Simulation::Create(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  const int64_t ttl_ms = Below(3) != 0 ? 0 : 50 + Below(400);
  const Called called =
      Do({.by = MadeBy::kCreate}, key, /*for_turn=*/false,
         [&] { return sessions_->CreateSession(key, ttl_ms); });
  CheckCode("create", called,
            live < 0 ? absl::StatusCode::kOk : absl::StatusCode::kAlreadyExists,
            busy);
  CheckMade(called, MadeBy::kCreate);
}

void Simulation::Fork(const SessionKey& from, const SessionKey& to) {
  const bool busy = Busy(from) || Busy(to);
  const int64_t source = Live(from);
  const auto revision = AnyExpectedRevision(from);
  absl::StatusCode expected = absl::StatusCode::kOk;
  if (source < 0) {
    expected = absl::StatusCode::kNotFound;
  } else if (revision.value_or(Made(source).revision) !=
             Made(source).revision) {
    expected = absl::StatusCode::kAborted;
  } else if (Live(to) >= 0) {
    expected = absl::StatusCode::kAlreadyExists;
  }
  // A preset, as the service makes it, has no end.
  const bool preset = to.tenant != from.tenant;
  const Called called =
      Do({.by = MadeBy::kFork, .from = store_.Current(from)}, to,
         /*for_turn=*/false, [&] {
           return sessions_->Fork(
               from, to, revision,
               preset ? std::optional<int64_t>(0) : std::nullopt);
         });
  CheckCode("fork", called, expected, busy);
  CheckMade(called, MadeBy::kFork);
}

void Simulation::Rewind(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  const auto revision = AnyExpectedRevision(key);
  // What can be gone back to, from the history of the session.
  std::map<uint64_t, int64_t> past = {{0, kNone}};
  for (int64_t i = store_.Current(key); i >= 0; i = Made(i).before) {
    past[Made(i).revision] = i;
  }
  const uint64_t target = static_cast<uint64_t>(
      Below(static_cast<int64_t>(past.rbegin()->first) + 2));
  absl::StatusCode expected = absl::StatusCode::kOk;
  if (live < 0) {
    expected = absl::StatusCode::kNotFound;
  } else if (revision.value_or(Made(live).revision) != Made(live).revision) {
    expected = absl::StatusCode::kAborted;
  } else {
    const StoredSession entry = store_.Entry(key);
    std::vector<uint64_t> kept = {0, entry.revision};
    for (const StoredCheckpoint& checkpoint : entry.checkpoints) {
      EXPECT_TRUE(past.contains(checkpoint.revision));
      kept.push_back(checkpoint.revision);
    }
    const bool all = session_options_.checkpoint_bytes == 1 << 20;
    const bool known =
        all ? past.contains(target) : std::ranges::count(kept, target) > 0;
    if (!known) expected = absl::StatusCode::kOutOfRange;
  }
  const auto from = past.find(target);
  const Called called = Do({.by = MadeBy::kRewind,
                            .from = from == past.end() ? kNone : from->second},
                           key, /*for_turn=*/true, [&] {
                             return sessions_->Rewind(key, target, revision);
                           });
  // Turns may have all the slots.
  const bool out_of_slots =
      called.code == absl::StatusCode::kResourceExhausted &&
      !scheduler_->idle();
  CheckCode("rewind", called, expected, busy || out_of_slots);
  CheckMade(called, MadeBy::kRewind);
}

void Simulation::Suspend(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  const Called called =
      Do({}, key, /*for_turn=*/false, [&] { return sessions_->Suspend(key); });
  CheckCode("suspend", called,
            live < 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk,
            busy);
}

void Simulation::Delete(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  const Called called =
      Do({}, key, /*for_turn=*/false, [&] { return sessions_->Delete(key); });
  CheckCode("delete", called,
            live < 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk,
            busy);
  if (called.code == absl::StatusCode::kOk) {
    EXPECT_LT(store_.Current(key), 0) << "deleted, and it is there";
  }
}

void Simulation::Touch(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  std::optional<int64_t> ttl_ms;
  if (Below(2) == 0) ttl_ms = Below(3) != 0 ? 0 : 50 + Below(400);
  const Called called = Do({}, key, /*for_turn=*/false,
                           [&] { return sessions_->Touch(key, ttl_ms); });
  CheckCode("touch", called,
            live < 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk,
            busy);
}

void Simulation::Get(const SessionKey& key) {
  const bool busy = Busy(key);
  const int64_t live = Live(key);
  absl::StatusOr<SessionInfo> info;
  const Called called = Do({}, key, /*for_turn=*/false,
                           [&] { return info = sessions_->Get(key); });
  CheckCode("get", called,
            live < 0 ? absl::StatusCode::kNotFound : absl::StatusCode::kOk,
            busy);
  if (!called.clean || busy || !info.ok() || live < 0) return;
  const MadeRevision& made = Made(live);
  EXPECT_EQ(info->stored.revision, made.revision);
  EXPECT_EQ(info->stored.expires_unix_ms, made.expires_unix_ms);
  EXPECT_EQ(static_cast<int64_t>(info->stored.tokens),
            made.record.position + (made.record.pending_token ? 1 : 0));
  EXPECT_NE(info->place, SessionPlace::kActive);
}

void Simulation::List(const std::string& tenant) {
  std::vector<std::string> ids;
  bool busy = false;
  for (const auto& [key, current] : store_.sessions()) {
    if (key.tenant != tenant) continue;
    busy |= Busy(key);
    if (Live(key) >= 0) ids.push_back(key.id);
  }
  const auto limit = Index(1 + Below(3));
  if (ids.size() > limit) ids.resize(limit);
  absl::StatusOr<std::vector<SessionInfo>> page;
  const Called called = Do({}, {tenant, ""}, /*for_turn=*/false, [&] {
    return page = sessions_->List(tenant, "", static_cast<int64_t>(limit));
  });
  CheckCode("list", called, absl::StatusCode::kOk, /*busy=*/false);
  if (!called.clean || busy || !page.ok()) return;
  std::vector<std::string> listed;
  for (const SessionInfo& info : *page) listed.push_back(info.stored.id);
  EXPECT_EQ(listed, ids);
}

void Simulation::Sweep() {
  const Called called = Do({}, {}, /*for_turn=*/false, [&] {
    sessions_->Sweep();
    return absl::OkStatus();
  });
  ++tally_["sweep"];
  if (!called.clean) return;
  for (const auto& [key, current] : store_.sessions()) {
    if (!Busy(key)) {
      EXPECT_GE(Live(key), 0) << "an expired session was left";
    }
  }
}

}  // namespace reprise
