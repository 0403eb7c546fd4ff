#include "tests/server/simulated_store.h"

#include <gtest/gtest.h>

#include <utility>

#include "engine/base/log.h"

namespace reprise {

int64_t SimulatedStore::Current(const SessionKey& key) const {
  const auto it = current_.find(key);
  return it == current_.end() ? -1 : it->second;
}

StoredSession SimulatedStore::Entry(const SessionKey& key) {
  absl::StatusOr<StoredSession> entry = store_->GetEntry(key);
  CHECK(entry.ok());
  return *std::move(entry);
}

// ---- Faults -----------------------------------------------------------------

std::optional<StoreFault> SimulatedStore::NextFault() {
  if (probability_ == 0) return std::nullopt;
  if (std::uniform_real_distribution<double>(0, 1)(random_) >= probability_) {
    return std::nullopt;
  }
  ++faults_;
  const auto fault = static_cast<StoreFault>(random_() % 3);
  if (fault == StoreFault::kLostAnswer) ++lost_answers_;
  return fault;
}

template <typename Call>
auto SimulatedStore::Run(const Call& run) -> decltype(run()) {
  if (in_call) {
    const Purpose mine = purpose;
    in_call();
    purpose = mine;
  }
  const std::optional<StoreFault> fault = NextFault();
  if (!fault.has_value()) return run();
  if (*fault == StoreFault::kNoSpace) return NoSpaceError("made up");
  if (*fault == StoreFault::kLostAnswer) static_cast<void>(run());
  return absl::UnavailableError("store: made up");
}

// ---- What a write must be ---------------------------------------------------

// A turn's follows from the revision that it began with, and it is the only
// one that does.
void SimulatedStore::CheckTurn(const MadeRevision& made,
                               const Writer* writer) const {
  ASSERT_NE(writer, nullptr) << "a turn that had no lease made a revision";
  EXPECT_EQ(made.before, writer->base) << "a turn committed over a newer one";
  EXPECT_EQ(made.revision,
            made.before < 0
                ? 1
                : history_[static_cast<size_t>(made.before)].revision + 1);
  if (made.before < 0 || made.request_id.empty()) return;
  EXPECT_NE(history_[static_cast<size_t>(made.before)].request_id,
            made.request_id)
      << "one request was carried out twice";
}

void SimulatedStore::CheckExpiry(const StoredSession& session) const {
  EXPECT_EQ(session.expires_unix_ms,
            session.ttl_ms > 0 ? clock_.UnixMs() + session.ttl_ms : 0);
}

void SimulatedStore::Made(const SessionKey& key,
                          std::optional<uint64_t> expected_revision,
                          const StoredSession& session,
                          std::string_view snapshot, const Writer* writer) {
  MadeRevision made;
  made.key = key;
  made.before = Current(key);
  made.by = purpose.by;
  made.from = purpose.from;
  made.revision = session.revision;
  made.request_id = session.request_id;
  made.expires_unix_ms = session.expires_unix_ms;
  EXPECT_EQ(expected_revision.has_value(), made.before >= 0);
  if (made.before >= 0 && expected_revision.has_value()) {
    EXPECT_EQ(*expected_revision,
              history_[static_cast<size_t>(made.before)].revision);
  }
  CheckExpiry(session);
  std::vector<std::byte> slot(
      static_cast<size_t>(engine_.layout().slot_bytes()));
  absl::StatusOr<SessionRecord> record =
      DecodeSnapshot(snapshot, engine_.info().fingerprints, engine_.layout(),
                     engine_.info().vocab_size, slot);
  ASSERT_TRUE(record.ok()) << record.status();
  made.record = *std::move(record);
  made.state = engine_.Load(slot.data());
  EXPECT_EQ(made.record.revision, session.revision);
  switch (made.by) {
    case MadeBy::kTurn:
      if (writer != nullptr) made.client = writer->client;
      CheckTurn(made, writer);
      break;
    case MadeBy::kRewind:
      ASSERT_GE(made.before, 0);
      EXPECT_EQ(made.revision,
                history_[static_cast<size_t>(made.before)].revision + 1);
      break;
    case MadeBy::kCreate:
    case MadeBy::kFork:
      EXPECT_LT(made.before, 0);
      break;
  }
  current_[key] = static_cast<int64_t>(history_.size());
  history_.push_back(std::move(made));
}

void SimulatedStore::CheckRefused(const SessionKey& key,
                                  std::optional<uint64_t> expected_revision,
                                  const absl::Status& status) const {
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  const int64_t current = Current(key);
  std::optional<uint64_t> stored;
  if (current >= 0) stored = history_[static_cast<size_t>(current)].revision;
  EXPECT_NE(stored, expected_revision) << status;
}

void SimulatedStore::Ended(const SessionKey& key) {
  EXPECT_FALSE(writers.contains(key)) << "deleted while a turn was running";
  current_.erase(key);
}

// ---- Calls ------------------------------------------------------------------

absl::StatusOr<StoredSession> SimulatedStore::Put(
    const SessionKey& key, std::optional<uint64_t> expected_revision,
    const StoredSession& session, std::string_view snapshot,
    const PutOptions& options) {
  std::optional<Writer> writer;
  const auto it = writers.find(key);
  if (purpose.by == MadeBy::kTurn && it != writers.end()) {
    writer = it->second;
  }
  const auto put = [&] {
    absl::StatusOr<StoredSession> now =
        store_->Put(key, expected_revision, session, snapshot, options);
    if (now.ok()) {
      Made(key, expected_revision, session, snapshot,
           writer.has_value() ? &*writer : nullptr);
    } else {
      CheckRefused(key, expected_revision, now.status());
    }
    return now;
  };
  absl::StatusOr<StoredSession> result = Run(put);
  // Whatever became of it: the lease ends with it.
  if (writer.has_value()) writers.erase(key);
  return result;
}

absl::Status SimulatedStore::PutEntry(const SessionKey& key,
                                      uint64_t expected_revision,
                                      const StoredSession& session) {
  return Run([&] {
    const absl::Status status =
        store_->PutEntry(key, expected_revision, session);
    if (!status.ok()) {
      CheckRefused(key, expected_revision, status);
      return status;
    }
    EXPECT_FALSE(writers.contains(key)) << "changed while a turn was running";
    const int64_t current = Current(key);
    if (current < 0) {
      ADD_FAILURE() << "an entry was put where there was none";
      return status;
    }
    MadeRevision& made = history_[static_cast<size_t>(current)];
    EXPECT_EQ(made.revision, expected_revision);
    CheckExpiry(session);
    made.expires_unix_ms = session.expires_unix_ms;
    return status;
  });
}

absl::StatusOr<StoredSession> SimulatedStore::GetEntry(const SessionKey& key) {
  return Run([&] { return store_->GetEntry(key); });
}

absl::Status SimulatedStore::Get(const SessionKey& key, StoredSession* session,
                                 std::string* snapshot) {
  return Run([&] { return store_->Get(key, session, snapshot); });
}

absl::StatusOr<std::string> SimulatedStore::GetSnapshot(const SessionKey& key,
                                                        uint64_t revision) {
  return Run([&] { return store_->GetSnapshot(key, revision); });
}

absl::StatusOr<std::string> SimulatedStore::GetOutcome(const SessionKey& key,
                                                       uint64_t revision) {
  return Run([&] { return store_->GetOutcome(key, revision); });
}

absl::Status SimulatedStore::Delete(const SessionKey& key) {
  return Run([&] {
    const absl::Status status = store_->Delete(key);
    EXPECT_EQ(status.ok(), Current(key) >= 0) << status;
    if (status.ok()) Ended(key);
    return status;
  });
}

absl::StatusOr<int64_t> SimulatedStore::DeleteExpired(
    std::span<const SessionKey> keys, int64_t unix_ms) {
  return Run([&] {
    absl::StatusOr<int64_t> deleted = store_->DeleteExpired(keys, unix_ms);
    EXPECT_TRUE(deleted.ok()) << deleted.status();
    int64_t gone = 0;
    for (const SessionKey& key : keys) {
      const int64_t current = Current(key);
      if (current < 0) continue;
      const int64_t expires =
          history_[static_cast<size_t>(current)].expires_unix_ms;
      const bool expired = expires > 0 && expires <= clock_.UnixMs();
      EXPECT_EQ(store_->GetEntry(key).ok(), !expired);
      if (!expired) continue;
      ++gone;
      Ended(key);
    }
    EXPECT_EQ(*deleted, gone);
    return deleted;
  });
}

absl::StatusOr<std::vector<StoredSession>> SimulatedStore::List(
    std::string_view tenant, std::string_view after, int64_t limit) {
  return Run([&] { return store_->List(tenant, after, limit); });
}

absl::StatusOr<std::vector<SessionKey>> SimulatedStore::ListExpired(
    int64_t unix_ms, int64_t limit) {
  return Run([&] { return store_->ListExpired(unix_ms, limit); });
}

absl::StatusOr<SnapshotStore::Usage> SimulatedStore::GetUsage() {
  return Run([&] { return store_->GetUsage(); });
}

absl::StatusOr<SnapshotStore::Usage> SimulatedStore::GetTenantUsage(
    std::string_view tenant) {
  return Run([&] { return store_->GetTenantUsage(tenant); });
}

}  // namespace reprise
