#include "engine/model/fingerprint.h"

#include <openssl/evp.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/base/log.h"

namespace reprise {
namespace {

constexpr size_t kBytesAtATime = size_t{4} << 20;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    CHECK(context_ != nullptr);
    CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  // The length goes first, so that pieces cannot run into each other.
  void Add(std::string_view bytes,
           absl::FunctionRef<void(std::string_view)> done) {
    const uint64_t size = bytes.size();
    AddRaw(&size, sizeof(size));
    for (; !bytes.empty();
         bytes.remove_prefix(std::min(bytes.size(), kBytesAtATime))) {
      const std::string_view now = bytes.substr(0, kBytesAtATime);
      AddRaw(now.data(), now.size());
      done(now);
    }
  }
  void Add(std::string_view bytes) {
    Add(bytes, [](std::string_view) {});
  }
  std::array<unsigned char, 32> Finish() {
    std::array<unsigned char, 32> digest;
    CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    return digest;
  }

 private:
  void AddRaw(const void* data, size_t size) {
    CHECK(EVP_DigestUpdate(context_.get(), data, size) == 1);
  }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

Fingerprint::Digest Fingerprint::DigestOf(
    std::string_view description, std::string_view bytes,
    absl::FunctionRef<void(std::string_view)> done) {
  Sha256 hash;
  hash.Add(description);
  hash.Add(bytes, done);
  return hash.Finish();
}

void Fingerprint::Add(std::string_view name, std::string_view description,
                      std::string_view bytes) {
  if (pieces_.contains(name)) return;
  pieces_.emplace(name, DigestOf(description, bytes, [](std::string_view) {}));
}

bool Fingerprint::AddDigest(std::string_view name, const Digest& digest) {
  return pieces_.emplace(name, digest).first->second == digest;
}

uint64_t Fingerprint::Value() const {
  Sha256 hash;
  for (const auto& [name, digest] : pieces_) {
    hash.Add(name);
    hash.Add(std::string_view(reinterpret_cast<const char*>(digest.data()),
                              digest.size()));
  }
  const auto digest = hash.Finish();
  uint64_t value;
  std::memcpy(&value, digest.data(), sizeof(value));
  return value;
}

}  // namespace reprise
