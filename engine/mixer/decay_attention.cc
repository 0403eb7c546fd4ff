#include "engine/mixer/decay_attention.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

// Buffers of the scratch.
constexpr int64_t kProjected = 0;
constexpr int64_t kOutput = 1;  // [rows, heads * value_dim]

}  // namespace

DecayAttention::DecayAttention(Parts parts)
    : p_(std::move(parts)), d_(p_.description) {}

absl::StatusOr<DecayAttention::Parts> DecayAttention::MakeParts(
    const DecayAttentionDescription& d, const LinearRef& extra,
    int64_t extra_width, const MixerContext& context) {
  const int64_t value_width = d.heads * d.value_dim;
  std::vector<LinearPart> parts = {{d.q, d.heads * d.key_dim},
                                   {d.k, d.kv_heads * d.key_dim},
                                   {d.v, d.kv_heads * d.value_dim}};
  if (d.gate.weight) parts.push_back({d.gate, value_width});
  if (extra.weight) parts.push_back({extra, extra_width});
  ASSIGN_OR_RETURN(Linear projection,
                   context.weights.MakeLinear(parts, context.d_model));
  ASSIGN_OR_RETURN(Norm norm,
                   Norm::Create(d.output_norm, d.value_dim, context.weights));
  const LinearPart out[] = {{d.o, context.d_model}};
  ASSIGN_OR_RETURN(Linear o, context.weights.MakeLinear(out, value_width));
  context.scratch.Reserve(kProjected, projection.out());
  context.scratch.Reserve(kOutput, value_width);
  const int64_t s_offset =
      context.layout.Add(absl::StrCat(context.layer, ".recurrent"),
                         {d.heads, d.key_dim, d.value_dim});
  return Parts{.description = d,
               .projection = std::move(projection),
               .output_norm = std::move(norm),
               .o = std::move(o),
               .s_offset = s_offset};
}

void DecayAttention::Activate(const Rows& rows) const {
  if (!d_.activation) return;
  const ActivationFunction activate = FunctionOf(*d_.activation);
  ForEach(rows.q.rows, rows.q.cols + rows.k.cols, [&](int64_t row) {
    activate(rows.q.Row(row), rows.q.cols);
    activate(rows.k.Row(row), rows.k.cols);
  });
}

void DecayAttention::Forward(MatrixView<const float> x,
                             std::span<const Segment> segments,
                             Scratch& scratch, MatrixView<float> y) const {
  const MatrixView<float> projected =
      scratch.Matrix(kProjected, x.rows, p_.projection.out());
  p_.projection.Apply(x, projected, scratch.linear());
  int64_t column = 0;
  const auto next = [&](int64_t width) {
    const MatrixView<float> columns(projected.data + column, x.rows, width,
                                    projected.stride);
    column += width;
    return columns;
  };
  Rows rows;
  rows.q = next(d_.heads * d_.key_dim);
  rows.k = next(d_.kv_heads * d_.key_dim);
  rows.v = next(d_.kv_heads * d_.value_dim);
  rows.gate = next(d_.gate.weight ? d_.heads * d_.value_dim : 0);
  rows.extra = next(projected.cols - column);
  const MatrixView<float> o =
      scratch.Matrix(kOutput, x.rows, d_.heads * d_.value_dim);

  DecayArgs args = DecayRows(rows.q, rows.k, rows.v, o);
  args.heads_per_k = args.heads_per_v = d_.heads / d_.kv_heads;
  args.key_dim = d_.key_dim;
  args.value_dim = d_.value_dim;
  args.scale = d_.scale;
  Prepare(rows, segments, scratch, args);
  RunDecay({.args = args,
            .rows = x.rows,
            .heads = d_.heads,
            .s_offset = p_.s_offset},
           segments, [&](const DecayArgs& tile, int64_t first_row) {
             Finish(tile, first_row, rows.gate);
           });
  p_.o.Apply(o, y, scratch.linear());
}

// Norm and gate of some heads' outputs.
void DecayAttention::Finish(const DecayArgs& tile, int64_t first_row,
                            MatrixView<float> gate) const {
  const int64_t n = tile.value_dim;
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t head = tile.first_head; head < tile.last_head; ++head) {
      float* o = tile.o + row * tile.o_stride + head * n;
      p_.output_norm.Apply(o, o);
      if (gate.cols > 0) {
        SiluMultiply(gate.Row(first_row + row) + head * n, o, n, o);
      }
    }
  }
}

}  // namespace reprise
