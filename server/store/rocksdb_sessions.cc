#include "server/store/rocksdb_sessions.h"

#include <rocksdb/snapshot.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/store/entry_codec.h"
#include "server/store/store_rules.h"

namespace reprise {
namespace {

rocksdb::Slice ToSlice(std::string_view bytes) {
  return {bytes.data(), bytes.size()};
}
std::string_view FromSlice(const rocksdb::Slice& slice) {
  return {slice.data(), slice.size()};
}

// Reads that see the database as it is now, whatever is written meanwhile.
class Now {
 public:
  explicit Now(rocksdb::DB& db) : snapshot_(&db) {
    options_.snapshot = snapshot_.snapshot();
  }
  const rocksdb::ReadOptions& options() const { return options_; }

 private:
  rocksdb::ManagedSnapshot snapshot_;
  rocksdb::ReadOptions options_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RocksDbSessions>> RocksDbSessions::Open(
    const std::string& path, const RocksDbOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<RocksDbDatabase> database,
                   RocksDbDatabase::Open(path, options));
  std::unique_ptr<RocksDbSessions> sessions(
      new RocksDbSessions(std::move(database)));
  const rocksdb::Status counted = sessions->CountSessions();
  if (!counted.ok()) {
    return RocksDbDatabase::OpenError(path, options, counted);
  }
  return sessions;
}

// One pass over the entries, 100 bytes and more each. RocksDB's own estimate of
// the number of keys counts overwritten ones too.
rocksdb::Status RocksDbSessions::CountSessions() {
  const std::unique_ptr<rocksdb::Iterator> it(
      db().NewIterator(rocksdb::ReadOptions(), database_->entries()));
  for (it->SeekToFirst(); it->Valid(); it->Next()) {
    const absl::StatusOr<SessionKey> key = ParseEntryKey(FromSlice(it->key()));
    const absl::StatusOr<StoredSession> session =
        DecodeEntry(FromSlice(it->key()), FromSlice(it->value()));
    if (!session.ok()) {
      LogDamage("store holds a damaged entry", it->key(), session.status());
    }
    const StoredSession counted = session.ok() ? *session : StoredSession();
    usage_.Change(key.ok() ? key->tenant : "", /*old=*/nullptr, &counted);
  }
  return it->status();
}

void RocksDbSessions::LogDamage(const char* what, const rocksdb::Slice& key,
                                const absl::Status& status) {
  // More are not worth their memory, nor their lines.
  constexpr size_t kMostLogged = 1000;
  {
    MutexLock lock(damage_mu_);
    if (damage_logged_.size() >= kMostLogged) return;
    if (!damage_logged_.insert(key.ToString()).second) return;
  }
  LogWarning(what, {{"reason", FromAbsl(status.message())}});
}

// ---- Reading ----------------------------------------------------------------

absl::StatusOr<std::optional<RocksDbSessions::Entry>>
RocksDbSessions::ReadEntry(const rocksdb::ReadOptions& options,
                           const std::string& entry_key) {
  rocksdb::PinnableSlice value;
  const rocksdb::Status status =
      db().Get(options, database_->entries(), entry_key, &value);
  if (status.IsNotFound()) return std::nullopt;
  RETURN_IF_ERROR(FromRocksDb(status));
  ASSIGN_OR_RETURN(StoredSession session,
                   DecodeEntry(entry_key, FromSlice(value)));
  return Entry{std::move(session), IsVersion1(FromSlice(value))};
}

absl::StatusOr<RocksDbSessions::Entry> RocksDbSessions::ReadExisting(
    const rocksdb::ReadOptions& options, const SessionKey& key) {
  ASSIGN_OR_RETURN(std::optional<Entry> entry,
                   ReadEntry(options, EntryKey(key)));
  if (!entry.has_value()) return NoSuchSessionError(key);
  return *std::move(entry);
}

absl::StatusOr<std::string> RocksDbSessions::ReadBlob(
    const rocksdb::ReadOptions& options, const std::string& key,
    uint64_t bytes) {
  rocksdb::PinnableSlice value;
  const rocksdb::Status status =
      db().Get(options, database_->snapshots(), key, &value);
  if (status.IsNotFound() || (status.ok() && value.size() != bytes)) {
    return absl::DataLossError(
        "store: the snapshot is not the one its entry tells of");
  }
  // Of this session and its file's other ones; the rest can be served.
  if (status.IsPathNotFound()) {
    return absl::DataLossError(absl::StrCat(
        "store: the file of the snapshot is gone: ", status.ToString()));
  }
  RETURN_IF_ERROR(FromRocksDb(status));
  return value.ToString();
}

absl::StatusOr<std::string> RocksDbSessions::ReadSnapshot(
    const rocksdb::ReadOptions& options, const std::string& entry_key,
    const Entry& entry, uint64_t revision) {
  ASSIGN_OR_RETURN(const uint64_t bytes,
                   SnapshotBytesAt(entry.session, revision));
  return ReadBlob(options,
                  entry.version1 ? entry_key : SnapshotKey(entry_key, revision),
                  bytes);
}

absl::StatusOr<StoredSession> RocksDbSessions::GetEntry(const SessionKey& key) {
  ASSIGN_OR_RETURN(Entry entry, ReadExisting(rocksdb::ReadOptions(), key));
  return std::move(entry.session);
}

absl::Status RocksDbSessions::Get(const SessionKey& key, StoredSession* session,
                                  std::string* snapshot) {
  const Now now(db());
  ASSIGN_OR_RETURN(Entry entry, ReadExisting(now.options(), key));
  ASSIGN_OR_RETURN(*snapshot, ReadSnapshot(now.options(), EntryKey(key), entry,
                                           entry.session.revision));
  *session = std::move(entry.session);
  return absl::OkStatus();
}

absl::StatusOr<std::string> RocksDbSessions::GetSnapshot(const SessionKey& key,
                                                         uint64_t revision) {
  const Now now(db());
  ASSIGN_OR_RETURN(const Entry entry, ReadExisting(now.options(), key));
  return ReadSnapshot(now.options(), EntryKey(key), entry, revision);
}

absl::StatusOr<std::string> RocksDbSessions::GetOutcome(const SessionKey& key,
                                                        uint64_t revision) {
  const Now now(db());
  ASSIGN_OR_RETURN(const Entry entry, ReadExisting(now.options(), key));
  RETURN_IF_ERROR(CheckRevision(key.id, entry.session.revision, revision));
  if (entry.session.outcome_bytes == 0) return std::string();
  return ReadBlob(now.options(), OutcomeKey(EntryKey(key)),
                  entry.session.outcome_bytes);
}

// ---- Writing ----------------------------------------------------------------

absl::Status RocksDbSessions::Write(std::span<const std::string> entry_keys,
                                    rocksdb::WriteBatch& batch) {
  const absl::Status status = database_->Write(batch);
  if (!status.ok()) {
    MutexLock lock(doubt_mu_);
    in_doubt_.insert(entry_keys.begin(), entry_keys.end());
  }
  return status;
}

bool RocksDbSessions::InDoubt(const SessionKey& key) const {
  MutexLock lock(doubt_mu_);
  return !in_doubt_.empty() && in_doubt_.contains(EntryKey(key));
}

void RocksDbSessions::PutEntryInBatch(const std::string& entry_key,
                                      const StoredSession* old,
                                      const StoredSession& session,
                                      rocksdb::WriteBatch& batch) {
  batch.Put(database_->entries(), entry_key, EncodeEntry(entry_key, session));
  const int64_t old_expiry = old != nullptr ? old->expires_unix_ms : 0;
  if (old_expiry == session.expires_unix_ms) return;
  if (old_expiry > 0) {
    batch.Delete(database_->expiry(), ExpiryKey(old_expiry, entry_key));
  }
  if (session.expires_unix_ms > 0) {
    batch.Put(database_->expiry(),
              ExpiryKey(session.expires_unix_ms, entry_key), "");
  }
}

absl::Status RocksDbSessions::DropInBatch(const std::string& entry_key,
                                          const Entry& old,
                                          const StoredSession& now,
                                          rocksdb::WriteBatch& batch) {
  const std::vector<uint64_t> dropped = DroppedRevisions(old.session, now);
  if (old.version1) {
    if (dropped.empty()) {
      ASSIGN_OR_RETURN(const std::string snapshot,
                       ReadSnapshot(rocksdb::ReadOptions(), entry_key, old,
                                    old.session.revision));
      batch.Put(database_->snapshots(),
                SnapshotKey(entry_key, old.session.revision), snapshot);
    }
    batch.Delete(database_->snapshots(), entry_key);
    return absl::OkStatus();
  }
  for (const uint64_t revision : dropped) {
    batch.Delete(database_->snapshots(), SnapshotKey(entry_key, revision));
  }
  if (old.session.outcome_bytes > 0 && now.outcome_bytes == 0) {
    batch.Delete(database_->snapshots(), OutcomeKey(entry_key));
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredSession> RocksDbSessions::Put(
    const SessionKey& key, std::optional<uint64_t> expected_revision,
    const StoredSession& session, std::string_view snapshot,
    const SnapshotStore::PutOptions& options) {
  const std::string entry_key = EntryKey(key);
  const KeyLocks::Hold hold(entry_locks_, entry_key);
  ASSIGN_OR_RETURN(const std::optional<Entry> entry,
                   ReadEntry(rocksdb::ReadOptions(), entry_key));
  const StoredSession* const old =
      entry.has_value() ? &entry->session : nullptr;
  RETURN_IF_ERROR(CheckReplaces(key, old, expected_revision, session));
  StoredSession now = EntryAfterPut(key, old, session, snapshot, options);
  rocksdb::WriteBatch batch;
  if (entry.has_value()) {
    RETURN_IF_ERROR(DropInBatch(entry_key, *entry, now, batch));
  }
  PutEntryInBatch(entry_key, old, now, batch);
  batch.Put(database_->snapshots(), SnapshotKey(entry_key, now.revision),
            ToSlice(snapshot));
  if (!options.outcome.empty()) {
    batch.Put(database_->snapshots(), OutcomeKey(entry_key),
              ToSlice(options.outcome));
  }
  RETURN_IF_ERROR(Write({&entry_key, 1}, batch));
  usage_.Change(key.tenant, old, &now);
  return now;
}

absl::Status RocksDbSessions::PutEntry(const SessionKey& key,
                                       uint64_t expected_revision,
                                       const StoredSession& session) {
  const std::string entry_key = EntryKey(key);
  const KeyLocks::Hold hold(entry_locks_, entry_key);
  ASSIGN_OR_RETURN(const std::optional<Entry> old,
                   ReadEntry(rocksdb::ReadOptions(), entry_key));
  if (!old.has_value()) {
    return CheckRevision(key.id, std::nullopt, expected_revision);
  }
  RETURN_IF_ERROR(
      CheckReplaces(key, &old->session, expected_revision, session));
  const StoredSession now = EntryAfterPutEntry(old->session, session);
  rocksdb::WriteBatch batch;
  RETURN_IF_ERROR(DropInBatch(entry_key, *old, now, batch));
  PutEntryInBatch(entry_key, &old->session, now, batch);
  return Write({&entry_key, 1}, batch);
}

absl::Status RocksDbSessions::Delete(const SessionKey& key) {
  const std::string entry_key = EntryKey(key);
  const KeyLocks::Hold hold(entry_locks_, entry_key);
  const absl::StatusOr<std::optional<Entry>> old =
      ReadEntry(rocksdb::ReadOptions(), entry_key);
  // A damaged one can go; ListExpired drops its line of the index.
  if (!old.ok() && !absl::IsDataLoss(old.status())) return old.status();
  if (old.ok() && !old->has_value()) return NoSuchSessionError(key);
  rocksdb::WriteBatch batch;
  const StoredSession session = DeleteInBatch(entry_key, old, batch);
  RETURN_IF_ERROR(Write({&entry_key, 1}, batch));
  usage_.Change(key.tenant, &session, /*now=*/nullptr);
  return absl::OkStatus();
}

// Synced once, and not once for each session.
absl::StatusOr<int64_t> RocksDbSessions::DeleteExpired(
    std::span<const SessionKey> keys, int64_t unix_ms) {
  // Each once, and all callers in one order, or two would wait for each other.
  const std::set<SessionKey> sorted(keys.begin(), keys.end());
  std::deque<KeyLocks::Hold> holds;
  std::vector<std::string> entry_keys;
  std::vector<std::pair<std::string, StoredSession>> deleted;  // with tenants
  rocksdb::WriteBatch batch;
  for (const SessionKey& key : sorted) {
    const std::string entry_key = EntryKey(key);
    holds.emplace_back(entry_locks_, entry_key);
    const absl::StatusOr<std::optional<Entry>> old =
        ReadEntry(rocksdb::ReadOptions(), entry_key);
    if (!old.ok() && !absl::IsDataLoss(old.status())) return old.status();
    if (old.ok() && !old->has_value()) continue;
    if (old.ok() && !HasExpired((*old)->session, unix_ms)) continue;
    deleted.emplace_back(key.tenant, DeleteInBatch(entry_key, old, batch));
    entry_keys.push_back(entry_key);
  }
  if (deleted.empty()) return 0;
  RETURN_IF_ERROR(Write(entry_keys, batch));
  for (const auto& [tenant, session] : deleted) {
    usage_.Change(tenant, &session, /*now=*/nullptr);
  }
  return std::ssize(deleted);
}

// Returns what was known of the session: nothing, if its entry is damaged.
StoredSession RocksDbSessions::DeleteInBatch(
    const std::string& entry_key,
    const absl::StatusOr<std::optional<Entry>>& old,
    rocksdb::WriteBatch& batch) {
  const StoredSession session = old.ok() ? (*old)->session : StoredSession();
  batch.Delete(database_->entries(), entry_key);
  if (old.ok()) {
    DeleteBlobsInBatch(entry_key, **old, batch);
  } else {  // not known which there are
    batch.Delete(database_->snapshots(), entry_key);
    batch.DeleteRange(database_->snapshots(), OutcomeKey(entry_key),
                      AfterBlobKeys(entry_key));
  }
  if (session.expires_unix_ms > 0) {
    batch.Delete(database_->expiry(),
                 ExpiryKey(session.expires_unix_ms, entry_key));
  }
  return session;
}

void RocksDbSessions::DeleteBlobsInBatch(const std::string& entry_key,
                                         const Entry& old,
                                         rocksdb::WriteBatch& batch) {
  rocksdb::ColumnFamilyHandle* const family = database_->snapshots();
  const StoredSession& session = old.session;
  batch.Delete(family, old.version1 ? entry_key
                                    : SnapshotKey(entry_key, session.revision));
  for (const StoredCheckpoint& checkpoint : session.checkpoints) {
    batch.Delete(family, SnapshotKey(entry_key, checkpoint.revision));
  }
  if (session.outcome_bytes > 0) batch.Delete(family, OutcomeKey(entry_key));
}

// ---- Listing ----------------------------------------------------------------

absl::StatusOr<std::vector<StoredSession>> RocksDbSessions::List(
    std::string_view tenant, std::string_view after, int64_t limit) {
  std::vector<StoredSession> page;
  const std::string prefix = TenantPrefix(tenant);
  const std::string start = prefix + std::string(after);
  const std::unique_ptr<rocksdb::Iterator> it(
      db().NewIterator(rocksdb::ReadOptions(), database_->entries()));
  it->Seek(start);
  if (it->Valid() && it->key() == rocksdb::Slice(start)) it->Next();
  for (; it->Valid() && it->key().starts_with(prefix) &&
         static_cast<int64_t>(page.size()) < limit;
       it->Next()) {
    absl::StatusOr<StoredSession> session =
        DecodeEntry(FromSlice(it->key()), FromSlice(it->value()));
    if (session.ok()) {
      page.push_back(*std::move(session));
    } else {
      LogDamage("damaged session left out of a list", it->key(),
                session.status());
    }
  }
  RETURN_IF_ERROR(FromRocksDb(it->status()));
  return page;
}

// Whether to pass over this line of the index. Its session was changed or
// deleted without it, as happens to damaged ones, and the line is gone now; or
// the session is a newer program's, which deletes it itself.
absl::StatusOr<bool> RocksDbSessions::PassOverExpiry(
    const std::string& expiry_key) {
  ASSIGN_OR_RETURN(const ParsedExpiryKey parsed, ParseExpiryKey(expiry_key));
  const std::string entry_key(parsed.entry_key);
  const KeyLocks::Hold hold(entry_locks_, entry_key);
  const absl::StatusOr<std::optional<Entry>> entry =
      ReadEntry(rocksdb::ReadOptions(), entry_key);
  if (absl::IsDataLoss(entry.status())) return false;
  if (absl::IsFailedPrecondition(entry.status())) return true;
  RETURN_IF_ERROR(entry.status());
  if (entry->has_value() &&
      (*entry)->session.expires_unix_ms == parsed.expires_unix_ms) {
    return false;
  }
  rocksdb::WriteBatch batch;
  batch.Delete(database_->expiry(), expiry_key);
  RETURN_IF_ERROR(database_->Write(batch));
  return true;
}

absl::StatusOr<std::vector<SessionKey>> RocksDbSessions::ListExpired(
    int64_t unix_ms, int64_t limit) {
  constexpr int64_t kLatest = std::numeric_limits<int64_t>::max();
  std::vector<SessionKey> keys;
  const std::string end = ExpiryKey(std::min(unix_ms, kLatest - 1) + 1, "");
  const rocksdb::Slice upper_bound = end;
  rocksdb::ReadOptions options;
  options.iterate_upper_bound = &upper_bound;
  const std::unique_ptr<rocksdb::Iterator> it(
      db().NewIterator(options, database_->expiry()));
  for (it->SeekToFirst();
       it->Valid() && static_cast<int64_t>(keys.size()) < limit; it->Next()) {
    const std::string expiry_key = it->key().ToString();
    const absl::StatusOr<ParsedExpiryKey> parsed = ParseExpiryKey(expiry_key);
    absl::StatusOr<SessionKey> key =
        parsed.ok() ? ParseEntryKey(parsed->entry_key) : parsed.status();
    if (!key.ok()) {  // one bad line must not keep all others alive
      LogDamage("store holds a damaged line in its index of expiry times",
                it->key(), key.status());
      continue;
    }
    ASSIGN_OR_RETURN(const bool passed_over, PassOverExpiry(expiry_key));
    if (!passed_over) keys.push_back(*std::move(key));
  }
  RETURN_IF_ERROR(FromRocksDb(it->status()));
  return keys;
}

}  // namespace reprise
