// The keys that snapshots are sealed with, from the file of --seal-keys.
//
//   # id      algorithm     key, 64 hexadecimal digits
//   2026-11   aes-256-gcm   5f1c...
//   2026-05   hmac-sha-256  09ab...
//
// A line for each key; # begins a comment. The first one seals, and every one
// opens what was sealed with it. So a new key comes in as the second line of
// every server, then as the first, and the old one goes when nothing is left
// that it sealed.
#ifndef SERVER_SEAL_KEYS_H_
#define SERVER_SEAL_KEYS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "server/seal_cipher.h"

namespace reprise {

struct SealKey {
  std::string id;  // 1..64 of A-Z a-z 0-9 . _ -
  SealAlgorithm algorithm = SealAlgorithm::kAes256Gcm;
  SealSecret secret{};
};

inline constexpr size_t kMaxSealKeys = 256;
inline constexpr size_t kMaxSealKeyIdBytes = 64;
inline constexpr size_t kMaxSealKeyFileBytes = 64 << 10;

// Immutable after construction, thread-safe. Secrets are overwritten when it is
// destroyed, and are in no message and no log.
class SealKeys {
 public:
  // NotFound or Unavailable if the file cannot be read; PermissionDenied if it
  // belongs to another user than the process's effective one or root, or if
  // others than its owner may read or change it; InvalidArgument, naming the
  // line, if it is not of the form above.
  static absl::StatusOr<std::unique_ptr<SealKeys>> Load(
      const std::string& path);
  // One key that was drawn and is nowhere else: it opens what this process
  // sealed. Internal if there are no random numbers.
  static absl::StatusOr<std::unique_ptr<SealKeys>> Ephemeral();
  ~SealKeys();
  SealKeys(const SealKeys&) = delete;
  SealKeys& operator=(const SealKeys&) = delete;

  const SealKey& sealing() const { return keys_.front(); }
  // nullptr if there is none of that id.
  const SealKey* Find(std::string_view id) const;
  size_t size() const { return keys_.size(); }
  bool ephemeral() const { return ephemeral_; }

 private:
  SealKeys() = default;

  std::vector<SealKey> keys_;  // one at least
  bool ephemeral_ = false;
};

// The keys of the file that --seal-keys names or, if that is empty, drawn ones;
// says in the log which. The errors of Load, which name the option.
absl::StatusOr<std::unique_ptr<SealKeys>> OpenSealKeys(const std::string& path);

}  // namespace reprise

#endif  // SERVER_SEAL_KEYS_H_
