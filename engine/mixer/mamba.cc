// Mamba (Gu and Dao 2023): a short convolution and a selective scan, channel by
// channel.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/selective_scan.h"
#include "engine/kernels/simd_ops.h"
#include "engine/kernels/state_kernels.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/session_groups.h"
#include "engine/mixer/short_conv.h"
#include "engine/model/mamba_descriptions.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kIn,     // [rows, x | z]
  kX,      // [rows, inner], x convolved, then y
  kXProj,  // [rows, rank | B | C]
  kRank,   // [rows, rank]
  kDt,     // [rows, inner]
};

struct Parts {
  MambaDescription description;
  Linear in;
  ShortConvolution conv;
  Linear x_proj;
  Linear dt_proj;
  std::vector<float> a;  // [inner, state_size], -exp(a_log) / ln(2)
  std::vector<float> d;  // [inner]
  Linear out;
  int64_t h_offset = 0;  // bytes, in the slot
};

class Mamba : public Mixer {
 public:
  explicit Mamba(Parts parts) : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  void Scan(MatrixView<float> x, MatrixView<float> dt,
            MatrixView<const float> projected, MatrixView<const float> z,
            std::span<const Segment> segments) const;

  const Parts p_;
  const MambaDescription& d_;
};

void Mamba::Forward(MatrixView<const float> rows,
                    std::span<const Segment> segments, Scratch& scratch,
                    MatrixView<float> y) const {
  const int64_t inner = d_.inner;
  const MatrixView<float> in = scratch.Matrix(kIn, rows.rows, 2 * inner);
  p_.in.Apply(rows, in, scratch.linear());
  const MatrixView<float> x = scratch.Matrix(kX, rows.rows, inner);
  p_.conv.Apply({in.data, in.rows, inner, in.stride}, segments, x);

  const MatrixView<float> projected =
      scratch.Matrix(kXProj, rows.rows, p_.x_proj.out());
  p_.x_proj.Apply(x, projected, scratch.linear());
  const MatrixView<float> rank = scratch.Matrix(kRank, rows.rows, d_.dt_rank);
  ForEach(rank.rows, rank.cols, [&](int64_t row) {
    std::copy_n(projected.Row(row), rank.cols, rank.Row(row));
  });
  const MatrixView<float> dt = scratch.Matrix(kDt, rows.rows, inner);
  p_.dt_proj.Apply(rank, dt, scratch.linear());

  const MatrixView<float> z(in.data + inner, in.rows, inner, in.stride);
  Scan(x, dt, projected, z, segments);
  p_.out.Apply(x, y, scratch.linear());
}

// x becomes (C . h + D x) silu(z), tile by tile, so that a tile's rows stay in
// the cache from one function, and one channel, to the next.
void Mamba::Scan(MatrixView<float> x, MatrixView<float> dt,
                 MatrixView<const float> projected, MatrixView<const float> z,
                 std::span<const Segment> segments) const {
  const int64_t n = d_.state_size;
  const int64_t floats = x.rows * d_.inner * n;
  ForEachSessionGroup(segments, d_.inner, floats, [&](const SessionGroup& g) {
    const auto& [segment, first, last] = g;
    const int64_t channels = last - first;
    float* h = reinterpret_cast<float*>(segment.slot + p_.h_offset);
    for (int64_t row = 0; row < segment.num_rows; row += kTileRows) {
      const int64_t at = segment.first_row + row;
      const int64_t count = std::min(kTileRows, segment.num_rows - row);
      for (int64_t r = at; r < at + count; ++r) {
        Softplus(dt.Row(r) + first, channels);
      }
      SelectiveScan({.x = x.Row(at) + first,
                     .dt = dt.Row(at) + first,
                     .b = projected.Row(at) + d_.dt_rank,
                     .c = projected.Row(at) + d_.dt_rank + n,
                     .y = x.Row(at) + first,
                     .x_stride = x.stride,
                     .dt_stride = dt.stride,
                     .bc_stride = projected.stride,
                     .y_stride = x.stride,
                     .rows = count,
                     .channels = channels,
                     .state_size = n,
                     .a = &p_.a[static_cast<size_t>(first * n)],
                     .d = &p_.d[static_cast<size_t>(first)],
                     .h = h + first * n});
      for (int64_t r = at; r < at + count; ++r) {
        float* y = x.Row(r) + first;
        SiluMultiply(z.Row(r) + first, y, channels, y);
      }
    }
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<MambaDescription>();
  const int64_t projected = d.dt_rank + 2 * d.state_size;
  Weights& weights = context.weights;
  const LinearPart in[] = {{d.in, 2 * d.inner}};
  const LinearPart x_proj[] = {{d.x_proj, projected}};
  const LinearPart dt_proj[] = {{d.dt_proj, d.inner}};
  const LinearPart out[] = {{d.out, context.d_model}};
  ASSIGN_OR_RETURN(Linear first, weights.MakeLinear(in, context.d_model));
  ASSIGN_OR_RETURN(ShortConvolution conv,
                   ShortConvolution::Create(d.conv, "conv", context));
  ASSIGN_OR_RETURN(Linear second, weights.MakeHeadLinear(x_proj, d.inner,
                                                         /*rows_per_row=*/1));
  ASSIGN_OR_RETURN(Linear third, weights.MakeHeadLinear(dt_proj, d.dt_rank,
                                                        /*rows_per_row=*/1));
  ASSIGN_OR_RETURN(std::vector<float> a,
                   weights.Tensor(d.a_log, {d.inner, d.state_size}));
  for (float& value : a)
    value = -std::exp(value) * std::numbers::log2e_v<float>;
  ASSIGN_OR_RETURN(std::vector<float> skip, weights.Vector(d.d, d.inner));
  ASSIGN_OR_RETURN(Linear last, weights.MakeLinear(out, d.inner));
  context.scratch.Reserve(kIn, 2 * d.inner);
  context.scratch.Reserve(kX, d.inner);
  context.scratch.Reserve(kXProj, projected);
  context.scratch.Reserve(kRank, d.dt_rank);
  context.scratch.Reserve(kDt, d.inner);
  const int64_t h_offset = context.layout.Add(
      absl::StrCat(context.layer, ".recurrent"), {d.inner, d.state_size});
  return std::make_unique<Mamba>(Parts{.description = d,
                                       .in = std::move(first),
                                       .conv = std::move(conv),
                                       .x_proj = std::move(second),
                                       .dt_proj = std::move(third),
                                       .a = std::move(a),
                                       .d = std::move(skip),
                                       .out = std::move(last),
                                       .h_offset = h_offset});
}

}  // namespace reprise
