// Causal linear attention (Katharopoulos et al. 2020): one matmul for queries,
// keys and values of all rows, a feature map, the state per session and head, a
// norm per head, one matmul back.
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/decay_kernels.h"
#include "engine/mixer/decay_state.h"
#include "engine/mixer/feature_maps.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/model/linear_attention_description.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kProjected,  // [rows, q | k | v]
  kOutput,     // [rows, heads * value_dim]
  kFeaturesQ,  // [rows, heads * features]
  kFeaturesK,  // [rows, kv_heads * features]
  kPacked,     // of a feature map with layers
  kLayers,     // of a feature map with layers
};

// What LinearAttention is made of.
struct Parts {
  LinearAttentionDescription description;
  Linear projection;  // [d_model] to [q | k | v]
  FeatureMapper map_q;
  FeatureMapper map_k;
  std::optional<Norm> output_norm;
  Linear o;
  int64_t s_offset = 0;  // bytes, in the slot
  int64_t z_offset = 0;
};

class LinearAttention : public Mixer {
 public:
  explicit LinearAttention(Parts parts)
      : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  // Everything of the step but the session and the heads.
  DecayArgs StepArgs(MatrixView<float> q, MatrixView<float> k,
                     MatrixView<float> v, MatrixView<float> o) const;
  void NormalizeOutput(const DecayArgs& tile) const;

  const Parts p_;
  const LinearAttentionDescription& d_;
};

DecayArgs LinearAttention::StepArgs(MatrixView<float> q, MatrixView<float> k,
                                    MatrixView<float> v,
                                    MatrixView<float> o) const {
  DecayArgs args = DecayRows(q, k, v, o);
  args.heads_per_k = args.heads_per_v = d_.heads / d_.kv_heads;
  args.key_dim = p_.map_q.feature_dim();
  args.value_dim = d_.value_dim;
  args.scale = d_.scale;
  args.normalize = d_.normalize;
  args.epsilon = d_.epsilon;
  return args;
}

void LinearAttention::Forward(MatrixView<const float> x,
                              std::span<const Segment> segments,
                              Scratch& scratch, MatrixView<float> y) const {
  const int64_t q_width = d_.heads * d_.key_dim;
  const int64_t k_width = d_.kv_heads * d_.key_dim;
  const MatrixView<float> projected =
      scratch.Matrix(kProjected, x.rows, p_.projection.out());
  p_.projection.Apply(x, projected, scratch.linear());
  const auto columns = [&](int64_t first, int64_t count) {
    return MatrixView<float>(projected.data + first, x.rows, count,
                             projected.stride);
  };
  const MatrixView<float> q = p_.map_q.Apply(columns(0, q_width), scratch);
  const MatrixView<float> k =
      p_.map_k.Apply(columns(q_width, k_width), scratch);
  const MatrixView<float> v =
      columns(q_width + k_width, d_.kv_heads * d_.value_dim);
  const MatrixView<float> o =
      scratch.Matrix(kOutput, x.rows, d_.heads * d_.value_dim);

  RunDecay({.args = StepArgs(q, k, v, o),
            .rows = x.rows,
            .heads = d_.heads,
            .s_offset = p_.s_offset,
            .z_offset = p_.z_offset},
           segments, [this](const DecayArgs& tile, int64_t) {
             if (p_.output_norm) NormalizeOutput(tile);
           });
  p_.o.Apply(o, y, scratch.linear());
}

// While the tile's output is in the cache.
void LinearAttention::NormalizeOutput(const DecayArgs& tile) const {
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t head = tile.first_head; head < tile.last_head; ++head) {
      float* o = tile.o + row * tile.o_stride + head * tile.value_dim;
      p_.output_norm->Apply(o, o);
    }
  }
}

absl::StatusOr<FeatureMapper> MakeMap(const LinearAttentionDescription& d,
                                      bool query, const MixerContext& context) {
  const FeatureMapper::Options options = {
      .map = d.feature_map,
      .sum_to_one = query ? d.q_sum_to_one : d.k_sum_to_one,
      .heads = query ? d.heads : d.kv_heads,
      .dim = d.key_dim,
      .result_buffer = query ? kFeaturesQ : kFeaturesK,
      .packed_buffer = kPacked,
      .layers_buffer = kLayers};
  return FeatureMapper::Create(options, query ? d.q_layers : d.k_layers,
                               context);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeLinearAttention(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<LinearAttentionDescription>();
  const int64_t value_width = d.heads * d.value_dim;
  const LinearPart qkv[] = {{d.q, d.heads * d.key_dim},
                            {d.k, d.kv_heads * d.key_dim},
                            {d.v, d.kv_heads * d.value_dim}};
  const LinearPart out[] = {{d.o, context.d_model}};
  ASSIGN_OR_RETURN(Linear projection,
                   context.weights.MakeLinear(qkv, context.d_model));
  ASSIGN_OR_RETURN(FeatureMapper map_q, MakeMap(d, /*query=*/true, context));
  ASSIGN_OR_RETURN(FeatureMapper map_k, MakeMap(d, /*query=*/false, context));
  std::optional<Norm> output_norm;
  if (d.output_norm) {
    ASSIGN_OR_RETURN(output_norm, Norm::Create(*d.output_norm, d.value_dim,
                                               context.weights));
  }
  ASSIGN_OR_RETURN(Linear o, context.weights.MakeLinear(out, value_width));

  context.scratch.Reserve(kProjected, projection.out());
  context.scratch.Reserve(kOutput, value_width);
  const int64_t features = map_q.feature_dim();
  const std::string prefix = absl::StrCat(context.layer, ".");
  Parts parts{.description = d,
              .projection = std::move(projection),
              .map_q = std::move(map_q),
              .map_k = std::move(map_k),
              .output_norm = std::move(output_norm),
              .o = std::move(o)};
  parts.s_offset = context.layout.Add(prefix + "recurrent",
                                      {d.heads, features, d.value_dim});
  if (d.normalize) {
    parts.z_offset = context.layout.Add(prefix + "z", {d.heads, features});
  }
  return std::make_unique<LinearAttention>(std::move(parts));
}

}  // namespace reprise
