#include "engine/kernels/delta_kernels.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/delta_kernels.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/tile_ops.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"

// Compiled once per target.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kTile = static_cast<size_t>(kTileRows);
constexpr size_t kMaxKeys = static_cast<size_t>(kMaxDeltaKeyDim);

// Rows over which the tile's channelwise decays are multiplied up one by one.
constexpr size_t kSubRows = 16;
static_assert(kTile % kSubRows == 0);

HWY_INLINE bool LowRank(const DeltaArgs& args) {
  return args.a.data != nullptr;
}

// What one row of one head consists of.
struct Row {
  const float* q;
  const float* k;
  const float* v;
  const float* decay;  // [key_dim], if low rank
  const float* a;      // likewise
  const float* b;
  float head_decay;  // if not low rank, as is beta
  float beta;
  float* o;
};

HWY_INLINE Row RowAt(const DeltaArgs& args, int64_t row, int64_t head) {
  const int64_t keys = args.key_dim;
  const int64_t key_head = head / args.heads_per_key;
  Row r = {};
  r.q = args.q.At(row, key_head, keys);
  r.k = args.k.At(row, key_head, keys);
  r.v = args.v.At(row, head, args.value_dim);
  r.o = args.o + row * args.o_stride + head * args.value_dim;
  if (LowRank(args)) {
    r.decay = args.decay.At(row, head, keys);
    r.a = args.a.At(row, head, keys);
    r.b = args.b.At(row, head, keys);
  } else {
    r.head_decay =
        args.decay.data != nullptr ? *args.decay.At(row, head, 1) : 1.0f;
    r.beta = *args.beta.At(row, head, 1);
  }
  return r;
}

HWY_INLINE float* StateOf(const DeltaArgs& args, int64_t head) {
  return args.s + head * args.key_dim * args.value_dim;
}

// One row for some columns. The state's columns are read twice, the second
// time from the first cache, while those at `next` are fetched.
template <class D, int kVecs, bool kLowRank>
HWY_INLINE void StepColumns(const DeltaArgs& args, const Row& row,
                            size_t column, float* s, const float* next) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  const float* from_key = kLowRank ? row.a : row.k;
  hn::Vec<D> value[kVecs];
  hn::Vec<D> u[1][kVecs];
  hn::Vec<D> sum[kVecs];
  ZeroBlock<D>(u);
  MulAddBlock<D>(from_key, key_dim, s + column, value_dim, key_dim, u);
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    value[j] = hn::LoadU(d, row.v + column + j * lanes);
    sum[j] = hn::Zero(d);
    if constexpr (!kLowRank) {
      const auto held = hn::Set(d, -row.head_decay);
      u[0][j] =
          hn::Mul(hn::Set(d, row.beta), hn::MulAdd(held, u[0][j], value[j]));
    }
  }
  float* place = s + column;
  for (size_t i = 0; i < key_dim; ++i, place += value_dim) {
    const auto decay = hn::Set(d, kLowRank ? row.decay[i] : row.head_decay);
    const auto key = hn::Set(d, row.k[i]);
    const auto query = hn::Set(d, row.q[i]);
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      hwy::Prefetch(next + j * lanes);
      auto state = hn::Mul(decay, hn::LoadU(d, place + j * lanes));
      if constexpr (kLowRank) {
        state = hn::MulAdd(hn::Set(d, row.b[i]), u[0][j], state);
        state = hn::MulAdd(key, value[j], state);
      } else {
        state = hn::MulAdd(key, u[0][j], state);
      }
      hn::StoreU(state, d, place + j * lanes);
      sum[j] = hn::MulAdd(query, state, sum[j]);
    }
    next += value_dim;
  }
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    hn::StoreU(hn::Mul(sum[j], hn::Set(d, args.scale)), d,
               row.o + column + j * lanes);
  }
}

template <bool kLowRank>
HWY_INLINE void Recurrent(const DeltaArgs& args) {
  const size_t columns = static_cast<size_t>(args.value_dim);
  for (int64_t head = args.first_head; head < args.last_head; ++head) {
    float* s = StateOf(args, head);
    const bool more = head + 1 < args.last_head;
    for (int64_t r = 0; r < args.rows; ++r) {
      const Row row = RowAt(args, r, head);
      ForColumns<4>(columns, [&](auto d, auto vecs, size_t c) HWY_ATTR {
        const size_t end = c + vecs.value * hn::Lanes(d);
        const float* const next_head = more ? StateOf(args, head + 1) : s;
        const float* const next = end < columns ? s + end : next_head;
        StepColumns<decltype(d), vecs.value, kLowRank>(args, row, c, s, next);
      });
    }
  }
}

void DeltaRecurrent(const DeltaArgs& args) {
  if (LowRank(args)) {
    Recurrent<true>(args);
  } else {
    Recurrent<false>(args);
  }
}

// A head's tile, made ready for matmuls. With d(i, j) the product of the decays
// of the rows j + 1 to i, and S the state before the tile,
//
//   u_i = y_i + reads_i S + sum over j < i of (u_u[i, j] u_j + u_v[i, j] v_j)
//   o_i = queries_i S + sum over j <= i of (o_u[i, j] u_j + o_v[i, j] v_j)
//   S  <- d(last, before) S + sum over j of (u_keys_j u_j^T + v_keys_j v_j^T)
//
// The delta rule has y_i = beta_i v_i and neither u_v, o_v nor v_keys. Low rank
// has no y. Matrices of rows by rows are 0 from the diagonal (u_*) or above it
// (o_*) to the end of its block of kBlockRows rows; beyond, they are not read.
struct Tile {
  HWY_ALIGN float queries[kTile * kMaxKeys];  // [rows, key_dim]
  HWY_ALIGN float reads[kTile * kMaxKeys];    // [rows, key_dim]
  HWY_ALIGN float u_keys[kMaxKeys * kTile];   // [key_dim, kTile]
  HWY_ALIGN float v_keys[kMaxKeys * kTile];   // [key_dim, kTile]
  HWY_ALIGN float u_u[kTile * kTile];         // [rows, kTile]
  HWY_ALIGN float u_v[kTile * kTile];         // [rows, kTile]
  HWY_ALIGN float o_u[kTile * kTile];         // [rows, kTile]
  HWY_ALIGN float o_v[kTile * kTile];         // [rows, kTile]
  HWY_ALIGN float decay[kMaxKeys];  // [key_dim], d(last, before the tile)
};

HWY_INLINE void ScaleBy(float factor, size_t n, float* x) {
  ForColumns<1>(n, [&](auto d, auto, size_t c) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + c), hn::Set(d, factor)), d, x + c);
  });
}

// out = x * y * factor.
HWY_INLINE void Product(const float* x, const float* y, float factor, size_t n,
                        float* out) {
  ForColumns<1>(n, [&](auto d, auto, size_t c) HWY_ATTR {
    const auto xy = hn::Mul(hn::LoadU(d, x + c), hn::LoadU(d, y + c));
    hn::StoreU(hn::Mul(xy, hn::Set(d, factor)), d, out + c);
  });
}

// out[i, j] = x_i . keys_j for the rows [first, last) and the columns [0, end),
// as far as they go up to the diagonal, rounded up to kSubRows.
HWY_INLINE void Scores(const float* x, size_t key_dim, const float* keys,
                       size_t first, size_t last, size_t end, float* out) {
  ForRows(first, last, [&](auto rows, size_t row) HWY_ATTR {
    const size_t columns =
        std::min(end, hwy::RoundUpTo(row + rows.value, kSubRows));
    ForColumns<kBlockVecs>(columns, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      hn::Vec<D> sum[rows.value][vecs.value];
      ZeroBlock<D>(sum);
      MulAddBlock<D>(x + row * key_dim, key_dim, keys + c, kTile, key_dim, sum);
      StoreBlock<D>(sum, out + row * kTile + c, kTile);
    });
  });
}

// The delta rule: one decay a row, so d(i, j) multiplies a product of undecayed
// rows.
void PrepareDelta(const DeltaArgs& args, int64_t head, Tile& tile) {
  const size_t rows = static_cast<size_t>(args.rows);
  const size_t keys = static_cast<size_t>(args.key_dim);
  for (size_t i = 0; i < rows; ++i) {
    const Row row = RowAt(args, static_cast<int64_t>(i), head);
    for (size_t p = 0; p < keys; ++p) tile.u_keys[p * kTile + i] = row.k[p];
    std::copy_n(row.q, keys, tile.queries + i * keys);
    std::copy_n(row.k, keys, tile.reads + i * keys);
    ScaleBy(args.scale, keys, tile.queries + i * keys);
    ScaleBy(-row.beta, keys, tile.reads + i * keys);
  }
  for (size_t p = 0; rows < kTile && p < keys; ++p) {
    std::fill(tile.u_keys + p * kTile + rows, tile.u_keys + (p + 1) * kTile,
              0.0f);
  }
  Scores(tile.queries, keys, tile.u_keys, 0, rows, kTile, tile.o_u);
  Scores(tile.reads, keys, tile.u_keys, 0, rows, kTile, tile.u_u);

  HWY_ALIGN float since[kTile] = {};  // d(i, j) of row i for j <= i, else 0
  float whole = 1;                    // d(i, before the tile)
  for (size_t i = 0; i < rows; ++i) {
    const float decay = RowAt(args, static_cast<int64_t>(i), head).head_decay;
    const size_t columns = hwy::RoundUpTo(i + 1, kSubRows);
    ScaleBy(decay, i, since);
    Product(tile.u_u + i * kTile, since, 1, columns, tile.u_u + i * kTile);
    since[i] = 1;
    Product(tile.o_u + i * kTile, since, 1, columns, tile.o_u + i * kTile);
    whole *= decay;
    ScaleBy(whole, keys, tile.queries + i * keys);
    ScaleBy(whole, keys, tile.reads + i * keys);
  }
  for (size_t p = 0; p < keys; ++p) {
    Product(tile.u_keys + p * kTile, since, 1, kTile, tile.u_keys + p * kTile);
    tile.decay[p] = whole;
  }
}

// Low rank, for the rows [first, last) among themselves, the columns [first +
// c, ...) of one vector. Before row i, lane j of keys[p] holds what row j < i
// wrote under key p, decayed to row i - 1, and 0 for j >= i.
template <class D>
HWY_INLINE void SubTileColumns(const DeltaArgs& args, int64_t head,
                               size_t first, size_t last, size_t column,
                               Tile& tile) {
  const D d;
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  for (size_t p = 0; p < key_dim; ++p) {
    hn::StoreU(hn::Zero(d), d, tile.u_keys + p * kTile + column);
    hn::StoreU(hn::Zero(d), d, tile.v_keys + p * kTile + column);
  }
  const auto lane = hn::Iota(d, static_cast<float>(column));
  for (size_t i = first; i < last; ++i) {
    const Row row = RowAt(args, static_cast<int64_t>(i), head);
    const auto own = hn::Eq(lane, hn::Set(d, static_cast<float>(i)));
    auto u_u = hn::Zero(d), u_v = u_u, o_u = u_u, o_v = u_u;
    for (size_t p = 0; p < key_dim; ++p) {
      float* u_place = tile.u_keys + p * kTile + column;
      float* v_place = tile.v_keys + p * kTile + column;
      auto u_key = hn::LoadU(d, u_place);
      auto v_key = hn::LoadU(d, v_place);
      const auto a = hn::Set(d, row.a[p]);
      u_u = hn::MulAdd(a, u_key, u_u);
      u_v = hn::MulAdd(a, v_key, u_v);
      const auto decay = hn::Set(d, row.decay[p]);
      u_key = hn::IfThenElse(own, hn::Set(d, row.b[p]), hn::Mul(u_key, decay));
      v_key = hn::IfThenElse(own, hn::Set(d, row.k[p]), hn::Mul(v_key, decay));
      const auto q = hn::Set(d, row.q[p]);
      o_u = hn::MulAdd(q, u_key, o_u);
      o_v = hn::MulAdd(q, v_key, o_v);
      hn::StoreU(u_key, d, u_place);
      hn::StoreU(v_key, d, v_place);
    }
    const auto scale = hn::Set(d, args.scale);
    hn::StoreU(u_u, d, tile.u_u + i * kTile + column);
    hn::StoreU(u_v, d, tile.u_v + i * kTile + column);
    hn::StoreU(hn::Mul(o_u, scale), d, tile.o_u + i * kTile + column);
    hn::StoreU(hn::Mul(o_v, scale), d, tile.o_v + i * kTile + column);
  }
}

// Low rank: every key channel decays on its own, so d(i, j) cannot be taken out
// of a product of rows, and its two halves relative to the tile's start would
// overflow. So the rows advance in blocks: within one, the decays are
// multiplied up row by row; to what lies before it, rows are decayed back to
// its start, and keys forward to there. Every factor is at most 1.
void PrepareLowRank(const DeltaArgs& args, int64_t head, Tile& tile) {
  const size_t rows = static_cast<size_t>(args.rows);
  const size_t keys = static_cast<size_t>(args.key_dim);
  std::fill(tile.decay, tile.decay + keys, 1.0f);
  HWY_ALIGN float within[kMaxKeys];  // d(i, before the block)
  for (size_t first = 0; first < rows; first += kSubRows) {
    const size_t last = std::min(first + kSubRows, rows);
    std::fill(within, within + keys, 1.0f);
    for (size_t i = first; i < last; ++i) {
      const Row row = RowAt(args, static_cast<int64_t>(i), head);
      Product(row.a, within, 1, keys, tile.reads + i * keys);
      Product(within, row.decay, 1, keys, within);
      Product(row.q, within, args.scale, keys, tile.queries + i * keys);
    }
    Scores(tile.reads, keys, tile.u_keys, first, last, first, tile.u_u);
    Scores(tile.reads, keys, tile.v_keys, first, last, first, tile.u_v);
    Scores(tile.queries, keys, tile.u_keys, first, last, first, tile.o_u);
    Scores(tile.queries, keys, tile.v_keys, first, last, first, tile.o_v);
    for (size_t p = 0; p < keys; ++p) {
      ScaleBy(within[p], first, tile.u_keys + p * kTile);
      ScaleBy(within[p], first, tile.v_keys + p * kTile);
    }
    ForColumns<1>(kSubRows, [&](auto d, auto, size_t c) HWY_ATTR {
      SubTileColumns<decltype(d)>(args, head, first, last, first + c, tile);
    });
    for (size_t i = first; i < last; ++i) {
      Product(tile.reads + i * keys, tile.decay, 1, keys,
              tile.reads + i * keys);
      Product(tile.queries + i * keys, tile.decay, 1, keys,
              tile.queries + i * keys);
    }
    Product(tile.decay, within, 1, keys, tile.decay);
  }
}

// Some columns of the rows' u, o and of the state, which is read and written
// while it is in the first cache. v is copied first, since rows a power of two
// apart fall on the same cache lines.
template <class D, int kVecs, bool kLowRank>
HWY_INLINE void TileColumns(const DeltaArgs& args, int64_t head,
                            const Tile& tile, size_t column) {
  const D d;
  constexpr size_t kWidth = kVecs * hn::MaxLanes(D());
  const size_t tile_rows = static_cast<size_t>(args.rows);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  float* s = StateOf(args, head) + column;
  HWY_ALIGN float values[kTile * kWidth];  // [rows, kWidth], v or y
  HWY_ALIGN float us[kTile * kWidth];      // [rows, kWidth]
  for (size_t i = 0; i < tile_rows; ++i) {
    const Row row = RowAt(args, static_cast<int64_t>(i), head);
    const auto factor = hn::Set(d, kLowRank ? 1.0f : row.beta);
    HWY_UNROLL(4)
    for (size_t c = 0; c < kWidth; c += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, row.v + column + c), factor), d,
                 values + i * kWidth + c);
    }
  }
  ForRows(0, tile_rows, [&](auto rows, size_t row) HWY_ATTR {
    constexpr size_t kRows = rows.value;
    const size_t end = row + kRows;
    hn::Vec<D> sum[kRows][kVecs];
    if constexpr (kLowRank) {
      ZeroBlock<D>(sum);
      MulAddBlock<D>(tile.u_v + row * kTile, kTile, values, kWidth, end, sum);
    } else {
      LoadBlock<D>(values + row * kWidth, kWidth, sum);
    }
    MulAddBlock<D>(tile.reads + row * key_dim, key_dim, s, value_dim, key_dim,
                   sum);
    MulAddBlock<D>(tile.u_u + row * kTile, kTile, us, kWidth, row, sum);
    HWY_UNROLL(4)
    for (size_t i = 1; i < kRows; ++i) {  // the rows of the block
      for (size_t j = 0; j < i; ++j) {
        const auto from = hn::Set(d, tile.u_u[(row + i) * kTile + row + j]);
        HWY_UNROLL(4)
        for (int c = 0; c < kVecs; ++c) {
          sum[i][c] = hn::MulAdd(from, sum[j][c], sum[i][c]);
        }
      }
    }
    StoreBlock<D>(sum, us + row * kWidth, kWidth);

    ZeroBlock<D>(sum);
    MulAddBlock<D>(tile.queries + row * key_dim, key_dim, s, value_dim, key_dim,
                   sum);
    MulAddBlock<D>(tile.o_u + row * kTile, kTile, us, kWidth, end, sum);
    if constexpr (kLowRank) {
      MulAddBlock<D>(tile.o_v + row * kTile, kTile, values, kWidth, end, sum);
    }
    StoreBlock<D>(sum,
                  args.o + static_cast<int64_t>(row) * args.o_stride +
                      head * args.value_dim + column,
                  static_cast<size_t>(args.o_stride));
  });
  ForRows(0, key_dim, [&](auto rows, size_t row) HWY_ATTR {
    hn::Vec<D> sum[rows.value][kVecs];
    float* block = s + row * value_dim;
    LoadBlock<D>(block, value_dim, sum);
    HWY_UNROLL(4)
    for (int i = 0; i < rows.value; ++i) {
      HWY_UNROLL(4)
      for (int j = 0; j < kVecs; ++j) {
        sum[i][j] = hn::Mul(sum[i][j], hn::Set(d, tile.decay[row + i]));
      }
    }
    MulAddBlock<D>(tile.u_keys + row * kTile, kTile, us, kWidth, tile_rows,
                   sum);
    if constexpr (kLowRank) {
      MulAddBlock<D>(tile.v_keys + row * kTile, kTile, values, kWidth,
                     tile_rows, sum);
    }
    StoreBlock<D>(sum, block, value_dim);
  });
}

template <bool kLowRank>
void Chunk(const DeltaArgs& args) {
  Tile tile;
  for (int64_t head = args.first_head; head < args.last_head; ++head) {
    if constexpr (kLowRank) {
      PrepareLowRank(args, head, tile);
    } else {
      PrepareDelta(args, head, tile);
    }
    ForColumns<kBlockVecs>(static_cast<size_t>(args.value_dim),
                           [&](auto d, auto vecs, size_t c) HWY_ATTR {
                             TileColumns<decltype(d), vecs.value, kLowRank>(
                                 args, head, tile, c);
                           });
  }
}

void DeltaChunk(const DeltaArgs& args) {
  if (LowRank(args)) {
    Chunk<true>(args);
  } else {
    Chunk<false>(args);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(DeltaRecurrent);
HWY_EXPORT(DeltaChunk);

namespace {

void CheckArgs(const DeltaArgs& args) {
  CHECK(args.rows >= 1 && args.rows <= kTileRows);
  CHECK(args.key_dim >= 1 && args.key_dim <= kMaxDeltaKeyDim);
  CHECK(args.value_dim >= 1 && args.heads_per_key >= 1);
  const bool low_rank = args.a.data != nullptr;
  CHECK(low_rank == (args.b.data != nullptr));
  if (low_rank) {
    CHECK(args.decay.data != nullptr && args.heads_per_key == 1);
  } else {
    CHECK(args.beta.data != nullptr);
  }
}

}  // namespace

void DeltaRecurrent(const DeltaArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(DeltaRecurrent)(args);
}

void DeltaChunk(const DeltaArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(DeltaChunk)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
