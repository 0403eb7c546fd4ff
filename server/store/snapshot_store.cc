#include "server/store/snapshot_store.h"

#include <array>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace reprise {
namespace {

constexpr absl::string_view kNoSpaceUrl = "reprise/no_space";

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenMemory(
    const std::string& rest) {
  if (!rest.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "store: nothing may follow \"memory:\", got \"", rest, "\""));
  }
  return NewMemoryStore();
}

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRocksDb(
    const std::string& rest) {
  if (rest.empty()) {
    return absl::InvalidArgumentError(
        "store: \"rocksdb:\" must be followed by a path");
  }
  return OpenRocksDbStore(rest);
}

// The three forms of one store's URI.
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedis(
    const std::string& rest) {
  return OpenRedisStore("redis:" + rest);
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisTls(
    const std::string& rest) {
  return OpenRedisStore("rediss:" + rest);
}
absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenRedisUnix(
    const std::string& rest) {
  return OpenRedisStore("redis+unix:" + rest);
}

struct Scheme {
  absl::string_view name;
  absl::string_view form;  // for error messages
  absl::StatusOr<std::unique_ptr<SnapshotStore>> (*open)(
      const std::string& rest);
};

constexpr std::array<Scheme, 5> kSchemes = {{
    {"memory", "memory:", OpenMemory},
    {"rocksdb", "rocksdb:PATH", OpenRocksDb},
    {"redis", "redis://HOST:PORT", OpenRedis},
    {"rediss", "rediss://HOST:PORT", OpenRedisTls},
    {"redis+unix", "redis+unix:PATH", OpenRedisUnix},
}};

}  // namespace

// For stores of one process, where the caller alone works on the session.
absl::StatusOr<bool> SnapshotStore::DeleteExpired(const SessionKey& key,
                                                  int64_t unix_ms) {
  const absl::StatusOr<StoredSession> session = GetEntry(key);
  if (absl::IsNotFound(session.status())) return false;
  if (!session.ok() && !absl::IsDataLoss(session.status())) {
    return session.status();
  }
  if (session.ok() && !HasExpired(*session, unix_ms)) return false;
  const absl::Status status = Delete(key);
  if (absl::IsNotFound(status)) return false;
  if (!status.ok()) return status;
  return true;
}

absl::StatusOr<std::unique_ptr<SnapshotStore>> OpenStore(
    const std::string& uri) {
  const size_t colon = uri.find(':');
  std::string forms;
  for (const Scheme& scheme : kSchemes) {
    if (colon != std::string::npos && uri.substr(0, colon) == scheme.name) {
      return scheme.open(uri.substr(colon + 1));
    }
    absl::StrAppend(&forms, forms.empty() ? "" : " or ", scheme.form);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("store: \"", WithoutPassword(uri), "\" must be ", forms));
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
