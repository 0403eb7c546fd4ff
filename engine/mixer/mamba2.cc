// Mamba-2 (Dao and Gu 2024): a short convolution, then heads whose state decays
// by one number a token.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/decay_state.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/short_conv.h"
#include "engine/model/mamba_descriptions.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kIn,      // [rows, z | x | B | C | dt]
  kDecay,   // [rows, heads]
  kOutput,  // [rows, inner]
};

struct Parts {
  Mamba2Description description;
  Linear in;
  ShortConvolution conv;
  std::vector<float> a;        // [heads], -exp(a_log)
  std::vector<float> d;        // [inner], each head's D for all its channels
  std::vector<float> dt_bias;  // [heads]
  std::vector<float> norm_weight;  // [inner]
  Linear out;
  int64_t s_offset = 0;  // bytes, in the slot
};

class Mamba2 : public Mixer {
 public:
  explicit Mamba2(Parts parts) : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> rows, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  // Of one row: dt, from its projection, and what decays.
  void Discretize(float* dt, float* decay) const;
  // Of some heads of a tile: (o + D x) silu(z), while o is in the cache.
  void Gate(const DecayArgs& tile, int64_t first_row,
            MatrixView<const float> in) const;
  void Normalize(float* o) const;  // one row

  const Parts p_;
  const Mamba2Description& d_;
};

void Mamba2::Discretize(float* dt, float* decay) const {
  AddInto(p_.dt_bias.data(), d_.heads, dt);
  Softplus(dt, d_.heads);
  for (int64_t head = 0; head < d_.heads; ++head) {
    dt[head] = std::clamp(dt[head], d_.dt_min, d_.dt_max);
  }
  ExpOfProduct(dt, p_.a.data(), d_.heads, decay);
}

void Mamba2::Gate(const DecayArgs& tile, int64_t first_row,
                  MatrixView<const float> in) const {
  const int64_t column = tile.first_head * tile.value_dim;
  const int64_t count = tile.last_head * tile.value_dim - column;
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float* z = in.Row(first_row + row) + column;
    SkipAndGate(&p_.d[static_cast<size_t>(column)], z + d_.inner(), z, count,
                tile.o + row * tile.o_stride + column);
  }
}

void Mamba2::Normalize(float* o) const {
  const int64_t size = d_.inner() / d_.norm_groups;
  for (int64_t at = 0; at < d_.inner(); at += size) {
    RmsNorm(o + at, &p_.norm_weight[static_cast<size_t>(at)], size, d_.norm_eps,
            o + at);
  }
}

void Mamba2::Forward(MatrixView<const float> rows,
                     std::span<const Segment> segments, Scratch& scratch,
                     MatrixView<float> y) const {
  const int64_t inner = d_.inner();
  const int64_t shared = d_.groups * d_.state_size;  // width of B and of C
  const MatrixView<float> in = scratch.Matrix(kIn, rows.rows, p_.in.out());
  p_.in.Apply(rows, in, scratch.linear());
  const auto columns = [&](int64_t first, int64_t count) {
    return MatrixView<float>(in.data + first, in.rows, count, in.stride);
  };
  const MatrixView<float> x = columns(inner, inner);
  const MatrixView<float> b = columns(2 * inner, shared);
  const MatrixView<float> c = columns(2 * inner + shared, shared);
  const MatrixView<float> dt = columns(2 * inner + 2 * shared, d_.heads);
  const MatrixView<float> convolved = columns(inner, inner + 2 * shared);
  p_.conv.Apply(convolved, segments, convolved);

  const MatrixView<float> decay = scratch.Matrix(kDecay, rows.rows, d_.heads);
  ForEach(rows.rows, 10 * d_.heads,
          [&](int64_t row) { Discretize(dt.Row(row), decay.Row(row)); });
  const MatrixView<float> o = scratch.Matrix(kOutput, rows.rows, inner);
  DecayArgs args = DecayRows(c, b, x, o);
  args.v_scale = dt.data;
  args.v_scale_stride = dt.stride;
  args.heads_per_q = args.heads_per_k = d_.heads / d_.groups;
  args.key_dim = d_.state_size;
  args.value_dim = d_.head_dim;
  args.decay = Decay::kPerHead;
  args.w = decay.data;
  args.w_stride = decay.stride;
  RunDecay({.args = args,
            .rows = rows.rows,
            .heads = d_.heads,
            .s_offset = p_.s_offset},
           segments, [&](const DecayArgs& tile, int64_t first_row) {
             Gate(tile, first_row, in);
           });
  ForEach(rows.rows, 2 * inner, [&](int64_t row) { Normalize(o.Row(row)); });
  p_.out.Apply(o, y, scratch.linear());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba2(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<Mamba2Description>();
  Weights& weights = context.weights;
  const LinearPart in[] = {
      {d.in, 2 * d.inner() + 2 * d.groups * d.state_size + d.heads}};
  const LinearPart out[] = {{d.out, context.d_model}};
  ASSIGN_OR_RETURN(Linear first, weights.MakeLinear(in, context.d_model));
  ASSIGN_OR_RETURN(ShortConvolution conv,
                   ShortConvolution::Create(d.conv, "conv", context));
  ASSIGN_OR_RETURN(std::vector<float> a, weights.Vector(d.a_log, d.heads));
  for (float& value : a) value = -std::exp(value);
  ASSIGN_OR_RETURN(const std::vector<float> skip, weights.Vector(d.d, d.heads));
  std::vector<float> spread;
  for (const float value : skip) {
    spread.insert(spread.end(), static_cast<size_t>(d.head_dim), value);
  }
  ASSIGN_OR_RETURN(std::vector<float> dt_bias,
                   weights.Vector(d.dt_bias, d.heads));
  ASSIGN_OR_RETURN(std::vector<float> norm_weight,
                   weights.Vector(d.norm_weight, d.inner()));
  ASSIGN_OR_RETURN(Linear last, weights.MakeLinear(out, d.inner()));
  context.scratch.Reserve(kIn, first.out());
  context.scratch.Reserve(kDecay, d.heads);
  context.scratch.Reserve(kOutput, d.inner());
  // Keys first, as in all states that the decay kernels advance; Mamba-2's own
  // code has [heads, head_dim, state_size].
  const int64_t s_offset = context.layout.Add(
      absl::StrCat(context.layer, ".ssm"), {d.heads, d.state_size, d.head_dim});
  return std::make_unique<Mamba2>(Parts{.description = d,
                                        .in = std::move(first),
                                        .conv = std::move(conv),
                                        .a = std::move(a),
                                        .d = std::move(spread),
                                        .dt_bias = std::move(dt_bias),
                                        .norm_weight = std::move(norm_weight),
                                        .out = std::move(last),
                                        .s_offset = s_offset});
}

}  // namespace reprise
