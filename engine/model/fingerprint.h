// A fingerprint of named pieces of data: it differs if one bit of them does.
#ifndef ENGINE_MODEL_FINGERPRINT_H_
#define ENGINE_MODEL_FINGERPRINT_H_

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace reprise {

// Used by one thread at a time. SHA-256, because OpenSSL runs it at the speed
// of reading the weights (on CPUs with SHA instructions, about 2 GB/s a core)
// and nobody can make two models that share a fingerprint by construction.
class Fingerprint {
 public:
  using Digest = std::array<unsigned char, 32>;
  using Digests = std::map<std::string, Digest, std::less<>>;

  // Of a piece. `done` is told of the bytes as they have been read.
  static Digest DigestOf(std::string_view description, std::string_view bytes,
                         absl::FunctionRef<void(std::string_view)> done);

  // Adds a piece; a name already there is left as it is.
  void Add(std::string_view name, std::string_view description,
           std::string_view bytes);
  // The same by its digest. Whether that is the piece's digest now: false if
  // the name was there with another one.
  bool AddDigest(std::string_view name, const Digest& digest);
  const Digests& digests() const { return pieces_; }
  // The first 64 bits of the digest over all pieces in the order of their
  // names, whatever the order they were added in.
  uint64_t Value() const;

 private:
  Digests pieces_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_FINGERPRINT_H_
