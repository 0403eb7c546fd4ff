#include "engine/kernels/any_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/any_rows.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, kAnyRowsColumns>;
using VF = hn::Vec<DF>;

constexpr int kVectors = static_cast<int>(kAnyRowsColumns / hn::MaxLanes(DF()));
// Rows whose sums have room in the registers, beside the weights of a step.
constexpr int kGroupRows = kVectors == 1 ? 12 : kVectors == 2 ? 6 : 1;

// What a type of weights is made of, and what is multiplied with it.
struct F32 {
  using Number = float;
  using Sum = float;

  static HWY_INLINE VF Expand(const Number* n) { return hn::LoadU(DF(), n); }
};

struct Bf16 {
  using Number = hwy::bfloat16_t;
  using Sum = float;

  static HWY_INLINE VF Expand(const Number* n) {
    return hn::PromoteTo(DF(), hn::LoadU(hn::Rebind<Number, DF>(), n));
  }
};

struct Int8 {
  using Number = int8_t;
  using Sum = int32_t;

  static HWY_INLINE VF Expand(const Number* n) {
    const hn::RebindToSigned<DF> d32;
    const auto narrow = hn::LoadU(hn::Rebind<Number, DF>(), n);
    return hn::ConvertTo(DF(), hn::PromoteTo(d32, narrow));
  }
};

// From row to row of a chunk of x; not a power of two, so that rows do not
// fight for the same places of a cache.
constexpr int64_t kRowFloats = kChunkNumbers + kAnyRowsColumns;

// Up to kChunkNumbers numbers as f32.
template <class T>
HWY_INLINE void ExpandRow(const typename T::Number* n, int64_t size,
                          float* out) {
  const DF df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  int64_t i = 0;
  for (; i + lanes <= size; i += lanes)
    hn::Store(T::Expand(n + i), df, out + i);
  if (i == size) return;
  HWY_ALIGN typename T::Number tail[kAnyRowsColumns] = {};
  std::memcpy(tail, n + i, static_cast<size_t>(size - i) * sizeof(*tail));
  hn::Store(T::Expand(tail), df, out + i);
}

// A chunk of the sums of some rows and blocks.
template <class T>
struct Chunk {
  const float* x;  // [rows, kRowFloats]
  const typename T::Number* w;
  int64_t block;  // from block to block of w
  int64_t numbers;
  bool first;  // else y has the sums of those before
  typename T::Sum* y;
  int64_t out;      // from row to row of y
  int64_t columns;  // of the last block
};

// The sums of one row and block to y, or onto it.
template <class T>
HWY_INLINE void AddTo(typename T::Sum* y, const VF* sums, bool first,
                      int64_t columns) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const size_t lanes = hn::Lanes(df);
  const size_t bytes = static_cast<size_t>(columns) * sizeof(*y);
  HWY_ALIGN typename T::Sum buffer[kAnyRowsColumns];
  typename T::Sum* const to = columns == kAnyRowsColumns ? y : buffer;
  if (to == buffer) std::memcpy(buffer, y, bytes);
  for (int v = 0; v < kVectors; ++v) {
    typename T::Sum* const at = to + static_cast<size_t>(v) * lanes;
    if constexpr (sizeof(typename T::Number) == 1) {
      auto sum = hn::ConvertTo(di, sums[v]);
      if (!first) sum = hn::Add(sum, hn::LoadU(di, at));
      hn::StoreU(sum, di, at);
    } else {
      VF sum = sums[v];
      if (!first) sum = hn::Add(sum, hn::LoadU(df, at));
      hn::StoreU(sum, df, at);
    }
  }
  if (to == buffer) std::memcpy(y, buffer, bytes);
}

constexpr size_t kAheadBytes = 1536;

template <class T, int kRows, int kBlocks>
void AddChunk(const Chunk<T>& chunk) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  VF sums[kRows][kBlocks * kVectors];
  for (auto& row : sums) {
    for (VF& sum : row) sum = hn::Zero(df);
  }
  const typename T::Number* w = chunk.w;
  for (int64_t i = 0; i < chunk.numbers; ++i, w += kAnyRowsColumns) {
    // Few rows wait for memory; CPUs look ahead no further than a page, which
    // a block of 8 bits ends within.
    for (int b = 0; b < kBlocks; ++b) {
      hwy::Prefetch(w + b * chunk.block + kAheadBytes / sizeof(*w));
    }
    VF weights[kBlocks * kVectors];
    HWY_UNROLL(8)
    for (int v = 0; v < kBlocks * kVectors; ++v) {
      weights[v] = T::Expand(w + v / kVectors * chunk.block +
                             static_cast<size_t>(v % kVectors) * lanes);
    }
    HWY_UNROLL(12)
    for (int r = 0; r < kRows; ++r) {
      const VF x = hn::Set(df, chunk.x[r * kRowFloats + i]);
      HWY_UNROLL(8)
      for (int v = 0; v < kBlocks * kVectors; ++v) {
        sums[r][v] = hn::MulAdd(x, weights[v], sums[r][v]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) {
      AddTo<T>(chunk.y + r * chunk.out + b * kAnyRowsColumns,
               sums[r] + b * kVectors, chunk.first,
               b == kBlocks - 1 ? chunk.columns : kAnyRowsColumns);
    }
  }
}

// Blocks that few rows take at once: a sum waits for its last addition, so a
// CPU needs some eight of them to be busy.
constexpr int BlocksOf(int rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }

// By rows - 1, one block or BlocksOf(rows).
template <class T>
using Adders = std::array<void (*)(const Chunk<T>&), kGroupRows>;
template <class T, size_t... kRow>
constexpr Adders<T> OneBlock(std::index_sequence<kRow...>) {
  return {AddChunk<T, kRow + 1, 1>...};
}
template <class T, size_t... kRow>
constexpr Adders<T> SomeBlocks(std::index_sequence<kRow...>) {
  return {AddChunk<T, kRow + 1, BlocksOf(kRow + 1)>...};
}

// Columns whose weights of a chunk stay in a core's second cache while all rows
// pass by.
constexpr int64_t kPanelColumns = 8 * kAnyRowsColumns;

template <class T>
void Multiply(const ColumnBlocks& matrix, const AnyRows& rows, int64_t first,
              int64_t last) {
  constexpr auto kRows = std::make_index_sequence<kGroupRows>();
  constexpr Adders<T> kOne = OneBlock<T>(kRows);
  constexpr Adders<T> kSome = SomeBlocks<T>(kRows);
  using Number = typename T::Number;
  const auto* const x = static_cast<const Number*>(rows.x);
  const auto* const w = reinterpret_cast<const Number*>(matrix.weights);
  auto* const y = static_cast<typename T::Sum*>(rows.sums);
  const int64_t in = matrix.in;
  const int64_t block = PaddedNumbers(in) * kAnyRowsColumns;
  HWY_ALIGN float expanded[kGroupRows * kRowFloats];
  // Of a panel; all its rows and columns of a chunk; a group of rows.
  const auto add = [&](int64_t i, int64_t row, int64_t column,
                       int64_t end) HWY_ATTR {
    const int64_t numbers = std::min(kChunkNumbers, in - i);
    const int64_t group = std::min<int64_t>(kGroupRows, rows.count - row);
    for (int64_t r = 0; r < group; ++r) {
      ExpandRow<T>(x + (row + r) * in + i, numbers, expanded + r * kRowFloats);
    }
    const int64_t most = BlocksOf(static_cast<int>(group)) * kAnyRowsColumns;
    while (column < end) {
      const bool some = end - column >= most;
      const int64_t width = some ? most : kAnyRowsColumns;
      (some ? kSome : kOne)[static_cast<size_t>(group - 1)](
          {.x = expanded,
           .w = w + column / kAnyRowsColumns * block + i * kAnyRowsColumns,
           .block = block,
           .numbers = numbers,
           .first = i == 0,
           .y = y + row * matrix.out + column,
           .out = matrix.out,
           .columns = std::min(kAnyRowsColumns,
                               end - column - (width - kAnyRowsColumns))});
      column += width;
    }
  };
  for (; first < last; first += kPanelColumns) {
    const int64_t end = std::min(first + kPanelColumns, last);
    for (int64_t i = 0; i < in; i += kChunkNumbers) {
      for (int64_t row = 0; row < rows.count; row += kGroupRows) {
        add(i, row, first, end);
      }
    }
  }
}

void MultiplyF32(const ColumnBlocks& w, const AnyRows& rows, int64_t first,
                 int64_t last) {
  Multiply<F32>(w, rows, first, last);
}

void MultiplyBf16(const ColumnBlocks& w, const AnyRows& rows, int64_t first,
                  int64_t last) {
  Multiply<Bf16>(w, rows, first, last);
}

void MultiplyInt8(const ColumnBlocks& w, const AnyRows& rows, int64_t first,
                  int64_t last) {
  Multiply<Int8>(w, rows, first, last);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(MultiplyF32);
HWY_EXPORT(MultiplyBf16);
HWY_EXPORT(MultiplyInt8);

void MultiplyAnyRows(const ColumnBlocks& w, const AnyRows& rows, int64_t first,
                     int64_t last) {
  CHECK(first % kAnyRowsColumns == 0 && last <= w.out);
  switch (w.type) {
    case WeightType::kBf16:
      return HWY_DYNAMIC_DISPATCH(MultiplyBf16)(w, rows, first, last);
    case WeightType::kInt8:
      return HWY_DYNAMIC_DISPATCH(MultiplyInt8)(w, rows, first, last);
    default:
      return HWY_DYNAMIC_DISPATCH(MultiplyF32)(w, rows, first, last);
  }
}

}  // namespace reprise
#endif  // HWY_ONCE
