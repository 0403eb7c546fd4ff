#include "engine/kernels/decay_kernels.h"

#include <algorithm>
#include <cstddef>

#include "engine/base/log.h"

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/decay_kernels.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "engine/kernels/channel_decay_ops.h"
#include "engine/kernels/decay_tile_ops.h"
#include "engine/kernels/tile_ops.h"
#include "hwy/highway.h"

// Compiled once per target. Every number of a result is one sum, taken in an
// order that the block sizes below do not change: which heads a call has, and
// which columns share a block, does not show in the bits.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// Rows and state of one head.
struct Head {
  const float* q;
  const float* k;
  const float* v;
  const float* v_scale;  // or null
  float* o;
  const float* w;      // of the head, or [key_dim], or null
  const float* bonus;  // [key_dim] or null
  float* s;            // [key_dim, value_dim]
  float* z;            // [key_dim] or null
};

HWY_INLINE Head HeadAt(const DecayArgs& args, int64_t head) {
  const int64_t keys = args.key_dim;
  const int64_t q_head = head / args.heads_per_q;
  const int64_t k_head = head / args.heads_per_k;
  const int64_t v_head = head / args.heads_per_v;
  Head h = {.q = args.q + q_head * keys,
            .k = args.k + k_head * keys,
            .v = args.v + v_head * args.value_dim,
            .v_scale = nullptr,
            .o = args.o + head * args.value_dim,
            .w = nullptr,
            .bonus = nullptr,
            .s = args.s + head * keys * args.value_dim,
            .z = nullptr};
  if (args.v_scale != nullptr) h.v_scale = args.v_scale + head;
  if (args.decay == Decay::kPerHead) h.w = args.w + head;
  if (args.decay == Decay::kPerChannel) h.w = args.w + k_head * keys;
  if (args.bonus != nullptr) h.bonus = args.bonus + head * keys;
  if (args.normalize) h.z = args.z + head * keys;
  return h;
}

HWY_INLINE float ValueScale(const DecayArgs& args, const Head& head,
                            int64_t row) {
  return head.v_scale == nullptr ? 1.0f
                                 : head.v_scale[row * args.v_scale_stride];
}

// What q^T S is multiplied by, given q^T z.
HWY_INLINE float Factor(const DecayArgs& args, float q_dot_z) {
  if (!args.normalize) return args.scale;
  return args.scale / (args.scale * q_dot_z + args.epsilon);
}

// One row of one head.
struct Row {
  const float* q;
  const float* k;
  const float* v;
  const float* w;
  float* o;
  float v_scale;
  float factor;
  float direct;  // what v adds to the output besides the state, with a bonus
};

// S = Diag(w) S + k v^T and o = factor q^T S for some columns, in one pass. The
// state's loads and stores bound it, so 4 sums at a time are enough.
template <Decay kDecay, bool kBonus, class D, int kVecs>
HWY_INLINE void StepColumns(const Row& row, size_t key_dim, size_t value_dim,
                            size_t column, float* s) {
  const D d;
  const size_t lanes = hn::Lanes(d);
  hn::Vec<D> value[kVecs];
  hn::Vec<D> sum[kVecs];
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    value[j] = hn::Mul(hn::LoadU(d, row.v + column + j * lanes),
                       hn::Set(d, row.v_scale));
    sum[j] = kBonus ? hn::Mul(hn::Set(d, row.direct), value[j]) : hn::Zero(d);
  }
  auto wi = hn::Set(d, kDecay == Decay::kPerHead ? row.w[0] : 1.0f);
  s += column;
  for (size_t i = 0; i < key_dim; ++i, s += value_dim) {
    const auto ki = hn::Set(d, row.k[i]);
    const auto qi = hn::Set(d, row.q[i]);
    if constexpr (kDecay == Decay::kPerChannel) wi = hn::Set(d, row.w[i]);
    HWY_UNROLL(4)
    for (int j = 0; j < kVecs; ++j) {
      float* place = s + j * lanes;
      const auto before = hn::LoadU(d, place);
      if constexpr (kBonus) sum[j] = hn::MulAdd(qi, before, sum[j]);
      const auto kept = kDecay == Decay::kNone ? before : hn::Mul(wi, before);
      const auto next = hn::MulAdd(ki, value[j], kept);
      hn::StoreU(next, d, place);
      if constexpr (!kBonus) sum[j] = hn::MulAdd(qi, next, sum[j]);
    }
  }
  HWY_UNROLL(4)
  for (int j = 0; j < kVecs; ++j) {
    hn::StoreU(hn::Mul(sum[j], hn::Set(d, row.factor)), d,
               row.o + column + j * lanes);
  }
}

template <Decay kDecay, bool kBonus>
HWY_INLINE void StepHead(const DecayArgs& args, const Head& head) {
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  for (int64_t r = 0; r < args.rows; ++r) {
    Row row = {};
    row.q = head.q + r * args.q_stride;
    row.k = head.k + r * args.k_stride;
    row.v = head.v + r * args.v_stride;
    row.o = head.o + r * args.o_stride;
    row.v_scale = ValueScale(args, head, r);
    if (kDecay != Decay::kNone) row.w = head.w + r * args.w_stride;
    if (kBonus) row.direct = Dot3(row.q, row.k, head.bonus, key_dim);
    float q_dot_z = 0;
    if (args.normalize) {
      AddTo(row.k, key_dim, head.z);
      q_dot_z = Dot(row.q, head.z, key_dim);
    }
    row.factor = Factor(args, q_dot_z);
    ForColumns<4>(value_dim, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      StepColumns<kDecay, kBonus, decltype(d), vecs.value>(
          row, key_dim, value_dim, c, head.s);
    });
  }
}

void DecayRecurrent(const DecayArgs& args) {
  for (int64_t h = args.first_head; h < args.last_head; ++h) {
    const Head head = HeadAt(args, h);
    if (args.decay == Decay::kNone) {
      StepHead<Decay::kNone, false>(args, head);
    } else if (args.decay == Decay::kPerHead) {
      StepHead<Decay::kPerHead, false>(args, head);
    } else if (args.bonus == nullptr) {
      StepHead<Decay::kPerChannel, false>(args, head);
    } else {
      StepHead<Decay::kPerChannel, true>(args, head);
    }
  }
}

// A tile of one head on its way through the chunked form. Heads that share
// queries and keys share what is not decayed.
struct Tile {
  HWY_ALIGN float scores[kTile * kTile];     // [rows, kTile]
  HWY_ALIGN float keys[kMaxKeyDim * kTile];  // [key_dim, kTile], k^T
  // The same decayed: scores by what is left of one row in another, keys to the
  // end of the tile. Both the scores and the update want keys that way round.
  HWY_ALIGN float decayed_scores[kTile * kTile];
  HWY_ALIGN float decayed_keys[kMaxKeyDim * kTile];
  HWY_ALIGN float queries[kMaxKeyDim * kTile];  // [rows, key_dim], kPerChannel
  float factors[kTile];                         // of every row's output
  float carry[kTile];      // what a row's query still sees of the state
  float keep[kMaxKeyDim];  // what the update keeps of the state
};

// scores[i, j] = q_i . k_j for j <= i, and 0 from there to the end of the
// vector and of the block of rows, [rows, kTile]; what lies beyond is not read.
HWY_INLINE void Scores(const DecayArgs& args, const float* q, Tile& tile) {
  const size_t lanes = hn::Lanes(hn::ScalableTag<float>());
  const size_t stride = static_cast<size_t>(args.q_stride);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  ForRows(0, args.rows, [&](auto rows, size_t row) HWY_ATTR {
    float* scores = tile.scores + row * kTile;
    // kTile is a multiple of every vector's length.
    const size_t end = hwy::RoundUpTo(row + rows.value, lanes);
    ForColumns<kBlockVecs>(end, [&](auto d, auto vecs, size_t c) HWY_ATTR {
      using D = decltype(d);
      hn::Vec<D> sum[rows.value][vecs.value];
      ZeroBlock<D>(sum);
      MulAddBlock<D>(q + row * stride, stride, tile.keys + c, kTile, key_dim,
                     sum);
      StoreBlock<D>(sum, scores + c, kTile);
    });
    for (size_t i = 0; i < rows.value; ++i) {
      std::fill(scores + i * kTile + row + i + 1, scores + i * kTile + end,
                0.0f);
    }
  });
}

// The factor of every row; z advances.
HWY_INLINE void Factors(const DecayArgs& args, const Head& head, Tile& tile) {
  const hn::ScalableTag<float> d;
  for (int64_t row = 0; row < args.rows; ++row) {
    float q_dot_z = 0;
    if (args.normalize) {
      auto sum = hn::Zero(d);
      for (int64_t c = 0; c <= row; c += hn::Lanes(d)) {
        sum = hn::Add(sum, hn::LoadU(d, tile.scores + row * kTile + c));
      }
      q_dot_z = hn::GetLane(hn::SumOfLanes(d, sum)) +
                Dot(head.q + row * args.q_stride, head.z, args.key_dim);
    }
    tile.factors[row] = Factor(args, q_dot_z);
  }
  for (int64_t row = 0; args.normalize && row < args.rows; ++row) {
    AddTo(head.k + row * args.k_stride, args.key_dim, head.z);
  }
}

// One decay a head: what of row j is left in row i is the product of the decays
// from j + 1 to i, each row's products made from those of the row before.
HWY_INLINE void DecayScores(const DecayArgs& args, const Head& head,
                            Tile& tile) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  HWY_ALIGN float left[kTile] = {};
  float all = 1;
  for (int64_t row = 0; row < args.rows; ++row) {
    const float w = head.w[row * args.w_stride];
    const float* scores = tile.scores + row * kTile;
    float* decayed = tile.decayed_scores + row * kTile;
    all *= w;
    tile.carry[row] = all;
    for (int64_t c = 0; c < row; c += lanes) {
      hn::Store(hn::Mul(hn::Set(d, w), hn::Load(d, left + c)), d, left + c);
    }
    left[row] = 1;
    // As far as the block of rows reaches; `left` is 0 beyond the row.
    const int64_t end = std::min<int64_t>(
        hwy::RoundUpTo(static_cast<size_t>(row) + 1, kBlockRows), args.rows);
    for (int64_t c = 0; c < end; c += lanes) {
      hn::Store(hn::Mul(hn::Load(d, left + c), hn::Load(d, scores + c)), d,
                decayed + c);
    }
  }
  for (int64_t i = 0; i < args.key_dim; ++i) {
    const float* keys = tile.keys + i * kTile;
    float* decayed = tile.decayed_keys + i * kTile;
    for (size_t c = 0; c < kTile; c += lanes) {
      hn::Store(hn::Mul(hn::Load(d, left + c), hn::Load(d, keys + c)), d,
                decayed + c);
    }
    tile.keep[i] = all;
  }
}

// What a tile's output and update are made of, decayed where there is a decay.
struct TileParts {
  const float* queries;
  size_t q_stride;
  const float* scores;  // [rows, kTile]
  const float* keys;    // [key_dim, kTile]
};

// Some columns of o = factor (carry q S + scores v), then of S = keep S +
// k^T v: the columns of the state are read and written while they are in the
// first cache. v is copied first, since rows a power of two apart fall on the
// same cache lines.
template <bool kDecayed, class D, int kVecs>
HWY_INLINE void TileColumns(const DecayArgs& args, const Head& head,
                            const Tile& tile, const TileParts& parts,
                            size_t column) {
  const D d;
  constexpr size_t kWidth = kVecs * hn::MaxLanes(D());
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  const size_t value_dim = static_cast<size_t>(args.value_dim);
  HWY_ALIGN float values[kTile * kWidth];  // [rows, kWidth]
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* from = head.v + row * args.v_stride + column;
    const auto factor = hn::Set(d, ValueScale(args, head, row));
    HWY_UNROLL(4)
    for (size_t c = 0; c < kWidth; c += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::LoadU(d, from + c), factor), d,
                 values + row * kWidth + c);
    }
  }
  float* s = head.s + column;
  ForRows(0, args.rows, [&](auto rows, size_t row) HWY_ATTR {
    hn::Vec<D> sum[rows.value][kVecs];
    ZeroBlock<D>(sum);
    MulAddBlock<D>(parts.queries + row * parts.q_stride, parts.q_stride, s,
                   value_dim, key_dim, sum);
    if constexpr (kDecayed) ScaleRows<D>(tile.carry + row, sum);
    MulAddBlock<D>(parts.scores + row * kTile, kTile, values, kWidth,
                   row + rows.value, sum);
    ScaleRows<D>(tile.factors + row, sum);
    StoreBlock<D>(sum, head.o + row * args.o_stride + column, args.o_stride);
  });
  ForRows(0, key_dim, [&](auto rows, size_t row) HWY_ATTR {
    hn::Vec<D> sum[rows.value][kVecs];
    float* block = s + row * value_dim;
    LoadBlock<D>(block, value_dim, sum);
    if constexpr (kDecayed) ScaleRows<D>(tile.keep + row, sum);
    MulAddBlock<D>(parts.keys + row * kTile, kTile, values, kWidth, args.rows,
                   sum);
    StoreBlock<D>(sum, block, value_dim);
  });
}

template <bool kDecayed>
HWY_INLINE void TileOutput(const DecayArgs& args, const Head& head,
                           const Tile& tile, const TileParts& parts) {
  ForColumns<kBlockVecs>(args.value_dim, [&](auto d, auto vecs,
                                             size_t c) HWY_ATTR {
    TileColumns<kDecayed, decltype(d), vecs.value>(args, head, tile, parts, c);
  });
}

// A head whose key channels decay each on its own.
HWY_INLINE void ChunkByChannel(const DecayArgs& args, const Head& head,
                               Tile& tile) {
  const size_t rows = static_cast<size_t>(args.rows);
  const size_t key_dim = static_cast<size_t>(args.key_dim);
  Transpose(head.k, args.k_stride, rows, key_dim, kTile, /*fill=*/0, tile.keys);
  DecayChannels({.q = head.q,
                 .q_stride = static_cast<size_t>(args.q_stride),
                 .k = head.k,
                 .k_stride = static_cast<size_t>(args.k_stride),
                 .w = head.w,
                 .w_stride = static_cast<size_t>(args.w_stride),
                 .bonus = head.bonus,
                 .rows = rows,
                 .key_dim = key_dim},
                tile.queries, tile.keys, tile.keep, tile.scores);
  std::fill_n(tile.carry, rows, 1.0f);
  std::fill_n(tile.factors, rows, args.scale);
  TileOutput<true>(args, head, tile,
                   {tile.queries, key_dim, tile.scores, tile.keys});
}

void DecayChunk(const DecayArgs& args) {
  Tile tile;
  const float* q = nullptr;  // whose scores and keys the tile has
  const float* k = nullptr;
  const auto q_stride = static_cast<size_t>(args.q_stride);
  for (int64_t h = args.first_head; h < args.last_head; ++h) {
    const Head head = HeadAt(args, h);
    if (args.decay == Decay::kPerChannel) {
      ChunkByChannel(args, head, tile);
      continue;
    }
    if (head.k != k) {
      Transpose(head.k, args.k_stride, static_cast<size_t>(args.rows),
                static_cast<size_t>(args.key_dim), kTile, /*fill=*/0,
                tile.keys);
    }
    if (head.k != k || head.q != q) Scores(args, head.q, tile);
    k = head.k;
    q = head.q;
    Factors(args, head, tile);
    if (args.decay == Decay::kPerHead) {
      DecayScores(args, head, tile);
      TileOutput<true>(
          args, head, tile,
          {head.q, q_stride, tile.decayed_scores, tile.decayed_keys});
    } else {
      TileOutput<false>(args, head, tile,
                        {head.q, q_stride, tile.scores, tile.keys});
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(DecayRecurrent);
HWY_EXPORT(DecayChunk);

namespace {

void CheckArgs(const DecayArgs& args) {
  CHECK(args.rows >= 1 && args.rows <= kTileRows);
  CHECK(args.key_dim >= 1 && args.key_dim <= kMaxKeyDim);
  CHECK(args.value_dim >= 1);
  CHECK(args.heads_per_q >= 1 && args.heads_per_k >= 1);
  CHECK(args.heads_per_v >= 1);
  CHECK(args.z != nullptr || !args.normalize);
  CHECK(!args.normalize || args.decay == Decay::kNone);
  CHECK(args.w != nullptr || args.decay == Decay::kNone);
  CHECK(args.bonus == nullptr || args.decay == Decay::kPerChannel);
}

}  // namespace

void DecayRecurrent(const DecayArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(DecayRecurrent)(args);
}

void DecayChunk(const DecayArgs& args) {
  CheckArgs(args);
  HWY_DYNAMIC_DISPATCH(DecayChunk)(args);
}

}  // namespace reprise
#endif  // HWY_ONCE
