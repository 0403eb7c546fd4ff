#include "engine/base/bytes.h"

#include <array>
#include <string>

#include "absl/strings/str_cat.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace reprise {
namespace {

constexpr uint32_t kCastagnoliReflected = 0x82f63b78;

constexpr std::array<uint32_t, 256> MakeCrcTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) ? kCastagnoliReflected : 0);
    }
    table[byte] = crc;
  }
  return table;
}

uint32_t UpdateByTable(uint32_t crc, std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = MakeCrcTable();
  for (const char c : data) {
    crc = (crc >> 8) ^ kTable[(crc ^ static_cast<uint8_t>(c)) & 0xff];
  }
  return crc;
}

#if defined(__x86_64__)
// The instruction of SSE 4.2 takes 8 bytes, and three cycles until the next one
// can use its result. So three lanes of a block are taken at once, and their
// sums put together afterwards.
constexpr size_t kLaneBytes = 2048;

// What kLaneBytes zero bytes make of a sum. That is linear over GF(2), so the
// sum of what they make of its four bytes.
class LaneShift {
 public:
  LaneShift() {
    const std::string zeros(kLaneBytes, '\0');
    std::array<uint32_t, 32> of_bit;
    for (size_t bit = 0; bit < of_bit.size(); ++bit) {
      of_bit[bit] = UpdateByTable(uint32_t{1} << bit, zeros);
    }
    for (size_t i = 0; i < table_.size(); ++i) {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t sum = 0;
        for (size_t bit = 0; bit < 8; ++bit) {
          if (byte >> bit & 1) sum ^= of_bit[8 * i + bit];
        }
        table_[i][byte] = sum;
      }
    }
  }

  uint32_t operator()(uint32_t crc) const {
    return table_[0][crc & 0xff] ^ table_[1][crc >> 8 & 0xff] ^
           table_[2][crc >> 16 & 0xff] ^ table_[3][crc >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_;
};

__attribute__((target("sse4.2"))) inline uint64_t AddWord(uint64_t crc,
                                                          const char* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return _mm_crc32_u64(crc, word);
}

__attribute__((target("sse4.2"))) uint32_t UpdateBySse42(
    uint32_t crc, std::string_view data) {
  static const LaneShift shift;
  uint64_t first = crc;
  const char* bytes = data.data();
  size_t rest = data.size();
  for (; rest >= 3 * kLaneBytes; rest -= 3 * kLaneBytes) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLaneBytes; i += 8) {
      first = AddWord(first, bytes + i);
      second = AddWord(second, bytes + kLaneBytes + i);
      third = AddWord(third, bytes + 2 * kLaneBytes + i);
    }
    first = shift(static_cast<uint32_t>(first)) ^ second;
    first = shift(static_cast<uint32_t>(first)) ^ third;
    bytes += 3 * kLaneBytes;
  }
  for (; rest >= 8; rest -= 8, bytes += 8) first = AddWord(first, bytes);
  crc = static_cast<uint32_t>(first);
  for (; rest > 0; --rest) {
    crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*bytes++));
  }
  return crc;
}
#endif

uint32_t Update(uint32_t crc, std::string_view data) {
#if defined(__x86_64__)
  static const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42) return UpdateBySse42(crc, data);
#endif
  return UpdateByTable(crc, data);
}

}  // namespace

uint32_t Crc32c(std::string_view data, uint32_t crc) {
  return ~Update(~crc, data);
}

absl::StatusOr<std::string_view> ByteReader::GetBytes(uint64_t size) {
  if (size > rest_.size()) {
    return absl::DataLossError(
        absl::StrCat("needs ", size, " more bytes, has ", rest_.size()));
  }
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

absl::StatusOr<std::string_view> ByteReader::GetSized() {
  ByteReader ahead = *this;
  absl::StatusOr<uint32_t> size = ahead.Get<uint32_t>();
  if (!size.ok()) return size.status();
  absl::StatusOr<std::string_view> bytes = ahead.GetBytes(*size);
  if (bytes.ok()) *this = ahead;
  return bytes;
}

}  // namespace reprise
