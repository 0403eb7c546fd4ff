// Little-endian bytes: a writer, a bounds-checked reader, and CRC-32C.
#ifndef ENGINE_BASE_BYTES_H_
#define ENGINE_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace reprise {

static_assert(std::endian::native == std::endian::little,
              "the formats are little-endian and copied as they lie");

// Our interfaces speak std::string_view; Debian's Abseil has a string_view of
// its own. These convert at that boundary.
inline absl::string_view ToAbsl(std::string_view text) {
  return absl::string_view(text.data(), text.size());
}
inline std::string_view FromAbsl(absl::string_view text) {
  return std::string_view(text.data(), text.size());
}

// CRC-32C (Castagnoli) of `data`, as iSCSI (RFC 3720, appendix B.4) and
// RocksDB compute it. To continue, pass the previous result as `crc`.
uint32_t Crc32c(std::string_view data, uint32_t crc = 0);

// Appends to a string that it owns.
class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void Put(T value) {
    PutBytes(
        std::string_view(reinterpret_cast<const char*>(&value), sizeof(value)));
  }
  void PutBytes(std::string_view bytes) { out_.append(bytes); }
  // A 32-bit length, then the bytes.
  void PutSized(std::string_view bytes) {
    Put(static_cast<uint32_t>(bytes.size()));
    PutBytes(bytes);
  }
  void Reserve(size_t bytes) { out_.reserve(bytes); }
  const std::string& data() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what a ByteWriter wrote. Every function returns DataLoss, and reads
// nothing, when fewer bytes are left than it needs. Views point into the data,
// which must outlive them.
class ByteReader {
 public:
  explicit ByteReader(std::string_view data) : rest_(data) {}

  template <typename T>
  requires std::is_arithmetic_v<T> absl::StatusOr<T> Get() {
    absl::StatusOr<std::string_view> bytes = GetBytes(sizeof(T));
    if (!bytes.ok()) return bytes.status();
    T value;
    std::memcpy(&value, bytes->data(), sizeof(value));
    return value;
  }
  absl::StatusOr<std::string_view> GetBytes(uint64_t size);
  absl::StatusOr<std::string_view> GetSized();
  size_t remaining() const { return rest_.size(); }

 private:
  std::string_view rest_;
};

}  // namespace reprise

#endif  // ENGINE_BASE_BYTES_H_
