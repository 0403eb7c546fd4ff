// A tile of a head of decays per key channel. Included as tile_ops.h is.
#if defined(ENGINE_KERNELS_CHANNEL_DECAY_OPS_H_) == defined(HWY_TARGET_TOGGLE)
#ifndef ENGINE_KERNELS_CHANNEL_DECAY_OPS_H_
#define ENGINE_KERNELS_CHANNEL_DECAY_OPS_H_
#else
#undef ENGINE_KERNELS_CHANNEL_DECAY_OPS_H_
#endif

#include <algorithm>
#include <cstddef>

#include "engine/kernels/decay_tile_ops.h"

HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

// Rows over which decays of channels are multiplied up one by one. Within them
// a score is a sum of three factors; between them, of two, a matmul.
constexpr size_t kSubRows = 16;
static_assert(kTile % kSubRows == 0);

// Rows of one head whose key channels decay each on its own.
struct ChannelRows {
  const float* q;
  size_t q_stride;
  const float* k;
  size_t k_stride;
  const float* w;
  size_t w_stride;
  const float* bonus;  // [key_dim], or null: read after the update
  size_t rows;
  size_t key_dim;
};

// The scores of kSubRows rows among themselves, from q^T and w^T, [key_dim,
// kSubRows]. `keys` are their columns of the tile's keys, which become decayed
// to the end of the rows.
template <bool kBonus>
HWY_INLINE void ScoresWithin(const float* queries, const float* decays,
                             size_t rows, size_t key_dim, float* keys,
                             float* scores) {
  const hn::CappedTag<float, kSubRows> d;
  using V = hn::Vec<decltype(d)>;
  for (size_t c = 0; c < kSubRows; c += hn::Lanes(d)) {
    const V column = hn::Iota(d, static_cast<float>(c));
    V sum[kSubRows];
    HWY_UNROLL(16)
    for (size_t t = 0; t < kSubRows; ++t) sum[t] = hn::Zero(d);
    for (size_t i = 0; i < key_dim; ++i) {
      float* place = keys + i * kTile + c;
      const float* qi = queries + i * kSubRows;
      const float* wi = decays + i * kSubRows;
      V key = hn::LoadU(d, place);
      HWY_UNROLL(16)
      for (size_t t = 0; t < kSubRows; ++t) {
        // Row t decays the keys before it; its own is new.
        const V q = hn::Set(d, qi[t]);
        if (kBonus) sum[t] = hn::MulAdd(q, key, sum[t]);
        const auto before = hn::Lt(column, hn::Set(d, static_cast<float>(t)));
        key = hn::IfThenElse(before, hn::Mul(key, hn::Set(d, wi[t])), key);
        if (!kBonus) sum[t] = hn::MulAdd(q, key, sum[t]);
      }
      hn::StoreU(key, d, place);
    }
    HWY_UNROLL(16)
    for (size_t t = 0; t < kSubRows; ++t) {
      if (t >= rows) break;
      const V row = hn::Set(d, static_cast<float>(t));
      const auto seen = kBonus ? hn::Lt(column, row) : hn::Le(column, row);
      hn::StoreU(hn::IfThenElseZero(seen, sum[t]), d, scores + t * kTile + c);
    }
  }
}

// Queries of `rows` rows, each times the decays from the first of them on: to
// and with its own or, with a bonus, without it. Returns all the decays'
// product in `product`.
HWY_INLINE void DecayQueries(const ChannelRows& in, size_t first, size_t rows,
                             float* queries, float* product) {
  const size_t n = in.key_dim;
  std::fill_n(product, n, 1.0f);
  for (size_t row = first; row < first + rows; ++row) {
    float* to = queries + row * n;
    std::copy_n(in.q + row * in.q_stride, n, to);
    if (in.bonus != nullptr) MultiplyInto(product, n, to);
    MultiplyInto(in.w + row * in.w_stride, n, product);
    if (in.bonus == nullptr) MultiplyInto(product, n, to);
  }
}

// A tile whose key channels decay each on its own. `keys` is k^T, [key_dim,
// kTile]. Makes the masked scores, [rows, kTile]; decays the keys to the tile's
// end and the queries, [rows, key_dim], from its beginning; keep[i] is what is
// left of channel i. All by products of decays, so nothing can overflow.
HWY_INLINE void DecayChannels(const ChannelRows& in, float* queries,
                              float* keys, float* keep, float* scores) {
  const size_t n = in.key_dim;
  HWY_ALIGN float queries_t[kMaxKeyDim * kSubRows];  // [key_dim, kSubRows]
  HWY_ALIGN float decays_t[kMaxKeyDim * kSubRows];
  HWY_ALIGN float product[kMaxKeyDim];
  std::fill_n(keep, n, 1.0f);
  for (size_t first = 0; first < in.rows; first += kSubRows) {
    const size_t rows = std::min(kSubRows, in.rows - first);
    DecayQueries(in, first, rows, queries, product);
    // With the keys before these rows, decayed up to them.
    ForRows(first, first + rows, [&](auto block, size_t row) HWY_ATTR {
      ForColumns<kBlockVecs>(first, [&](auto d, auto vecs, size_t c) HWY_ATTR {
        using D = decltype(d);
        hn::Vec<D> sum[block.value][vecs.value];
        ZeroBlock<D>(sum);
        MulAddBlock<D>(queries + row * n, n, keys + c, kTile, n, sum);
        StoreBlock<D>(sum, scores + row * kTile + c, kTile);
      });
    });
    Transpose(in.q + first * in.q_stride, in.q_stride, rows, n, kSubRows,
              /*fill=*/0, queries_t);
    Transpose(in.w + first * in.w_stride, in.w_stride, rows, n, kSubRows,
              /*fill=*/1, decays_t);
    float* corner = scores + first * kTile + first;
    if (in.bonus == nullptr) {
      ScoresWithin<false>(queries_t, decays_t, rows, n, keys + first, corner);
    } else {
      ScoresWithin<true>(queries_t, decays_t, rows, n, keys + first, corner);
      for (size_t t = 0; t < rows; ++t) {
        corner[t * kTile + t] =
            Dot3(in.q + (first + t) * in.q_stride,
                 in.k + (first + t) * in.k_stride, in.bonus, n);
      }
    }
    for (size_t i = 0; i < n; ++i) {
      const hn::CappedTag<float, kSubRows> d;
      const auto p = hn::Set(d, product[i]);
      for (size_t c = 0; c < first; c += hn::Lanes(d)) {
        float* place = keys + i * kTile + c;
        hn::StoreU(hn::Mul(p, hn::LoadU(d, place)), d, place);
      }
    }
    for (size_t row = first; row < first + rows; ++row) {
      MultiplyInto(keep, n, queries + row * n);
    }
    MultiplyInto(product, n, keep);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#endif  // ENGINE_KERNELS_CHANNEL_DECAY_OPS_H_
