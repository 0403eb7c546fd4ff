// The time mix of RWKV-5 and 6 (Peng et al. 2024).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/decay_state.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/rwkv_mix.h"
#include "engine/mixer/token_shift.h"
#include "engine/model/mixer_description.h"
#include "engine/model/rwkv7_description.h"
#include "engine/model/rwkv_descriptions.h"

namespace reprise {
namespace {

using Floats = std::vector<float>;

// Buffers of the scratch.
enum Buffer : int64_t {
  kDifference,  // [rows, d_model]
  kMixed,       // [rows, d_model], what a projection reads
  kShare,       // [rows, d_model], of the predecessor, if the token chooses
  kRanks,       // [rows, kRwkvParts * rank]
  kRank,        // [rows, a rank]
  kR,           // [rows, heads * key_dim]
  kW,
  kK,
  kV,  // [rows, heads * value_dim]
  kG,
  kOutput,
};

// The shares that the token chooses. In f32 whatever the model's type: they are
// a few per cent of the weights.
struct DynamicMix {
  Floats share;                            // of what `down` reads
  Linear down;                             // [kRwkvParts * rank, d_model]
  std::vector<Linear> up;                  // of every part, with its own share
  std::array<int64_t, kRwkvParts> places;  // of the parts, in what down makes
};

// The decay that the token chooses; likewise.
struct Lora {
  Linear down;
  Linear up;
};

struct Parts {
  RwkvTimeMixDescription description;
  TokenShift shift;
  std::array<Floats, kRwkvParts> shares;  // without a dynamic mix
  std::optional<DynamicMix> dynamic_mix;
  Linear r;
  Linear k;
  Linear v;
  std::optional<Linear> gate;
  Linear o;
  std::optional<Lora> decay_lora;
  Floats decay;  // [heads * key_dim], if there is no lora
  Floats bonus;  // [heads * key_dim]
  Floats output_weight;
  Floats output_bias;
  int64_t s_offset = 0;  // bytes, in the slot
};

class RwkvTimeMix : public Mixer {
 public:
  explicit RwkvTimeMix(Parts parts)
      : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  // Fills kRanks, if the token chooses its shares.
  void PrepareMix(MatrixView<const float> x, Scratch& scratch) const;
  // What the projection of `part` reads.
  MatrixView<const float> Mixed(RwkvPart part, MatrixView<const float> x,
                                Scratch& scratch) const;
  void FillDecay(MatrixView<const float> x, Scratch& scratch,
                 DecayArgs& args) const;
  void Finish(const DecayArgs& tile, int64_t first_row,
              MatrixView<const float> gate) const;

  const Parts p_;
  const RwkvTimeMixDescription& d_;
};

void RwkvTimeMix::PrepareMix(MatrixView<const float> x,
                             Scratch& scratch) const {
  if (!p_.dynamic_mix) return;
  const DynamicMix& mix = *p_.dynamic_mix;
  const MatrixView<float> mixed = scratch.Matrix(kMixed, x.rows, x.cols);
  const MatrixView<float> ranks =
      scratch.Matrix(kRanks, x.rows, mix.down.out());
  MixRows(x, scratch.Matrix(kDifference, x.rows, x.cols), mix.share, mixed);
  mix.down.Apply(mixed, ranks, scratch.linear());
  ForEach(x.rows, ranks.cols,
          [&](int64_t row) { Tanh(ranks.Row(row), ranks.cols); });
}

MatrixView<const float> RwkvTimeMix::Mixed(RwkvPart part,
                                           MatrixView<const float> x,
                                           Scratch& scratch) const {
  const MatrixView<float> difference =
      scratch.Matrix(kDifference, x.rows, x.cols);
  const MatrixView<float> mixed = scratch.Matrix(kMixed, x.rows, x.cols);
  if (!p_.dynamic_mix) {
    MixRows(x, difference, p_.shares[part], mixed);
    return mixed;
  }
  const DynamicMix& mix = *p_.dynamic_mix;
  const int64_t rank = mix.up[part].in();
  const MatrixView<float> ranks =
      scratch.Matrix(kRanks, x.rows, kRwkvParts * rank);
  const MatrixView<float> own = scratch.Matrix(kRank, x.rows, rank);
  ForEach(x.rows, rank, [&](int64_t row) {
    std::copy_n(ranks.Row(row) + mix.places[part] * rank, rank, own.Row(row));
  });
  const MatrixView<float> share = scratch.Matrix(kShare, x.rows, x.cols);
  mix.up[part].Apply(own, share, scratch.linear());
  ForEach(x.rows, 4 * x.cols, [&](int64_t row) {
    MultiplyAdd(share.Row(row), difference.Row(row), x.Row(row), x.cols,
                mixed.Row(row));
  });
  return mixed;
}

void RwkvTimeMix::FillDecay(MatrixView<const float> x, Scratch& scratch,
                            DecayArgs& args) const {
  args.decay = Decay::kPerChannel;
  args.bonus = p_.bonus.data();
  if (!p_.decay_lora) {
    args.w = p_.decay.data();
    return;
  }
  const Lora& lora = *p_.decay_lora;
  const MatrixView<float> rank = scratch.Matrix(kRank, x.rows, lora.down.out());
  const MatrixView<float> w = scratch.Matrix(kW, x.rows, lora.up.out());
  // Mixed uses kRank too, but is done with it here.
  lora.down.Apply(Mixed(kRwkvW, x, scratch), rank, scratch.linear());
  ForEach(x.rows, rank.cols,
          [&](int64_t row) { Tanh(rank.Row(row), rank.cols); });
  lora.up.Apply(rank, w, scratch.linear());
  ForEach(x.rows, 8 * w.cols,
          [&](int64_t row) { ExpMinusExp(w.Row(row), w.cols); });
  args.w = w.data;
  args.w_stride = w.stride;
}

void RwkvTimeMix::Forward(MatrixView<const float> x,
                          std::span<const Segment> segments, Scratch& scratch,
                          MatrixView<float> y) const {
  const auto rows = [&](Buffer buffer, int64_t cols) {
    return scratch.Matrix(buffer, x.rows, cols);
  };
  const int64_t keys = d_.heads * d_.key_dim;
  const int64_t values = d_.heads * d_.value_dim;
  p_.shift.Apply(x, segments, rows(kDifference, x.cols));
  PrepareMix(x, scratch);
  const MatrixView<float> r = rows(kR, keys);
  const MatrixView<float> k = rows(kK, keys);
  const MatrixView<float> v = rows(kV, values);
  MatrixView<float> gate;
  p_.r.Apply(Mixed(kRwkvR, x, scratch), r, scratch.linear());
  p_.k.Apply(Mixed(kRwkvK, x, scratch), k, scratch.linear());
  p_.v.Apply(Mixed(kRwkvV, x, scratch), v, scratch.linear());
  if (p_.gate) {
    gate = rows(kG, values);
    p_.gate->Apply(Mixed(kRwkvG, x, scratch), gate, scratch.linear());
  }
  const MatrixView<float> o = rows(kOutput, values);
  DecayArgs args = DecayRows(r, k, v, o);
  args.key_dim = d_.key_dim;
  args.value_dim = d_.value_dim;
  FillDecay(x, scratch, args);
  RunDecay({.args = args,
            .rows = x.rows,
            .heads = d_.heads,
            .s_offset = p_.s_offset},
           segments, [&](const DecayArgs& tile, int64_t first_row) {
             Finish(tile, first_row, gate);
           });
  p_.o.Apply(o, y, scratch.linear());
}

// Norm and gate of some heads' outputs.
void RwkvTimeMix::Finish(const DecayArgs& tile, int64_t first_row,
                         MatrixView<const float> gate) const {
  const int64_t n = tile.value_dim;
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t head = tile.first_head; head < tile.last_head; ++head) {
      float* o = tile.o + row * tile.o_stride + head * n;
      const auto at = static_cast<size_t>(head * n);
      LayerNorm(o, &p_.output_weight[at], &p_.output_bias[at], n,
                d_.output_epsilon, o);
      if (p_.gate) SiluMultiply(gate.Row(first_row + row) + at, o, n, o);
    }
  }
}

// From numbers of each head to numbers of each of its channels, if need be.
Floats Spread(const Floats& values, int64_t heads, int64_t key_dim) {
  if (std::ssize(values) != heads || key_dim == 1) return values;
  Floats spread;
  for (const float value : values) {
    spread.insert(spread.end(), static_cast<size_t>(key_dim), value);
  }
  return spread;
}

absl::StatusOr<Linear> OneLinear(const LinearRef& ref, int64_t out, int64_t in,
                                 Weights& weights) {
  const LinearPart part[] = {{ref, out}};
  return weights.MakeLinear(part, in);
}

// In f32.
absl::StatusOr<Linear> SmallLinear(const LinearRef& ref, int64_t out,
                                   int64_t in, Weights& weights) {
  const LinearPart part[] = {{ref, out}};
  return weights.MakeHeadLinear(part, in, /*rows_per_row=*/1);
}

absl::StatusOr<DynamicMix> MakeDynamicMix(
    const RwkvDynamicMixDescription& d,
    const std::array<Floats, kRwkvParts>& shares, const MixerContext& context) {
  const int64_t model = context.d_model;
  const int64_t all = kRwkvParts * d.rank;
  Weights& weights = context.weights;
  ASSIGN_OR_RETURN(Floats share, ReadShares(d.mix, model, weights));
  ASSIGN_OR_RETURN(Linear down, SmallLinear(d.down, all, model, weights));
  const std::vector<int64_t> shape =
      d.by_output ? std::vector<int64_t>{model, all}
                  : std::vector<int64_t>{kRwkvParts, d.rank, model};
  ASSIGN_OR_RETURN(const Floats stored, weights.Tensor(d.up, shape));
  std::vector<Linear> up;
  for (size_t part = 0; part < kRwkvParts; ++part) {
    Floats matrix(static_cast<size_t>(model * d.rank));  // [d_model, rank]
    for (int64_t o = 0; o < model; ++o) {
      for (int64_t i = 0; i < d.rank; ++i) {
        const int64_t place = d.places[part] * d.rank + i;
        const int64_t from = d.by_output ? o * all + place : place * model + o;
        matrix[static_cast<size_t>(o * d.rank + i)] =
            stored[static_cast<size_t>(from)];
      }
    }
    ASSIGN_OR_RETURN(
        Linear linear,
        weights.PackHeadLinear({matrix.data(), model, d.rank}, shares[part]));
    up.push_back(std::move(linear));
  }
  context.scratch.Reserve(kShare, model);
  context.scratch.Reserve(kRanks, all);
  context.scratch.Reserve(kRank, d.rank);
  return DynamicMix{.share = std::move(share),
                    .down = std::move(down),
                    .up = std::move(up),
                    .places = d.places};
}

absl::StatusOr<Lora> MakeLora(const LoraDescription& d, int64_t out,
                              const MixerContext& context) {
  ASSIGN_OR_RETURN(Linear down, SmallLinear(d.down, d.rank, context.d_model,
                                            context.weights));
  ASSIGN_OR_RETURN(Linear up, SmallLinear(d.up, out, d.rank, context.weights));
  context.scratch.Reserve(kRank, d.rank);
  context.scratch.Reserve(kW, out);
  return Lora{std::move(down), std::move(up)};
}

// exp(-exp(w)) of every channel.
absl::StatusOr<Floats> ReadDecay(const RwkvTimeMixDescription& d,
                                 Weights& weights) {
  ASSIGN_OR_RETURN(const Floats stored,
                   weights.Tensor(d.decay.tensor, d.decay.shape));
  Floats decay = Spread(stored, d.heads, d.key_dim);
  for (float& w : decay) {
    w = static_cast<float>(std::exp(-std::exp(static_cast<double>(w))));
  }
  return decay;
}

absl::StatusOr<Floats> ReadBonus(const RwkvTimeMixDescription& d,
                                 Weights& weights) {
  ASSIGN_OR_RETURN(const Floats stored,
                   weights.Tensor(d.bonus.tensor, d.bonus.shape));
  Floats bonus = Spread(stored, d.heads, d.key_dim);
  for (float& value : bonus) {
    if (d.bonus_exponential) value = std::exp(value);
  }
  return bonus;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkvTimeMix(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<RwkvTimeMixDescription>();
  const int64_t model = context.d_model;
  const int64_t keys = d.heads * d.key_dim;
  const int64_t values = d.heads * d.value_dim;
  Weights& weights = context.weights;
  std::array<Floats, kRwkvParts> shares;
  for (size_t part = 0; part < kRwkvParts; ++part) {
    ASSIGN_OR_RETURN(shares[part], ReadShares(d.mixes[part], model, weights));
  }
  std::optional<DynamicMix> dynamic_mix;
  if (d.dynamic_mix) {
    ASSIGN_OR_RETURN(dynamic_mix,
                     MakeDynamicMix(*d.dynamic_mix, shares, context));
  }
  ASSIGN_OR_RETURN(Linear r, OneLinear(d.r, keys, model, weights));
  ASSIGN_OR_RETURN(Linear k, OneLinear(d.k, keys, model, weights));
  ASSIGN_OR_RETURN(Linear v, OneLinear(d.v, values, model, weights));
  std::optional<Linear> gate;
  if (d.gate.weight) {
    ASSIGN_OR_RETURN(gate, OneLinear(d.gate, values, model, weights));
    context.scratch.Reserve(kG, values);
  }
  ASSIGN_OR_RETURN(Linear o, OneLinear(d.o, model, values, weights));
  std::optional<Lora> decay_lora;
  Floats decay;
  if (d.decay_lora) {
    ASSIGN_OR_RETURN(decay_lora, MakeLora(*d.decay_lora, keys, context));
  } else {
    ASSIGN_OR_RETURN(decay, ReadDecay(d, weights));
  }
  ASSIGN_OR_RETURN(Floats bonus, ReadBonus(d, weights));
  ASSIGN_OR_RETURN(Floats norm, weights.Vector(d.output_weight, values));
  ASSIGN_OR_RETURN(Floats norm_bias, weights.Vector(d.output_bias, values));
  for (const Buffer buffer : {kDifference, kMixed}) {
    context.scratch.Reserve(buffer, model);
  }
  for (const Buffer buffer : {kR, kK}) context.scratch.Reserve(buffer, keys);
  for (const Buffer buffer : {kV, kOutput}) {
    context.scratch.Reserve(buffer, values);
  }
  Parts parts{.description = d,
              .shift = TokenShift("shift_att", context),
              .shares = std::move(shares),
              .dynamic_mix = std::move(dynamic_mix),
              .r = std::move(r),
              .k = std::move(k),
              .v = std::move(v),
              .gate = std::move(gate),
              .o = std::move(o),
              .decay_lora = std::move(decay_lora),
              .decay = std::move(decay),
              .bonus = std::move(bonus),
              .output_weight = std::move(norm),
              .output_bias = std::move(norm_bias)};
  parts.s_offset = context.layout.Add(absl::StrCat(context.layer, ".recurrent"),
                                      {d.heads, d.key_dim, d.value_dim});
  return std::make_unique<RwkvTimeMix>(std::move(parts));
}

}  // namespace reprise
