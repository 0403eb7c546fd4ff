#include "server/seal_cipher.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr size_t kGcmTagBytes = 16;
constexpr size_t kHmacTagBytes = 32;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const {
    EVP_CIPHER_CTX_free(context);
  }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* Unsigned(const char* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

absl::Status LibraryError(const char* what) {
  return absl::InternalError(std::string("seal: OpenSSL failed to ") + what);
}

absl::Status WrongSeal() {
  return absl::DataLossError(
      "the seal does not fit: it was damaged or changed, or sealed "
      "with another key of the same id");
}

// Encrypts or decrypts what lies at `data`, where it lies; the header and the
// data count for the tag. The library counts in int, so in pieces.
absl::Status RunCipher(EVP_CIPHER_CTX* context, std::string_view header,
                       char* data, size_t size) {
  constexpr size_t kPiece = size_t{1} << 24;
  int written = 0;
  if (EVP_CipherUpdate(context, nullptr, &written, Unsigned(header.data()),
                       static_cast<int>(header.size())) != 1) {
    return LibraryError("read the header");
  }
  for (size_t at = 0; at < size; at += kPiece) {
    const int piece = static_cast<int>(std::min(kPiece, size - at));
    auto* bytes = reinterpret_cast<unsigned char*>(data + at);
    if (EVP_CipherUpdate(context, bytes, &written, bytes, piece) != 1) {
      return LibraryError("run AES-256-GCM");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Context> NewGcm(const SealSecret& secret, const SealNonce& nonce,
                               bool encrypt) {
  Context context(EVP_CIPHER_CTX_new());
  if (context == nullptr ||
      EVP_CipherInit_ex(context.get(), EVP_aes_256_gcm(), nullptr,
                        secret.data(), nonce.data(), encrypt ? 1 : 0) != 1) {
    return LibraryError("begin AES-256-GCM");
  }
  return context;
}

absl::Status SealGcm(const SealSecret& secret, const SealNonce& nonce,
                     size_t header_bytes, std::string& bytes) {
  ASSIGN_OR_RETURN(const Context context,
                   NewGcm(secret, nonce, /*encrypt=*/true));
  RETURN_IF_ERROR(
      RunCipher(context.get(), std::string_view(bytes).substr(0, header_bytes),
                bytes.data() + header_bytes, bytes.size() - header_bytes));
  std::array<unsigned char, kGcmTagBytes> tag{};
  int written = 0;
  if (EVP_CipherFinal_ex(context.get(), tag.data(), &written) != 1 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_GET_TAG, tag.size(),
                          tag.data()) != 1) {
    return LibraryError("end AES-256-GCM");
  }
  bytes.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> OpenGcm(const SealSecret& secret,
                                    const SealNonce& nonce, size_t header_bytes,
                                    std::string_view bytes) {
  ASSIGN_OR_RETURN(const Context context,
                   NewGcm(secret, nonce, /*encrypt=*/false));
  const size_t payload_bytes = bytes.size() - header_bytes - kGcmTagBytes;
  std::string payload(bytes.substr(header_bytes, payload_bytes));
  RETURN_IF_ERROR(RunCipher(context.get(), bytes.substr(0, header_bytes),
                            payload.data(), payload.size()));
  std::array<unsigned char, kGcmTagBytes> tag{};
  std::copy_n(bytes.end() - kGcmTagBytes, kGcmTagBytes, tag.begin());
  if (EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_GCM_SET_TAG, tag.size(),
                          tag.data()) != 1) {
    return LibraryError("take the tag");
  }
  std::array<unsigned char, kGcmTagBytes> rest{};
  int written = 0;
  if (EVP_CipherFinal_ex(context.get(), rest.data(), &written) != 1) {
    return WrongSeal();
  }
  return payload;
}

absl::StatusOr<std::array<unsigned char, kHmacTagBytes>> Hmac(
    const SealSecret& secret, std::string_view bytes) {
  std::array<unsigned char, kHmacTagBytes> tag{};
  unsigned int size = 0;
  if (HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
           Unsigned(bytes.data()), bytes.size(), tag.data(),
           &size) == nullptr ||
      size != tag.size()) {
    return LibraryError("run HMAC-SHA-256");
  }
  return tag;
}

absl::StatusOr<std::string> OpenHmac(const SealSecret& secret,
                                     size_t header_bytes,
                                     std::string_view bytes) {
  const std::string_view sealed = bytes.substr(0, bytes.size() - kHmacTagBytes);
  ASSIGN_OR_RETURN(const auto tag, Hmac(secret, sealed));
  if (CRYPTO_memcmp(tag.data(), bytes.data() + sealed.size(), tag.size()) !=
      0) {
    return WrongSeal();
  }
  return std::string(sealed.substr(header_bytes));
}

}  // namespace

size_t SealTagBytes(SealAlgorithm algorithm) {
  return algorithm == SealAlgorithm::kAes256Gcm ? kGcmTagBytes : kHmacTagBytes;
}

absl::Status FillRandom(void* bytes, size_t size) {
  if (RAND_bytes(static_cast<unsigned char*>(bytes), static_cast<int>(size)) !=
      1) {
    return LibraryError("draw random numbers");
  }
  return absl::OkStatus();
}

void WipeSecret(void* bytes, size_t size) { OPENSSL_cleanse(bytes, size); }

absl::Status SealInPlace(SealAlgorithm algorithm, const SealSecret& secret,
                         const SealNonce& nonce, size_t header_bytes,
                         std::string& bytes) {
  CHECK(bytes.size() >= header_bytes);
  if (algorithm == SealAlgorithm::kAes256Gcm) {
    return SealGcm(secret, nonce, header_bytes, bytes);
  }
  ASSIGN_OR_RETURN(const auto tag, Hmac(secret, bytes));
  bytes.append(reinterpret_cast<const char*>(tag.data()), tag.size());
  return absl::OkStatus();
}

absl::StatusOr<std::string> OpenSealed(SealAlgorithm algorithm,
                                       const SealSecret& secret,
                                       const SealNonce& nonce,
                                       size_t header_bytes,
                                       std::string_view bytes) {
  CHECK(bytes.size() >= header_bytes + SealTagBytes(algorithm));
  return algorithm == SealAlgorithm::kAes256Gcm
             ? OpenGcm(secret, nonce, header_bytes, bytes)
             : OpenHmac(secret, header_bytes, bytes);
}

}  // namespace reprise
