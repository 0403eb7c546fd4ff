#include "engine/kernels/tile_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "engine/base/log.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise {
namespace {

// A tile has up to 16 rows of so many bytes.
constexpr int64_t kTileBytes = 64;

}  // namespace

bool FitTiles(WeightType type, int64_t in) {
  return type != WeightType::kF32 && RowBytes(type, in) % kTileBytes == 0;
}

int64_t TileRowStride(WeightType type, int64_t in) {
  const int64_t lines = RowBytes(type, in) / kTileBytes;
  return (lines + (lines % 2 == 0 ? 1 : 0)) * kTileBytes;
}

#if defined(__x86_64__)

namespace {

#define REPRISE_AMX __attribute__((target("amx-tile,amx-bf16,amx-int8")))

constexpr int64_t kTileRows = 16;
// Two tiles of x, so that a tile of W serves twice.
constexpr int64_t kGroupRows = 2 * kTileRows;
// Rows of x that stay in the second cache while all columns pass.
constexpr int64_t kBytesOfRows = 512 << 10;

// 64 bytes of every column of a block lie together: kPaddedSteps steps.
constexpr int64_t kStepBytes = kBlockColumns * 4;
constexpr int64_t kTileStepBytes = kPaddedSteps * kStepBytes;
constexpr int64_t kVectorBytes = kVectorColumns * 4;
// How far ahead of its use W is fetched where it is used once: what memory
// delivers in the time that it takes to answer.
constexpr int64_t kAheadBytes = 2 * kTileStepBytes;

// Of W, or with more rows of W and of x.
constexpr int64_t kTilesOfStep = 4;

// What LDTILECFG reads.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  std::array<uint8_t, 14> reserved = {};
  std::array<uint16_t, 16> row_bytes = {};
  std::array<uint8_t, 16> rows = {};
};
static_assert(sizeof(TileConfig) == 64);

// Sums of the rows of a group and of two or four vectors of columns.
struct Part {
  const std::byte* x = nullptr;
  int64_t row_bytes = 0;  // of x
  int64_t x_stride = 0;   // in bytes
  const std::byte* w = nullptr;
  std::byte* y = nullptr;
  int64_t out_bytes = 0;             // from row to row of y
  const std::byte* ahead = nullptr;  // is fetched meanwhile,
  int64_t ahead_bytes = 0;           // so much for every tile,
  const std::byte* end = nullptr;    // up to here
};

// The compiler does not know that tiles read and write memory.
#define REPRISE_BARRIER asm volatile("" ::: "memory")

#define REPRISE_MULTIPLY(sums, x, w) \
  if constexpr (kInt8) {             \
    _tile_dpbusd(sums, x, w);        \
  } else {                           \
    _tile_dpbf16ps(sums, x, w);      \
  }

// Tiles 0 to 3 are sums, of which 0 and 1 (and with up to 16 rows 2 and 3) have
// the first 16 rows; 4 (and 5) are rows of x; the others are of W.
TileConfig ConfigOf(int64_t rows) {
  const auto first = static_cast<uint8_t>(std::min(rows, kTileRows));
  const auto second = static_cast<uint8_t>(rows - first);
  TileConfig config;
  const bool wide = second > 0;
  config.rows = {first,
                 first,
                 wide ? second : first,
                 wide ? second : first,
                 first,
                 wide ? second : uint8_t{kTileRows},
                 kTileRows,
                 kTileRows};
  std::fill_n(config.row_bytes.begin(), 8, kTileBytes);
  return config;
}

// Fetches ahead, a little for every tile that is loaded: more at once would
// keep the tile waiting.
template <_mm_hint kCache>
class Fetcher {
 public:
  explicit Fetcher(const Part& part)
      : part_(part), line_(part.ahead), until_(part.ahead) {}

  void Fetch() {
    until_ = std::min(until_ + part_.ahead_bytes, part_.end);
    for (; line_ < until_; line_ += kTileBytes) _mm_prefetch(line_, kCache);
  }

 private:
  const Part& part_;
  const std::byte* line_;
  const std::byte* until_;
};

// Up to 16 rows, four vectors of columns.
template <bool kInt8>
REPRISE_AMX void MultiplyNarrow(const Part& part) {
  REPRISE_BARRIER;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::byte* w = part.w;
  Fetcher<_MM_HINT_T0> ahead(part);
  for (int64_t i = 0; i < part.row_bytes; i += kTileBytes) {
    ahead.Fetch();
    _tile_loadd(4, part.x + i, part.x_stride);
    _tile_loadd(5, w, kStepBytes);
    REPRISE_MULTIPLY(0, 4, 5)
    ahead.Fetch();
    _tile_loadd(6, w + kVectorBytes, kStepBytes);
    REPRISE_MULTIPLY(1, 4, 6)
    ahead.Fetch();
    _tile_loadd(7, w + 2 * kVectorBytes, kStepBytes);
    REPRISE_MULTIPLY(2, 4, 7)
    ahead.Fetch();
    _tile_loadd(5, w + 3 * kVectorBytes, kStepBytes);
    REPRISE_MULTIPLY(3, 4, 5)
    w += kTileStepBytes;
  }
  _tile_stored(0, part.y, part.out_bytes);
  _tile_stored(1, part.y + kVectorBytes, part.out_bytes);
  _tile_stored(2, part.y + 2 * kVectorBytes, part.out_bytes);
  _tile_stored(3, part.y + 3 * kVectorBytes, part.out_bytes);
  REPRISE_BARRIER;
}

// 17 to 32 rows, two vectors of columns.
template <bool kInt8>
REPRISE_AMX void MultiplyWide(const Part& part) {
  REPRISE_BARRIER;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::byte* const x2 = part.x + kTileRows * part.x_stride;
  const std::byte* w = part.w;
  Fetcher<_MM_HINT_T1> ahead(part);
  for (int64_t i = 0; i < part.row_bytes; i += kTileBytes) {
    ahead.Fetch();
    _tile_loadd(6, w, kStepBytes);
    ahead.Fetch();
    _tile_loadd(4, part.x + i, part.x_stride);
    REPRISE_MULTIPLY(0, 4, 6)
    ahead.Fetch();
    _tile_loadd(7, w + kVectorBytes, kStepBytes);
    REPRISE_MULTIPLY(1, 4, 7)
    ahead.Fetch();
    _tile_loadd(5, x2 + i, part.x_stride);
    REPRISE_MULTIPLY(2, 5, 6)
    REPRISE_MULTIPLY(3, 5, 7)
    w += kTileStepBytes;
  }
  std::byte* const y2 = part.y + kTileRows * part.out_bytes;
  _tile_stored(0, part.y, part.out_bytes);
  _tile_stored(1, part.y + kVectorBytes, part.out_bytes);
  _tile_stored(2, y2, part.out_bytes);
  _tile_stored(3, y2 + kVectorBytes, part.out_bytes);
  REPRISE_BARRIER;
}

REPRISE_AMX void LoadConfig(const TileConfig& config) {
  REPRISE_BARRIER;
  _tile_loadconfig(&config);
}

REPRISE_AMX void ReleaseTiles() { _tile_release(); }

// Sums of all columns of a part of W, for rows in groups of `group`: those that
// the configuration is for.
template <bool kInt8>
class Multiplier {
 public:
  Multiplier(const PackedColumns& w, const FewRows& rows, int64_t first,
             int64_t last)
      : first_(first),
        last_(last),
        row_bytes_(RowBytes(w.type, w.in)),
        out_bytes_(w.out * 4),
        x_stride_(TileRowStride(w.type, w.in)),
        x_(static_cast<const std::byte*>(rows.x)),
        y_(static_cast<std::byte*>(rows.sums)),
        w_(w.weights + first / kBlockColumns * block_bytes()),
        end_(w_ + (last - first + kBlockColumns - 1) / kBlockColumns *
                      block_bytes()) {}

  void Multiply(int64_t row, int64_t count, int64_t group) const {
    LoadConfig(ConfigOf(group));
    const std::byte* w = w_;
    for (int64_t c = first_; c < last_; c += kBlockColumns) {
      for (int64_t r = row; r < row + count; r += group) {
        if (group > kTileRows) {
          Wide(w, c, r, group, (r - row) / group, count / group);
        } else {
          Narrow(w, c, r, group);
        }
      }
      w += block_bytes();
    }
  }

 private:
  // Of a block.
  int64_t block_bytes() const { return row_bytes_ * kBlockColumns; }

  void Narrow(const std::byte* w, int64_t column, int64_t row,
              int64_t rows) const {
    Part part = PartOf(w, row);
    part.ahead = w + kAheadBytes;
    part.ahead_bytes = kTileStepBytes / kTilesOfStep;
    Store(part, column, kBlockColumns, row, rows, MultiplyNarrow<kInt8>);
  }

  // Half of a block after the other. Each group fetches a share of the next
  // block meanwhile.
  void Wide(const std::byte* w, int64_t column, int64_t row, int64_t rows,
            int64_t number, int64_t groups) const {
    const int64_t passes = 2 * groups;
    for (int64_t half = 0; half < 2; ++half) {
      const int64_t c = column + half * kBlockColumns / 2;
      if (c >= last_) return;
      Part part = PartOf(w + half * 2 * kVectorBytes, row);
      const int64_t pass = 2 * number + half;
      part.ahead_bytes = kTileStepBytes / kTilesOfStep / passes;
      part.ahead = w + block_bytes() +
                   block_bytes() * pass / passes / kTileBytes * kTileBytes;
      Store(part, c, kBlockColumns / 2, row, rows, MultiplyWide<kInt8>);
    }
  }

  Part PartOf(const std::byte* w, int64_t row) const {
    Part part;
    part.x = x_ + row * x_stride_;
    part.row_bytes = row_bytes_;
    part.x_stride = x_stride_;
    part.w = w;
    part.end = end_;
    return part;
  }

  // What is beyond the last column is not y's.
  void Store(Part& part, int64_t column, int64_t columns, int64_t row,
             int64_t rows, void (*multiply)(const Part&)) const {
    std::byte* const y = y_ + row * out_bytes_ + column * 4;
    if (column + columns <= last_) {
      part.y = y;
      part.out_bytes = out_bytes_;
      return multiply(part);
    }
    alignas(64) std::array<std::byte, kGroupRows * kStepBytes> sums;
    part.y = sums.data();
    part.out_bytes = kStepBytes;
    multiply(part);
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(y + r * out_bytes_, sums.data() + r * kStepBytes,
                  static_cast<size_t>(last_ - column) * 4);
    }
  }

  const int64_t first_;
  const int64_t last_;
  const int64_t row_bytes_;
  const int64_t out_bytes_;
  const int64_t x_stride_;
  const std::byte* const x_;
  std::byte* const y_;
  const std::byte* const w_;
  const std::byte* const end_;
};

template <bool kInt8>
void Multiply(const PackedColumns& w, const FewRows& rows, int64_t first,
              int64_t last) {
  const Multiplier<kInt8> multiplier(w, rows, first, last);
  const int64_t groups = kBytesOfRows / RowBytes(w.type, w.in) / kGroupRows;
  const int64_t most = std::max<int64_t>(1, groups) * kGroupRows;
  for (int64_t row = 0; row < rows.count; row += most) {
    const int64_t count = std::min(most, rows.count - row);
    const int64_t rest = count % kGroupRows;
    if (count > rest) multiplier.Multiply(row, count - rest, kGroupRows);
    if (rest > 0) multiplier.Multiply(row + count - rest, rest, rest);
  }
  ReleaseTiles();
}

}  // namespace

void MultiplyTileRows(const PackedColumns& w, const FewRows& rows,
                      int64_t first, int64_t last) {
  CHECK(first % kBlockColumns == 0 && last <= w.out);
  CHECK(FitTiles(w.type, w.in));
  auto* const multiply =
      w.type == WeightType::kInt8 ? Multiply<true> : Multiply<false>;
  multiply(w, rows, first, last);
}

#else

void MultiplyTileRows(const PackedColumns&, const FewRows&, int64_t, int64_t) {
  CHECK(false);
}

#endif

}  // namespace reprise
