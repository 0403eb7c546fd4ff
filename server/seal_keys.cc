#include "server/seal_keys.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr std::string_view kIdCharacters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
constexpr std::string_view kBlanks = " \t\r";

// Closes and wipes with it.
struct KeyFile {
  ~KeyFile() {
    if (fd >= 0) close(fd);
    WipeSecret(text.data(), text.size());
  }
  int fd = -1;
  std::string text;
};

template <typename... Parts>
std::string About(const std::string& path, const Parts&... parts) {
  return absl::StrCat("--seal-keys: ", path, ": ", parts...);
}

absl::Status CannotRead(const std::string& path) {
  const int error = errno;
  const std::string text = About(path, std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(text);
  if (error == EACCES) return absl::PermissionDeniedError(text);
  return absl::UnavailableError(text);
}

absl::Status CheckFile(const std::string& path, int fd) {
  struct stat found {};
  if (fstat(fd, &found) != 0) return CannotRead(path);
  if (!S_ISREG(found.st_mode)) {
    return absl::InvalidArgumentError(About(path, "is not a regular file"));
  }
  const uid_t user = geteuid();
  if (found.st_uid != user && found.st_uid != 0) {
    return absl::PermissionDeniedError(About(
        path, "belongs to user ", found.st_uid, ", and must belong to ", user,
        ", who runs the server, or to root; chown it, and draw new "
        "keys if another knew them"));
  }
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if ((found.st_mode & kOthers) != 0) {
    return absl::PermissionDeniedError(
        About(path, "others than its owner may use it (mode ",
              found.st_mode >> 6 & 7, found.st_mode >> 3 & 7, found.st_mode & 7,
              "); chmod 600 it, and draw new keys if it was so for long"));
  }
  if (found.st_size > static_cast<off_t>(kMaxSealKeyFileBytes)) {
    return absl::InvalidArgumentError(About(path, "has ", found.st_size,
                                            " bytes, more than ",
                                            kMaxSealKeyFileBytes));
  }
  return absl::OkStatus();
}

absl::Status ReadKeyFile(const std::string& path, KeyFile& file) {
  file.fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.fd < 0) return CannotRead(path);
  RETURN_IF_ERROR(CheckFile(path, file.fd));
  // The whole buffer at once: growing it would leave copies behind.
  file.text.resize(kMaxSealKeyFileBytes);
  size_t size = 0;
  while (size < file.text.size()) {
    const ssize_t got =
        read(file.fd, file.text.data() + size, file.text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return CannotRead(path);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  file.text.resize(size);
  return absl::OkStatus();
}

// The next word of a line, which is cut off; empty at its end.
std::string_view NextWord(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const size_t end = std::min(line.find_first_of(kBlanks), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(end);
  return word;
}

std::optional<uint8_t> HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

bool ParseSecret(std::string_view hex, SealSecret& secret) {
  if (hex.size() != 2 * secret.size()) return false;
  for (size_t i = 0; i < secret.size(); ++i) {
    const auto high = HexDigit(hex[2 * i]);
    const auto low = HexDigit(hex[2 * i + 1]);
    if (!high.has_value() || !low.has_value()) return false;
    secret[i] = static_cast<unsigned char>(*high << 4 | *low);
  }
  return true;
}

std::optional<SealAlgorithm> ParseAlgorithm(std::string_view name) {
  if (name == "aes-256-gcm") return SealAlgorithm::kAes256Gcm;
  if (name == "hmac-sha-256") return SealAlgorithm::kHmacSha256;
  return std::nullopt;
}

// What is wrong with a line that is not empty, or nothing. Words are shown
// only where they cannot be a key that stands in the wrong place.
std::string ParseKey(std::string_view line, SealKey& key) {
  const std::string_view id = NextWord(line);
  if (id.size() > kMaxSealKeyIdBytes || id.front() == '.' ||
      id.find_first_not_of(kIdCharacters) != std::string_view::npos) {
    return absl::StrCat("the first word is not an id, 1 to ",
                        kMaxSealKeyIdBytes,
                        " of A-Z a-z 0-9 . _ - without a dot in front");
  }
  // The id is in every seal; a key in its place would be, too.
  if (ParseSecret(id, key.secret)) {
    return "the first word is the key's id, and not the key";
  }
  key.id = std::string(id);
  const std::optional<SealAlgorithm> algorithm = ParseAlgorithm(NextWord(line));
  if (!algorithm.has_value()) {
    return absl::StrCat("key ", key.id,
                        ": the algorithm is not aes-256-gcm or hmac-sha-256");
  }
  key.algorithm = *algorithm;
  if (!ParseSecret(NextWord(line), key.secret)) {
    return absl::StrCat("key ", key.id, ": the key is not ",
                        2 * key.secret.size(), " hexadecimal digits");
  }
  if (!NextWord(line).empty()) {
    return absl::StrCat("key ", key.id, ": words after the key");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<SealKeys>> SealKeys::Load(
    const std::string& path) {
  KeyFile file;
  RETURN_IF_ERROR(ReadKeyFile(path, file));
  std::unique_ptr<SealKeys> keys(new SealKeys());
  keys->keys_.reserve(kMaxSealKeys);  // growing would leave copies behind
  std::string_view rest = file.text;
  for (int number = 1; !rest.empty(); ++number) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(kBlanks) == std::string_view::npos) continue;
    if (keys->keys_.size() == kMaxSealKeys) {
      return absl::InvalidArgumentError(
          About(path, "line ", number, ": more than ", kMaxSealKeys, " keys"));
    }
    SealKey& key = keys->keys_.emplace_back();
    std::string wrong = ParseKey(line, key);
    const auto same = [&key](const SealKey& other) {
      return other.id == key.id;
    };
    if (wrong.empty() &&
        std::count_if(keys->keys_.begin(), keys->keys_.end(), same) > 1) {
      wrong =
          absl::StrCat("key ", key.id, ": that id is taken by a line above");
    }
    if (!wrong.empty()) {
      return absl::InvalidArgumentError(
          About(path, "line ", number, ": ", wrong));
    }
  }
  if (keys->keys_.empty()) {
    return absl::InvalidArgumentError(About(path, "has no key"));
  }
  return keys;
}

absl::StatusOr<std::unique_ptr<SealKeys>> SealKeys::Ephemeral() {
  std::unique_ptr<SealKeys> keys(new SealKeys());
  keys->ephemeral_ = true;
  SealKey& key = keys->keys_.emplace_back();
  std::array<char, 8> name{};
  RETURN_IF_ERROR(FillRandom(name.data(), name.size()));
  RETURN_IF_ERROR(FillRandom(key.secret.data(), key.secret.size()));
  // The dot keeps it apart from what people call theirs.
  key.id = absl::StrCat(
      ".until-exit-",
      absl::BytesToHexString(absl::string_view(name.data(), name.size())));
  return keys;
}

SealKeys::~SealKeys() {
  for (SealKey& key : keys_) WipeSecret(key.secret.data(), key.secret.size());
}

const SealKey* SealKeys::Find(std::string_view id) const {
  for (const SealKey& key : keys_) {
    if (key.id == id) return &key;
  }
  return nullptr;
}

absl::StatusOr<std::unique_ptr<SealKeys>> OpenSealKeys(
    const std::string& path) {
  if (path.empty()) {
    LogInfo("no --seal-keys: sealed snapshots open in this process only");
    return SealKeys::Ephemeral();
  }
  ASSIGN_OR_RETURN(std::unique_ptr<SealKeys> keys, SealKeys::Load(path));
  LogInfo("seal keys loaded",
          {{"keys", keys->size()}, {"seals_with", keys->sealing().id}});
  return keys;
}

}  // namespace reprise
