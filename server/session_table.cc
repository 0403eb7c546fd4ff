#include "server/session_table.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"

namespace reprise {

SessionClaim::~SessionClaim() {
  if (table_ != nullptr) table_->Drop(*this);
}

SessionClaim::SessionClaim(SessionClaim&& other) noexcept
    : stored(std::move(other.stored)),
      slot(std::move(other.slot)),
      record(std::move(other.record)),
      last_used_ns(other.last_used_ns),
      table_(std::exchange(other.table_, nullptr)),
      key_(std::move(other.key_)) {}

absl::StatusOr<SessionClaim> SessionTable::Claim(const SessionKey& key,
                                                 ClaimFor purpose) {
  const State state =
      purpose == ClaimFor::kTurn ? State::kTurn : State::kUpkeep;
  MutexLock lock(mu_);
  while (true) {
    const auto it = rows_.find(key);
    if (it == rows_.end()) return ClaimRow(key, rows_[key], state);
    if (it->second.state == State::kResident) {
      return ClaimRow(key, it->second, state);
    }
    if (it->second.state != State::kUpkeep) {
      return absl::AbortedError(
          absl::StrCat("session ", key.id, " is busy: a turn is running"));
    }
    claim_ended_.Wait(mu_);
  }
}

std::optional<SessionClaim> SessionTable::ClaimOldest(int64_t used_until_ns) {
  MutexLock lock(mu_);
  auto oldest = rows_.end();
  for (auto it = rows_.begin(); it != rows_.end(); ++it) {
    const Row& row = it->second;
    if (row.state != State::kResident || row.last_used_ns > used_until_ns) {
      continue;
    }
    if (oldest == rows_.end() ||
        row.last_used_ns < oldest->second.last_used_ns) {
      oldest = it;
    }
  }
  if (oldest == rows_.end()) return std::nullopt;
  return ClaimRow(oldest->first, oldest->second, State::kUpkeep);
}

bool SessionTable::WaitForUpkeep() {
  MutexLock lock(mu_);
  if (upkeep_of_slots_ == 0) return false;
  claim_ended_.Wait(mu_);  // waking up for no reason does no harm
  return true;
}

void SessionTable::MakeResident(SessionClaim claim) {
  CHECK(claim.slot && claim.stored.has_value());
  MutexLock lock(mu_);
  Row& row = EndClaim(claim);
  SetState(row, State::kResident);
  row.stored = std::move(claim.stored);
  row.slot = std::move(claim.slot);
  row.record = std::move(claim.record);
  row.last_used_ns = claim.last_used_ns;
}

void SessionTable::MakeLeased(SessionClaim claim) {
  CHECK(!claim.slot);
  MutexLock lock(mu_);
  Row& row = EndClaim(claim);
  SetState(row, State::kLeased);
  row.stored = std::move(claim.stored);
}

SessionClaim SessionTable::ClaimLeased(const SessionKey& key) {
  MutexLock lock(mu_);
  const auto it = rows_.find(key);
  CHECK(it != rows_.end() && it->second.state == State::kLeased);
  return ClaimRow(key, it->second, State::kTurn);
}

std::optional<SessionTable::Seen> SessionTable::Look(
    const SessionKey& key) const {
  MutexLock lock(mu_);
  const auto it = rows_.find(key);
  if (it == rows_.end()) return std::nullopt;
  switch (it->second.state) {
    case State::kResident:
      return Seen{Seen::State::kResident, it->second.stored};
    case State::kUpkeep:
      return Seen{Seen::State::kUpkeep, it->second.stored};
    case State::kTurn:
    case State::kLeased:
      break;
  }
  return Seen{Seen::State::kActive, it->second.stored};
}

SessionTable::Counts SessionTable::counts() const {
  MutexLock lock(mu_);
  return counts_;
}

void SessionTable::SetState(Row& row, State state) {
  Count(row.state, -1);
  row.state = state;
  Count(row.state, +1);
}

void SessionTable::Count(State state, int64_t change) {
  if (state == State::kResident) counts_.resident += change;
  if (state == State::kTurn || state == State::kLeased) {
    counts_.active += change;
  }
}

// The row keeps its copy of `stored`, for Look.
SessionClaim SessionTable::ClaimRow(const SessionKey& key, Row& row,
                                    State state) {
  SetState(row, state);
  SessionClaim claim(this, key);
  claim.stored = row.stored;
  claim.slot = std::move(row.slot);
  claim.record = std::move(row.record);
  claim.last_used_ns = row.last_used_ns;
  row.upkeep_of_slot = state == State::kUpkeep && claim.slot;
  if (row.upkeep_of_slot) ++upkeep_of_slots_;
  return claim;
}

SessionTable::Row& SessionTable::EndClaim(SessionClaim& claim) {
  CHECK(claim.table_ == this);
  claim.table_ = nullptr;
  Row& row = rows_.at(claim.key_);
  CHECK(row.state == State::kTurn || row.state == State::kUpkeep);
  if (row.upkeep_of_slot) --upkeep_of_slots_;
  row.upkeep_of_slot = false;
  claim_ended_.NotifyAll();
  return row;
}

void SessionTable::Drop(SessionClaim& claim) {
  claim.slot = StateSlot();  // free before anyone who waits for it wakes up
  MutexLock lock(mu_);
  SetState(EndClaim(claim), State::kUpkeep);  // counted no more
  rows_.erase(claim.key_);
}

}  // namespace reprise
