// The cryptography of seals, over OpenSSL, which no other file of the server
// knows. What is sealed, and for whom, is seal.h's business.
#ifndef SERVER_SEAL_CIPHER_H_
#define SERVER_SEAL_CIPHER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise {

// Numbers are those of docs/export.md.
enum class SealAlgorithm : uint32_t {
  kAes256Gcm = 1,   // encrypted and authenticated
  kHmacSha256 = 2,  // authenticated only
};

inline constexpr size_t kSealNonceBytes = 12;
using SealSecret = std::array<unsigned char, 32>;
using SealNonce = std::array<unsigned char, kSealNonceBytes>;

// Bytes of the tag: 16 or 32.
size_t SealTagBytes(SealAlgorithm algorithm);

// From the system's generator of random numbers. Internal if it fails.
absl::Status FillRandom(void* bytes, size_t size);
// Overwrites a secret that is not needed any more.
void WipeSecret(void* bytes, size_t size);

// `bytes` are a header of `header_bytes` and a payload. Encrypts the payload,
// if the algorithm does, and appends the tag of both. A nonce must not be used
// twice with one secret; HMAC needs none and leaves it out. Internal if the
// library fails.
absl::Status SealInPlace(SealAlgorithm algorithm, const SealSecret& secret,
                         const SealNonce& nonce, size_t header_bytes,
                         std::string& bytes);

// The payload of what SealInPlace made. DataLoss if anything of it, of the
// header too, is not as it was sealed, or the secret is another one; how long
// that takes tells nothing of the tag. CHECKs that there is room for the header
// and the tag.
absl::StatusOr<std::string> OpenSealed(SealAlgorithm algorithm,
                                       const SealSecret& secret,
                                       const SealNonce& nonce,
                                       size_t header_bytes,
                                       std::string_view bytes);

}  // namespace reprise

#endif  // SERVER_SEAL_CIPHER_H_
