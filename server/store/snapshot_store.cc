#include "server/store/snapshot_store.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/store/redis_uri.h"

namespace reprise {
namespace {

constexpr absl::string_view kNoSpaceUrl = "reprise/no_space";

absl::Status CheckMemory(const std::string& rest) {
  if (rest.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "store: nothing may follow \"memory:\", got \"", rest, "\""));
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenMemory(
    const std::string&, std::optional<Durability>) {
  return NewMemoryStore();
}

absl::Status CheckRocksDb(const std::string& rest) {
  if (!rest.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "store: \"rocksdb:\" must be followed by a path");
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDb(
    const std::string& rest, std::optional<Durability> durability) {
  return OpenRocksDbStore(
      rest, {.durability = durability.value_or(Durability::kFsync)});
}

// The three forms of one store's URI.
absl::Status CheckRedis(const std::string& rest) {
  return CheckRedisUri("redis:" + rest);
}
absl::Status CheckRedisTls(const std::string& rest) {
  return CheckRedisUri("rediss:" + rest);
}
absl::Status CheckRedisUnix(const std::string& rest) {
  return CheckRedisUri("redis+unix:" + rest);
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedis(
    const std::string& rest, std::optional<Durability>) {
  return OpenRedisStore("redis:" + rest);
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisTls(
    const std::string& rest, std::optional<Durability>) {
  return OpenRedisStore("rediss:" + rest);
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisUnix(
    const std::string& rest, std::optional<Durability>) {
  return OpenRedisStore("redis+unix:" + rest);
}

struct Scheme {
  absl::string_view name;
  absl::string_view form;  // for error messages
  // What follows the colon, as CheckStoreUri; `open` may rely on it.
  absl::Status (*check)(const std::string& rest);
  absl::StatusOr<std::unique_ptr<SnapshotStore>> (*open)(
      const std::string& rest, std::optional<Durability> durability);
  // What an acknowledged write survives; null: as its durability says.
  const char* survives;
};

constexpr const char* kAsRedisIsSet =
    "what Redis is set to survive (appendonly, appendfsync)";

constexpr std::array<Scheme, 5> kSchemes = {{
    {"memory", "memory:", CheckMemory, OpenMemory,
     "nothing: it is gone with this process"},
    {"rocksdb", "rocksdb:PATH", CheckRocksDb, OpenRocksDb, nullptr},
    {"redis", "redis://HOST:PORT", CheckRedis, OpenRedis, kAsRedisIsSet},
    {"rediss", "rediss://HOST:PORT", CheckRedisTls, OpenRedisTls,
     kAsRedisIsSet},
    {"redis+unix", "redis+unix:PATH", CheckRedisUnix, OpenRedisUnix,
     kAsRedisIsSet},
}};

// Null if there is none.
const Scheme* SchemeOf(const std::string& uri) {
  const size_t colon = uri.find(':');
  if (colon == std::string::npos) return nullptr;
  for (const Scheme& scheme : kSchemes) {
    if (uri.substr(0, colon) == scheme.name) return &scheme;
  }
  return nullptr;
}

}  // namespace

// For stores of one process, where the caller alone works on the session.
absl::StatusOr<int64_t> SnapshotStore::DeleteExpired(
    std::span<const SessionKey> keys, int64_t unix_ms) {
  int64_t deleted = 0;
  for (const SessionKey& key : keys) {
    const absl::StatusOr<StoredSession> session = GetEntry(key);
    if (absl::IsNotFound(session.status())) continue;
    if (!session.ok() && !absl::IsDataLoss(session.status())) {
      return session.status();
    }
    if (session.ok() && !HasExpired(*session, unix_ms)) continue;
    const absl::Status status = Delete(key);
    if (absl::IsNotFound(status)) continue;
    RETURN_IF_ERROR(status);
    ++deleted;
  }
  return deleted;
}

absl::Status CheckStoreUri(const std::string& uri,
                           std::optional<Durability> durability) {
  const Scheme* const scheme = SchemeOf(uri);
  if (scheme == nullptr) {
    std::string forms;
    for (const Scheme& known : kSchemes) {
      absl::StrAppend(&forms, forms.empty() ? "" : " or ", known.form);
    }
    return absl::InvalidArgumentError(
        absl::StrCat("store: \"", WithoutPassword(uri), "\" must be ", forms));
  }
  if (durability.has_value() && scheme->survives != nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("durability: ", DurabilityName(*durability),
                     " cannot be chosen with a store of ", scheme->name,
                     ":, where a turn survives ", scheme->survives));
  }
  return scheme->check(uri.substr(scheme->name.size() + 1));
}

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenStore(
    const std::string& uri, std::optional<Durability> durability) {
  RETURN_IF_ERROR(CheckStoreUri(uri, durability));
  const Scheme& scheme = *SchemeOf(uri);
  return scheme.open(uri.substr(scheme.name.size() + 1), durability);
}

std::string WhatSurvives(const std::string& uri,
                         std::optional<Durability> durability) {
  const Scheme* const scheme = SchemeOf(uri);
  if (scheme != nullptr && scheme->survives != nullptr) return scheme->survives;
  switch (durability.value_or(Durability::kFsync)) {
    case Durability::kFsync:
      return "the end of the process and of the machine";
    case Durability::kAsync:
      return absl::StrCat(
          "the end of the process; that of the machine (its power, its "
          "kernel) takes the last ",
          kAsyncSyncMs, " ms");
    case Durability::kNone:
      break;
  }
  return absl::StrCat(
      "a stop in order (SIGTERM); any other end of the process, or an error "
      "of the disk, takes the last ",
      kNoneFlushMs / 1000, " s");
}

std::string WithoutPassword(const std::string& uri) {
  const size_t begin = uri.find("//");
  const size_t end = uri.rfind('@');
  if (begin == std::string::npos || end == std::string::npos || end < begin) {
    return uri;
  }
  const size_t colon = uri.find(':', begin);
  if (colon > end) return uri;
  return absl::StrCat(uri.substr(0, colon + 1), "***", uri.substr(end));
}

absl::Status NoSpaceError(std::string_view message) {
  absl::Status status =
      absl::UnavailableError(absl::StrCat("no space left: ", ToAbsl(message)));
  status.SetPayload(kNoSpaceUrl, absl::Cord("1"));
  return status;
}

bool IsNoSpace(const absl::Status& status) {
  return status.GetPayload(kNoSpaceUrl).has_value();
}

absl::Status NoSuchSessionError(const SessionKey& key) {
  return absl::NotFoundError(
      absl::StrCat("no session ", absl::CHexEscape(ToAbsl(key.id))));
}

}  // namespace reprise
