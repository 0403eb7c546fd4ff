// The Redis store: sessions on a Redis or Valkey server that several Reprise
// servers share.
//
// A write reads the entry, decides what is to be in its place, and has a script
// put it there if the entry is still the one that was read, byte for byte. The
// script also notes which call it was. So a call whose answer was lost is made
// again over a new connection: if the first one was carried out, the second
// finds its own name there and knows.
#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/status_macros.h"
#include "server/store/entry_codec.h"
#include "server/store/redis_client.h"
#include "server/store/redis_scripts.h"
#include "server/store/redis_uri.h"
#include "server/store/snapshot_store.h"
#include "server/store/store_rules.h"

namespace reprise {
namespace {

// How often a write begins again because another server has changed the entry
// but not the revision, as a touch does, between its read and its script. Each
// try that is lost is a write of somebody else that was made, so that only one
// who writes without a pause and is always the faster gets a write to give up.
constexpr int kMostTries = 200;

// Entries read together for a page.
constexpr int64_t kEntriesAtOnce = 256;

constexpr std::string_view kFormat = "1";

class RedisStore : public SnapshotStore {
 public:
  static absl::StatusOr<std::unique_ptr<SnapshotStore>> Open(
      const RedisOptions& options) {
    ASSIGN_OR_RETURN(std::unique_ptr<RedisClient> client,
                     RedisClient::Open(options));
    auto store = std::make_unique<RedisStore>(std::move(client),
                                              RedisKeys(options.prefix));
    RETURN_IF_ERROR(store->CheckFormat());
    store->WarnOfSettings();
    return store;
  }

  RedisStore(std::unique_ptr<RedisClient> client, RedisKeys keys)
      : client_(std::move(client)),
        keys_(std::move(keys)),
        commit_prefix_(absl::StrFormat(
            "%016x",
            std::random_device()() | uint64_t{std::random_device()()} << 32)) {}

  bool shared() const override { return true; }

  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const PutOptions& options) override {
    const std::string field = RedisSnapshotField(session.revision);
    StoredSession now;
    RETURN_IF_ERROR(
        Write(key, expected_revision, session, [&](const StoredSession* old) {
          now = EntryAfterPut(key, old, session, snapshot, options);
          Change change;
          change.now = now;
          if (old != nullptr) {
            for (const uint64_t revision : DroppedRevisions(*old, now)) {
              change.dropped.push_back(RedisSnapshotField(revision));
            }
          }
          change.set = {"current", field, field, snapshot};
          if (options.outcome.empty()) {
            change.dropped.push_back("outcome");
          } else {
            change.set.insert(change.set.end(), {"outcome", options.outcome});
          }
          return change;
        }));
    return now;
  }

  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session) override {
    return Write(key, expected_revision, session,
                 [&](const StoredSession* old) {
                   return Change{EntryAfterPutEntry(*old, session), {}, {}};
                 });
  }

  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) override {
    ASSIGN_OR_RETURN(Entry entry, ReadEntry(key));
    if (!entry.session.has_value()) return NoSuchSessionError(key);
    return *std::move(entry.session);
  }

  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot) override {
    ASSIGN_OR_RETURN(RedisClient::Replies replies,
                     Run(RedisReadScript(), key, {}));
    RedisReply& found = replies.list[0];
    if (found.list.size() != 2) return NoSuchSessionError(key);
    ASSIGN_OR_RETURN(StoredSession entry,
                     DecodeEntry(EntryKey(key), found.list[0].bytes));
    RETURN_IF_ERROR(CheckSize(found.list[1], entry.snapshot_bytes));
    *snapshot = std::move(found.list[1].bytes);
    *session = std::move(entry);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision) override {
    ASSIGN_OR_RETURN(EntryAndMore found,
                     ReadWith(key, RedisSnapshotField(revision)));
    ASSIGN_OR_RETURN(const uint64_t bytes,
                     SnapshotBytesAt(found.session, revision));
    RETURN_IF_ERROR(CheckSize(found.more, bytes));
    return std::move(found.more.bytes);
  }

  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision) override {
    ASSIGN_OR_RETURN(EntryAndMore found, ReadWith(key, "outcome"));
    RETURN_IF_ERROR(CheckRevision(key.id, found.session.revision, revision));
    if (found.session.outcome_bytes == 0) return std::string();
    RETURN_IF_ERROR(CheckSize(found.more, found.session.outcome_bytes));
    return std::move(found.more.bytes);
  }

  absl::Status Delete(const SessionKey& key) override {
    const absl::Status entry = ReadEntry(key).status();
    if (!entry.ok() && !absl::IsDataLoss(entry)) return entry;
    ASSIGN_OR_RETURN(const RedisClient::Replies replies,
                     RunDelete(kRedisDeleteAny, key, ""));
    // The first of two may have found it.
    if (replies.list[0].integer == 1 || replies.repeated) {
      return absl::OkStatus();
    }
    return NoSuchSessionError(key);
  }

  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys,
                                        int64_t unix_ms) override {
    int64_t deleted = 0;
    for (const SessionKey& key : keys) {
      ASSIGN_OR_RETURN(const bool gone, DeleteIfExpired(key, unix_ms));
      deleted += gone ? 1 : 0;
    }
    return deleted;
  }

  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit) override {
    const std::string index = keys_.Index(tenant);
    std::vector<StoredSession> page;
    std::string last(after);
    while (std::ssize(page) < limit) {
      const int64_t wanted = std::min(limit - std::ssize(page), kEntriesAtOnce);
      const std::string from = "(" + last;
      const std::string count = std::to_string(wanted);
      ASSIGN_OR_RETURN(const RedisClient::Replies ids,
                       client_->Call({{"ZRANGEBYLEX", index, from, "+", "LIMIT",
                                       "0", count}}));
      std::vector<SessionKey> keys;
      for (const RedisReply& id : ids.list[0].list) {
        keys.push_back({std::string(tenant), id.bytes});
      }
      ASSIGN_OR_RETURN(std::vector<absl::StatusOr<Entry>> entries,
                       ReadEntries(keys));
      for (size_t i = 0; i < keys.size(); ++i) {
        if (!entries[i].ok()) {
          LogDamage("damaged session left out of a list", keys[i],
                    entries[i].status());
        } else if (entries[i]->session.has_value()) {
          page.push_back(*std::move(entries[i]->session));
        } else {
          RETURN_IF_ERROR(DropFromIndexes(keys[i]));
        }
      }
      if (std::ssize(keys) < wanted) break;
      last = keys.back().id;
    }
    return page;
  }

  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit) override {
    const std::string until = std::to_string(unix_ms);
    std::vector<SessionKey> expired;
    int64_t passed = 0;  // of a newer program, which deletes them itself
    while (std::ssize(expired) < limit) {
      const int64_t wanted =
          std::min(limit - std::ssize(expired), kEntriesAtOnce);
      const std::string offset = std::to_string(passed + std::ssize(expired));
      const std::string count = std::to_string(wanted);
      ASSIGN_OR_RETURN(const RedisClient::Replies lines,
                       client_->Call({{"ZRANGEBYSCORE", keys_.expiry(), "-inf",
                                       until, "LIMIT", offset, count}}));
      ASSIGN_OR_RETURN(const std::vector<SessionKey> keys,
                       ParseLines(lines.list[0]));
      ASSIGN_OR_RETURN(const std::vector<absl::StatusOr<Entry>> entries,
                       ReadEntries(keys));
      for (size_t i = 0; i < keys.size(); ++i) {
        if (absl::IsFailedPrecondition(entries[i].status())) {
          ++passed;
        } else if (entries[i].ok() && !entries[i]->session.has_value()) {
          RETURN_IF_ERROR(DropFromIndexes(keys[i]));
        } else {
          expired.push_back(keys[i]);
        }
      }
      if (std::ssize(lines.list[0].list) < wanted) break;
    }
    return expired;
  }

  absl::StatusOr<Usage> GetUsage() override { return ReadUsage(keys_.usage()); }
  absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) override {
    return ReadUsage(keys_.TenantUsage(tenant));
  }

 private:
  absl::StatusOr<bool> DeleteIfExpired(const SessionKey& key, int64_t unix_ms) {
    for (int i = 0; i < kMostTries; ++i) {
      const absl::StatusOr<Entry> entry = ReadEntry(key);
      if (absl::IsDataLoss(entry.status())) {
        RETURN_IF_ERROR(RunDelete(kRedisDeleteAny, key, "").status());
        return true;
      }
      RETURN_IF_ERROR(entry.status());
      if (!entry->session.has_value()) return false;
      if (!HasExpired(*entry->session, unix_ms)) return false;
      ASSIGN_OR_RETURN(const RedisClient::Replies replies,
                       RunDelete(kRedisDeleteSeen, key, entry->bytes));
      const RedisReply& reply = replies.list[0];
      if (reply.kind == RedisReply::Kind::kInteger) {
        return reply.integer == 1 || replies.repeated;
      }
    }
    return false;  // somebody uses it
  }

  // An entry as it lies there, and what it says; none if there is none.
  struct Entry {
    std::string bytes;
    std::optional<StoredSession> session;
  };
  struct EntryAndMore {
    StoredSession session;
    RedisReply more;
  };
  struct Change {
    StoredSession now;
    std::vector<std::string> dropped;   // fields
    std::vector<std::string_view> set;  // fields and values, in turn
  };

  static absl::Status CheckSize(const RedisReply& value, uint64_t bytes) {
    if (value.is_bytes() && value.bytes.size() == bytes) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        "store: a snapshot or outcome is not the one its entry tells of");
  }

  static absl::StatusOr<Entry> Decode(const SessionKey& key, RedisReply reply) {
    Entry entry;
    if (reply.is_none()) return entry;
    entry.bytes = std::move(reply.bytes);
    ASSIGN_OR_RETURN(entry.session, DecodeEntry(EntryKey(key), entry.bytes));
    return entry;
  }

  absl::StatusOr<Entry> ReadEntry(const SessionKey& key) {
    const std::string session_key = keys_.Session(key);
    ASSIGN_OR_RETURN(RedisClient::Replies replies,
                     client_->Call({{"HGET", session_key, "entry"}}));
    return Decode(key, std::move(replies.list[0]));
  }

  // Each decoded by itself: damage of one is not that of all.
  absl::StatusOr<std::vector<absl::StatusOr<Entry>>> ReadEntries(
      const std::vector<SessionKey>& keys) {
    std::vector<absl::StatusOr<Entry>> entries;
    if (keys.empty()) return entries;
    std::vector<std::string> session_keys;
    std::vector<RedisCommand> commands;
    for (const SessionKey& key : keys) {
      session_keys.push_back(keys_.Session(key));
    }
    for (const std::string& session_key : session_keys) {
      commands.push_back({"HGET", session_key, "entry"});
    }
    ASSIGN_OR_RETURN(RedisClient::Replies replies, client_->Call(commands));
    for (size_t i = 0; i < keys.size(); ++i) {
      entries.push_back(Decode(keys[i], std::move(replies.list[i])));
    }
    return entries;
  }

  // The entry and another field, both of one moment. NotFound.
  absl::StatusOr<EntryAndMore> ReadWith(const SessionKey& key,
                                        std::string_view field) {
    const std::string session_key = keys_.Session(key);
    ASSIGN_OR_RETURN(RedisClient::Replies replies,
                     client_->Call({{"HMGET", session_key, "entry", field}}));
    std::vector<RedisReply>& found = replies.list[0].list;
    ASSIGN_OR_RETURN(Entry entry, Decode(key, std::move(found[0])));
    if (!entry.session.has_value()) return NoSuchSessionError(key);
    return EntryAndMore{*std::move(entry.session), std::move(found[1])};
  }

  absl::StatusOr<RedisClient::Replies> Run(
      const RedisScript& script, const SessionKey& key,
      const std::vector<std::string_view>& arguments) {
    const std::vector<std::string> keys = keys_.OfScripts(key);
    return client_->Run(script, {keys.begin(), keys.end()}, arguments);
  }

  absl::StatusOr<RedisClient::Replies> RunDelete(std::string_view which,
                                                 const SessionKey& key,
                                                 std::string_view seen) {
    const std::string entry_key = EntryKey(key);
    return Run(RedisDeleteScript(), key, {which, seen, key.id, entry_key});
  }

  // Of a session that somebody else has taken away: a person, or a Redis that
  // evicts keys.
  absl::Status DropFromIndexes(const SessionKey& key) {
    return RunDelete(kRedisDeleteNone, key, "").status();
  }

  // Compare-and-set: `decide` gets the entry that `session` may replace, null
  // if there is none, and says what is to be in its place.
  template <typename Decide>
  absl::Status Write(const SessionKey& key,
                     std::optional<uint64_t> expected_revision,
                     const StoredSession& session, const Decide& decide) {
    for (int i = 0; i < kMostTries; ++i) {
      ASSIGN_OR_RETURN(const Entry entry, ReadEntry(key));
      const StoredSession* const old =
          entry.session.has_value() ? &*entry.session : nullptr;
      RETURN_IF_ERROR(CheckReplaces(key, old, expected_revision, session));
      ASSIGN_OR_RETURN(const bool written,
                       RunCommit(key, entry.bytes, decide(old)));
      if (written) return absl::OkStatus();
    }
    return absl::UnavailableError(
        absl::StrCat("store: the entry was changed by others ", kMostTries,
                     " times while it was to be written"));
  }

  // False, and nothing is written, if the entry is another than `old`.
  absl::StatusOr<bool> RunCommit(const SessionKey& key, std::string_view old,
                                 const Change& change) {
    const std::string entry_key = EntryKey(key);
    const std::string entry = EncodeEntry(entry_key, change.now);
    const std::string commit = absl::StrCat(commit_prefix_, "-", ++commits_);
    const std::string expires = std::to_string(change.now.expires_unix_ms);
    const std::string drops = std::to_string(change.dropped.size());
    std::vector<std::string_view> arguments = {
        old, entry, commit, key.id, entry_key, expires, drops};
    arguments.insert(arguments.end(), change.dropped.begin(),
                     change.dropped.end());
    arguments.insert(arguments.end(), change.set.begin(), change.set.end());
    ASSIGN_OR_RETURN(const RedisClient::Replies replies,
                     Run(RedisCommitScript(), key, arguments));
    const RedisReply& reply = replies.list[0];
    if (reply.kind == RedisReply::Kind::kInteger) return true;
    if (!replies.repeated) return false;
    if (reply.list.size() == 2 && reply.list[0].bytes == commit) return true;
    // The first one may have been carried out and written over since.
    return absl::UnavailableError(
        "store: the answer to a write was lost, and the session was changed "
        "by others since");
  }

  absl::StatusOr<Usage> ReadUsage(const std::string& key) {
    ASSIGN_OR_RETURN(const RedisClient::Replies replies,
                     client_->Call({{"HMGET", key, "bytes", "sessions"}}));
    const auto number = [&](size_t i) {
      int64_t value = 0;
      const bool whole =
          absl::SimpleAtoi(replies.list[0].list[i].bytes, &value);
      return whole ? static_cast<uint64_t>(std::max<int64_t>(0, value)) : 0;
    };
    return Usage{number(0), number(1)};
  }

  // Keys out of lines of the expiry index. Lines that are none go.
  absl::StatusOr<std::vector<SessionKey>> ParseLines(const RedisReply& lines) {
    std::vector<SessionKey> keys;
    for (const RedisReply& line : lines.list) {
      absl::StatusOr<SessionKey> key = ParseEntryKey(line.bytes);
      if (key.ok()) {
        keys.push_back(*std::move(key));
        continue;
      }
      LogWarning("store holds a damaged line in its index of expiry times",
                 {{"reason", FromAbsl(key.status().message())}});
      RETURN_IF_ERROR(
          client_->Call({{"ZREM", keys_.expiry(), line.bytes}}).status());
    }
    return keys;
  }

  absl::Status CheckFormat() {
    const std::string key = keys_.format();
    // A full memory keeps it from being set, and from nothing else.
    const absl::Status set =
        client_->Call({{"SET", key, kFormat, "NX"}}).status();
    if (!set.ok() && !IsNoSpace(set)) return set;
    ASSIGN_OR_RETURN(const RedisClient::Replies replies,
                     client_->Call({{"GET", key}}));
    const RedisReply& format = replies.list[0];
    if (format.is_none() || format.bytes == kFormat) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat(
        "store: ", key, " is ", format.bytes, ", this program reads ",
        ToAbsl(kFormat), "; name another prefix, or use a newer program"));
  }

  // Of what would break promises in silence. A user who may not look is not
  // told.
  void WarnOfSettings() {
    const absl::StatusOr<RedisClient::Replies> replies =
        client_->Call({{"INFO", "memory"}, {"INFO", "persistence"}});
    if (!replies.ok()) return;
    const auto says = [&](size_t i, const char* text) {
      return replies->list[i].bytes.find(text) != std::string::npos;
    };
    if (says(0, "maxmemory_policy:") &&
        !says(0, "maxmemory_policy:noeviction")) {
      LogWarning("Redis may drop sessions when its memory is full",
                 {{"advice", "set maxmemory-policy to noeviction"}});
    }
    if (says(1, "aof_enabled:0")) {
      LogWarning(
          "Redis keeps no log of writes: turns since its last dump are lost "
          "when it ends",
          {{"advice", "set appendonly to yes, see docs/stores.md"}});
    }
  }

  void LogDamage(const char* what, const SessionKey& key,
                 const absl::Status& status) {
    constexpr size_t kMostLogged = 1000;
    {
      MutexLock lock(damage_mu_);
      if (damage_logged_.size() >= kMostLogged) return;
      if (!damage_logged_.insert(key).second) return;
    }
    LogWarning(what, {{"reason", FromAbsl(status.message())}});
  }

  const std::unique_ptr<RedisClient> client_;  // synchronises itself
  const RedisKeys keys_;
  const std::string commit_prefix_;  // of this store object and no other
  std::atomic<uint64_t> commits_{0};

  Mutex damage_mu_;
  std::set<SessionKey> damage_logged_ ABSL_GUARDED_BY(damage_mu_);
};

}  // namespace

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisStore(
    const std::string& uri) {
  ASSIGN_OR_RETURN(const RedisOptions options, ParseRedisUri(uri));
  return RedisStore::Open(options);
}

}  // namespace reprise
