// Gated linear attention (Yang et al. 2024): every token decides how much of
// each key channel the state keeps.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/mixer/decay_attention.h"
#include "engine/mixer/short_conv.h"
#include "engine/model/decay_descriptions.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
constexpr int64_t kRank = 2;   // [rows, decay_rank]
constexpr int64_t kDecay = 3;  // [rows, kv_heads * key_dim]

class GatedLinearAttention : public DecayAttention {
 public:
  static absl::StatusOr<std::unique_ptr<Mixer>> Make(
      const GatedLinearAttentionDescription& d, const MixerContext& context);

 private:
  GatedLinearAttention(Parts parts, const GatedLinearAttentionDescription& d,
                       Linear decay_up, std::vector<ShortConvolution> convs);
  void Prepare(const Rows& rows, std::span<const Segment> segments,
               Scratch& scratch, DecayArgs& args) const override;

  const Linear decay_up_;
  const std::vector<ShortConvolution> convs_;  // of q, k and v, or none
  const SigmoidPower gate_;
};

constexpr float kNoMinimum = -1e30F;

GatedLinearAttention::GatedLinearAttention(
    Parts parts, const GatedLinearAttentionDescription& d, Linear decay_up,
    std::vector<ShortConvolution> convs)
    : DecayAttention(std::move(parts)),
      decay_up_(std::move(decay_up)),
      convs_(std::move(convs)),
      gate_{.factor = 1 / d.decay_normalizer,
            .min_log = d.min_log_decay.value_or(kNoMinimum)} {}

void GatedLinearAttention::Prepare(const Rows& rows,
                                   std::span<const Segment> segments,
                                   Scratch& scratch, DecayArgs& args) const {
  if (!convs_.empty()) {
    convs_[0].Apply(rows.q, segments, rows.q);
    convs_[1].Apply(rows.k, segments, rows.k);
    convs_[2].Apply(rows.v, segments, rows.v);
  }
  Activate(rows);
  const MatrixView<float> rank =
      scratch.Matrix(kRank, rows.extra.rows, rows.extra.cols);
  ForEach(rank.rows, rank.cols, [&](int64_t row) {
    std::copy_n(rows.extra.Row(row), rank.cols, rank.Row(row));
  });
  const MatrixView<float> decay =
      scratch.Matrix(kDecay, rank.rows, decay_up_.out());
  decay_up_.Apply(rank, decay, scratch.linear());
  ForEach(decay.rows, decay.cols, [&](int64_t row) {
    PowerOfSigmoid(gate_, decay.cols, decay.Row(row));
  });
  args.decay = Decay::kPerChannel;
  args.w = decay.data;
  args.w_stride = decay.stride;
}

absl::StatusOr<std::unique_ptr<Mixer>> GatedLinearAttention::Make(
    const GatedLinearAttentionDescription& d, const MixerContext& context) {
  ASSIGN_OR_RETURN(Parts parts,
                   MakeParts(d.attention, d.decay_down, d.decay_rank, context));
  const LinearPart up[] = {
      {d.decay_up, d.attention.kv_heads * d.attention.key_dim}};
  ASSIGN_OR_RETURN(Linear decay_up,
                   context.weights.MakeHeadLinear(up, d.decay_rank,
                                                  /*rows_per_row=*/1));
  std::vector<ShortConvolution> convs;
  const std::string_view fields[] = {"conv_q", "conv_k", "conv_v"};
  for (size_t i = 0; i < d.convs.size(); ++i) {
    ASSIGN_OR_RETURN(ShortConvolution conv,
                     ShortConvolution::Create(d.convs[i], fields[i], context));
    convs.push_back(std::move(conv));
  }
  static_assert(kRank >= kFirstFreeBuffer);
  context.scratch.Reserve(kRank, d.decay_rank);
  context.scratch.Reserve(kDecay, decay_up.out());
  return std::unique_ptr<Mixer>(new GatedLinearAttention(
      std::move(parts), d, std::move(decay_up), std::move(convs)));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedLinearAttention(
    const MixerDescription& description, const MixerContext& context) {
  return GatedLinearAttention::Make(
      description.As<GatedLinearAttentionDescription>(), context);
}

}  // namespace reprise
