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

struct Scheme {
  absl::string_view name;
  absl::string_view form;  // for error messages
  absl::StatusOr<std::unique_ptr<SnapshotStore>> (*open)(
      const std::string& rest);
};

constexpr std::array<Scheme, 2> kSchemes = {{
    {"memory", "memory:", OpenMemory},
    {"rocksdb", "rocksdb:PATH", OpenRocksDb},
}};

}  // namespace

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
      absl::StrCat("store: \"", uri, "\" must be ", forms));
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
