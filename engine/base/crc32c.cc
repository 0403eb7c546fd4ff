#include "engine/base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <string>

#if defined(__x86_64__)
#include <immintrin.h>
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
// sums put together afterwards. A lane is a whole number of rounds of
// UpdateByFoldingAndLanes.
constexpr size_t kLaneBytes = 2560;

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

__attribute__((target("sse4.2"))) uint32_t AddInTurn(uint32_t crc,
                                                     std::string_view data) {
  const char* bytes = data.data();
  size_t rest = data.size();
  uint64_t sum = crc;
  for (; rest >= 8; rest -= 8, bytes += 8) sum = AddWord(sum, bytes);
  crc = static_cast<uint32_t>(sum);
  for (; rest > 0; --rest) {
    crc = _mm_crc32_u8(crc, static_cast<uint8_t>(*bytes++));
  }
  return crc;
}

const LaneShift& ShiftLane() {
  static const LaneShift shift;
  return shift;
}

__attribute__((target("sse4.2"))) uint32_t UpdateBySse42(
    uint32_t crc, std::string_view data) {
  const LaneShift& shift = ShiftLane();
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
  return AddInTurn(static_cast<uint32_t>(first), {bytes, rest});
}

// Folding: bytes are the coefficients of a polynomial. Multiplied by a power of
// x, modulo that of the CRC, those of one fold lie over the bytes of the next
// and are added to them; in the end the last fold has the sum of all. Four
// vectors hide the time that a multiplication takes.
constexpr size_t kVectorBytes = 64;
constexpr size_t kFoldBytes = 4 * kVectorBytes;

// x^power modulo the polynomial of the CRC, as the instruction takes it that
// multiplies 64 bits by 64: the highest bit is x^0, and the power is one less,
// since the product begins in the second highest of 128 bits.
constexpr uint64_t FoldFactor(size_t power) {
  uint32_t rest = 0x80000000;
  for (size_t i = 1; i < power; ++i) {
    rest = (rest >> 1) ^ ((rest & 1) ? kCastagnoliReflected : 0);
  }
  return uint64_t{rest} << 32;
}

__attribute__((target("avx512f,vpclmulqdq"))) inline __m512i FoldOnto(
    const char* bytes, __m512i sum, __m512i factors) {
  constexpr int kXorOfThree = 0x96;
  return _mm512_ternarylogic_epi64(
      _mm512_clmulepi64_epi128(sum, factors, /*low times low=*/0x00),
      _mm512_clmulepi64_epi128(sum, factors, /*high times high=*/0x11),
      _mm512_loadu_si512(bytes), kXorOfThree);
}

__attribute__((target("avx512f,vpclmulqdq,sse4.2"))) uint32_t UpdateByFolding(
    uint32_t crc, std::string_view data) {
  const char* bytes = data.data();
  size_t rest = data.size();
  if (rest < 2 * kFoldBytes) return AddInTurn(crc, data);
  // Of 16 bytes, the first 8 have 64 more powers to go.
  constexpr auto kFirst = static_cast<int64_t>(FoldFactor(8 * kFoldBytes + 64));
  constexpr auto kSecond = static_cast<int64_t>(FoldFactor(8 * kFoldBytes));
  const __m512i factors = _mm512_set4_epi64(kSecond, kFirst, kSecond, kFirst);
  __m512i sum0 = _mm512_xor_si512(
      _mm512_loadu_si512(bytes),
      _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(crc))));
  __m512i sum1 = _mm512_loadu_si512(bytes + kVectorBytes);
  __m512i sum2 = _mm512_loadu_si512(bytes + 2 * kVectorBytes);
  __m512i sum3 = _mm512_loadu_si512(bytes + 3 * kVectorBytes);
  for (rest -= kFoldBytes, bytes += kFoldBytes; rest >= kFoldBytes;
       rest -= kFoldBytes, bytes += kFoldBytes) {
    sum0 = FoldOnto(bytes, sum0, factors);
    sum1 = FoldOnto(bytes + kVectorBytes, sum1, factors);
    sum2 = FoldOnto(bytes + 2 * kVectorBytes, sum2, factors);
    sum3 = FoldOnto(bytes + 3 * kVectorBytes, sum3, factors);
  }
  std::array<char, kFoldBytes> last;
  _mm512_storeu_si512(last.data(), sum0);
  _mm512_storeu_si512(last.data() + kVectorBytes, sum1);
  _mm512_storeu_si512(last.data() + 2 * kVectorBytes, sum2);
  _mm512_storeu_si512(last.data() + 3 * kVectorBytes, sum3);
  return AddInTurn(AddInTurn(0, {last.data(), last.size()}), {bytes, rest});
}

// Without AVX-512, folding is no faster than three lanes, but the two keep
// different units of the CPU busy. So a block has bytes to fold and then three
// lanes, and a round takes a fold of those and five words of each lane.
constexpr size_t kHalfVectorBytes = 32;
constexpr size_t kHalfFoldBytes = 4 * kHalfVectorBytes;
constexpr size_t kWords = 5;
constexpr size_t kRounds = kLaneBytes / (8 * kWords);
constexpr size_t kFoldedBytes = (1 + kRounds) * kHalfFoldBytes;
constexpr size_t kBlockBytes = kFoldedBytes + 3 * kLaneBytes;
static_assert(kRounds * 8 * kWords == kLaneBytes);

__attribute__((target("avx2"))) inline __m256i Load(const char* bytes) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
}

__attribute__((target("avx2"))) inline void Store(__m256i vector, char* bytes) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), vector);
}

__attribute__((target("avx2,vpclmulqdq"))) inline __m256i FoldOnto(
    const char* bytes, __m256i sum, __m256i factors) {
  const __m256i low = _mm256_clmulepi64_epi128(sum, factors, 0x00);
  const __m256i high = _mm256_clmulepi64_epi128(sum, factors, 0x11);
  return _mm256_xor_si256(_mm256_xor_si256(low, high), Load(bytes));
}

__attribute__((target("avx2,vpclmulqdq,sse4.2"))) uint32_t
UpdateByFoldingAndLanes(uint32_t crc, std::string_view data) {
  // Of 16 bytes, the first 8 have 64 more powers to go.
  constexpr auto kFirst =
      static_cast<int64_t>(FoldFactor(8 * kHalfFoldBytes + 64));
  constexpr auto kSecond = static_cast<int64_t>(FoldFactor(8 * kHalfFoldBytes));
  const __m256i factors = _mm256_set_epi64x(kSecond, kFirst, kSecond, kFirst);
  const LaneShift& shift = ShiftLane();
  const char* bytes = data.data();
  size_t rest = data.size();
  for (; rest >= kBlockBytes; rest -= kBlockBytes, bytes += kBlockBytes) {
    const char* fold = bytes;
    const char* lane = bytes + kFoldedBytes;
    const __m128i before = _mm_cvtsi32_si128(static_cast<int>(crc));
    __m256i sum0 = _mm256_xor_si256(Load(fold), _mm256_zextsi128_si256(before));
    __m256i sum1 = Load(fold + kHalfVectorBytes);
    __m256i sum2 = Load(fold + 2 * kHalfVectorBytes);
    __m256i sum3 = Load(fold + 3 * kHalfVectorBytes);
    uint64_t first = 0, second = 0, third = 0;
    for (size_t round = 0; round < kRounds; ++round) {
      fold += kHalfFoldBytes;
      sum0 = FoldOnto(fold, sum0, factors);
      sum1 = FoldOnto(fold + kHalfVectorBytes, sum1, factors);
      sum2 = FoldOnto(fold + 2 * kHalfVectorBytes, sum2, factors);
      sum3 = FoldOnto(fold + 3 * kHalfVectorBytes, sum3, factors);
#pragma GCC unroll 5
      for (size_t word = 0; word < kWords; ++word, lane += 8) {
        first = AddWord(first, lane);
        second = AddWord(second, lane + kLaneBytes);
        third = AddWord(third, lane + 2 * kLaneBytes);
      }
    }
    std::array<char, kHalfFoldBytes> folded;
    Store(sum0, folded.data());
    Store(sum1, folded.data() + kHalfVectorBytes);
    Store(sum2, folded.data() + 2 * kHalfVectorBytes);
    Store(sum3, folded.data() + 3 * kHalfVectorBytes);
    crc = AddInTurn(0, {folded.data(), folded.size()});
    crc = shift(crc) ^ static_cast<uint32_t>(first);
    crc = shift(crc) ^ static_cast<uint32_t>(second);
    crc = shift(crc) ^ static_cast<uint32_t>(third);
  }
  return UpdateBySse42(crc, {bytes, rest});
}
#endif

template <uint32_t (*kUpdate)(uint32_t, std::string_view)>
uint32_t Whole(std::string_view data, uint32_t crc) {
  return ~kUpdate(~crc, data);
}

}  // namespace

std::vector<Crc32cWay> Crc32cWays() {
  std::vector<Crc32cWay> ways;
#if defined(__x86_64__)
  const bool has_sse42 = __builtin_cpu_supports("sse4.2");
  if (has_sse42 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("vpclmulqdq")) {
    ways.push_back({"folding", Whole<UpdateByFolding>});
  }
  if (has_sse42 && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("vpclmulqdq")) {
    ways.push_back({"folding and lanes", Whole<UpdateByFoldingAndLanes>});
  }
  if (has_sse42) ways.push_back({"sse4.2", Whole<UpdateBySse42>});
#endif
  ways.push_back({"table", Whole<UpdateByTable>});
  return ways;
}

}  // namespace reprise
