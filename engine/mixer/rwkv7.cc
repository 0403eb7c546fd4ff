// RWKV-7's time mix and channel mix (Peng et al. 2025).
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/delta_heads.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/token_shift.h"
#include "engine/model/mixer_description.h"
#include "engine/model/rwkv7_description.h"

namespace reprise {
namespace {

// Buffers of the scratch, [rows, d_model] each but kHidden to kLastHidden.
enum Buffer : int64_t {
  kMixed,  // what projections read: kRwkv7Mixes of them
  kLastMixed = kMixed + kRwkv7Mixes - 1,
  kHidden,  // [rows, a rank or the channel mix's width], of four maps
  kLastHidden = kHidden + 3,
  kR,
  kK,
  kV,
  kW,  // the decay
  kA,  // a, then -a kk
  kKk,
  kG,
  kFirst,  // how much of the first layer's value
  kOutput,
  kBuffers
};

// The strongest decay is exp(-e^-0.5) = 0.545 a token.
constexpr float kDecayRate = -0.60653066F;

enum Mix : size_t { kMixR, kMixW, kMixK, kMixV, kMixA, kMixG };

using Floats = std::vector<float>;

using Elementwise = void (*)(float* x, int64_t n);

void ForRows(MatrixView<float> x, Elementwise op) {
  ForEach(x.rows, x.cols, [&](int64_t row) { op(x.Row(row), x.cols); });
}

using MakeMap = absl::StatusOr<Linear>(std::span<const LinearPart> parts,
                                       int64_t in);

// Two small matmuls with a function between them.
class Lora {
 public:
  static absl::StatusOr<Lora> Create(const LoraDescription& d,
                                     Elementwise within,
                                     const MixerContext& context,
                                     absl::FunctionRef<MakeMap> make) {
    const LinearPart down[] = {{d.down, d.rank}};
    const LinearPart up[] = {{d.up, context.d_model}};
    ASSIGN_OR_RETURN(Linear first, make(down, context.d_model));
    ASSIGN_OR_RETURN(Linear second, make(up, d.rank));
    for (int64_t i = kHidden; i <= kLastHidden; ++i) {
      context.scratch.Reserve(i, d.rank);
    }
    return Lora(std::move(first), within, std::move(second));
  }

  // The two matmuls, with one of the hidden buffers between them. Up begins
  // with what stands between them, in place: it is for after the first one has
  // run.
  Linear::Call Down(MatrixView<const float> x, Scratch& scratch,
                    int64_t hidden) const {
    return {&down_, x, scratch.Matrix(kHidden + hidden, x.rows, down_.out())};
  }
  Linear::Call Up(Scratch& scratch, int64_t hidden, MatrixView<float> y) const {
    const MatrixView<float> x =
        scratch.Matrix(kHidden + hidden, y.rows, up_.in());
    if (within_ != nullptr) ForRows(x, within_);
    return {&up_, x, y};
  }

 private:
  Lora(Linear down, Elementwise within, Linear up)
      : down_(std::move(down)), within_(within), up_(std::move(up)) {}

  Linear down_;
  Elementwise within_;  // or null
  Linear up_;
};

// One of the maps of low rank of a time mix.
struct LowRank {
  const Lora* map;
  Mix mix;        // what it reads
  Buffer result;  // what it writes
};

// What the time mix is made of.
struct Parts {
  Rwkv7Description description;
  TokenShift shift;
  std::array<Floats, kRwkv7Mixes> mixes;  // [d_model] each
  Linear r;
  Linear k;
  Linear v;
  Linear o;
  Lora w;
  Lora a;
  Lora g;
  std::optional<Lora> first_value;
  Floats decay_rate;  // [d_model], as are the others: kDecayRate
  Floats k_k;
  Floats k_a;
  Floats r_k;
  Floats output_weight;
  Floats output_bias;
  int64_t s_offset = 0;  // bytes, in the slot
};

class Rwkv7 : public Mixer {
 public:
  explicit Rwkv7(Parts parts) : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  void Project(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch) const;
  void MixFirstValue(Scratch& scratch, int64_t rows) const;
  void PrepareRow(Scratch& scratch, int64_t rows, int64_t row) const;
  DeltaArgs StepArgs(Scratch& scratch, int64_t rows) const;
  void Finish(Scratch& scratch, int64_t rows, const HeadTile& tile) const;

  int64_t width() const { return d_.heads * d_.head_dim; }
  MatrixView<float> Rows(Scratch& scratch, Buffer buffer, int64_t rows) const {
    return scratch.Matrix(buffer, rows, width());
  }

  const Parts p_;
  const Rwkv7Description& d_;
};

void Rwkv7::Project(MatrixView<const float> x,
                    std::span<const Segment> segments, Scratch& scratch) const {
  const auto rows = [&](Buffer buffer) {
    return Rows(scratch, buffer, x.rows);
  };
  const auto mixed = [&](size_t mix) {
    return scratch.Matrix(kMixed + static_cast<int64_t>(mix), x.rows, width());
  };
  static_assert(kRwkv7Mixes == 6);
  const std::array<TokenShift::Mix, kRwkv7Mixes> mixes = {
      {{p_.mixes[0], mixed(0)},
       {p_.mixes[1], mixed(1)},
       {p_.mixes[2], mixed(2)},
       {p_.mixes[3], mixed(3)},
       {p_.mixes[4], mixed(4)},
       {p_.mixes[5], mixed(5)}}};
  p_.shift.Apply(x, segments, mixes);
  // Of the first layer nothing is mixed into the value.
  const std::array<LowRank, 4> maps = {
      {{&p_.w, kMixW, kW},
       {&p_.a, kMixA, kA},
       {&p_.g, kMixG, kG},
       {p_.first_value ? &*p_.first_value : nullptr, kMixV, kFirst}}};
  const std::span<const LowRank> used(maps.data(), p_.first_value ? 4 : 3);
  std::array<Linear::Call, 7> calls = {{{&p_.r, mixed(kMixR), rows(kR)},
                                        {&p_.k, mixed(kMixK), rows(kK)},
                                        {&p_.v, mixed(kMixV), rows(kV)}}};
  for (size_t i = 0; i < used.size(); ++i) {
    calls[3 + i] = used[i].map->Down(mixed(used[i].mix), scratch, i);
  }
  Linear::ApplyAll(std::span(calls).first(3 + used.size()), scratch.linear());
  for (size_t i = 0; i < used.size(); ++i) {
    calls[i] = used[i].map->Up(scratch, i, rows(used[i].result));
  }
  Linear::ApplyAll(std::span(calls).first(used.size()), scratch.linear());
  MixFirstValue(scratch, x.rows);
}

// The first layer keeps its values; the others move theirs towards those.
void Rwkv7::MixFirstValue(Scratch& scratch, int64_t rows) const {
  const MatrixView<float> v = Rows(scratch, kV, rows);
  const MatrixView<float> first = scratch.Kept(rows, width());
  if (!p_.first_value) {
    ForEach(v.rows, 2 * v.cols, [&](int64_t row) {
      std::copy_n(v.Row(row), v.cols, first.Row(row));
    });
    return;
  }
  const MatrixView<float> share = Rows(scratch, kFirst, rows);
  ForEach(v.rows, 4 * v.cols, [&](int64_t row) {
    Sigmoid(share.Row(row), v.cols);
    Interpolate(v.Row(row), first.Row(row), share.Row(row), v.cols, v.Row(row));
  });
}

// From projections to what the kernel takes.
void Rwkv7::PrepareRow(Scratch& scratch, int64_t rows, int64_t row) const {
  const auto at = [&](Buffer buffer) {
    return Rows(scratch, buffer, rows).Row(row);
  };
  float* w = at(kW);
  Sigmoid(w, width());
  ExpOfProduct(w, p_.decay_rate.data(), width(), w);
  float* a = at(kA);
  Sigmoid(a, width());
  float* k = at(kK);
  float* kk = at(kKk);
  Multiply(k, p_.k_k.data(), width(), kk);
  for (int64_t head = 0; head < d_.heads; ++head) {
    const auto dim = static_cast<float>(d_.head_dim);
    float* key = kk + head * d_.head_dim;
    // x / sqrt(mean + eps / n) is sqrt(n) times what is wanted.
    RmsNorm(key, /*weight=*/nullptr, d_.head_dim, d_.key_epsilon / dim, key);
    Scale(1 / std::sqrt(dim), d_.head_dim, key);
  }
  ScaleKey(kk, p_.k_a.data(), width(), k, a);
}

DeltaArgs Rwkv7::StepArgs(Scratch& scratch, int64_t rows) const {
  const auto from = [&](Buffer buffer) {
    const MatrixView<float> matrix = Rows(scratch, buffer, rows);
    return HeadRows{matrix.data, matrix.stride};
  };
  DeltaArgs args;
  args.q = from(kR);
  args.k = from(kK);
  args.v = from(kV);
  args.decay = from(kW);
  args.a = from(kKk);
  args.b = from(kA);
  const MatrixView<float> o = Rows(scratch, kOutput, rows);
  args.o = o.data;
  args.o_stride = o.stride;
  args.key_dim = d_.head_dim;
  args.value_dim = d_.head_dim;
  return args;
}

// (norm(o) + (sum of r k r_k) v) g.
void Rwkv7::Finish(Scratch& scratch, int64_t rows, const HeadTile& tile) const {
  const int64_t dim = d_.head_dim;
  for (int64_t r = tile.first_row; r < tile.first_row + tile.num_rows; ++r) {
    for (int64_t head = tile.first_head; head < tile.last_head; ++head) {
      const int64_t first = head * dim;
      const auto at = [&](Buffer buffer) {
        return Rows(scratch, buffer, rows).Row(r) + first;
      };
      float* o = at(kOutput);
      LayerNorm(o, p_.output_weight.data() + first,
                p_.output_bias.data() + first, dim, d_.output_epsilon, o);
      // The projected k and its rate are no longer needed: the buffers serve.
      float* product = at(kKk);
      Multiply(at(kR), at(kK), dim, product);
      Multiply(product, p_.r_k.data() + first, dim, product);
      const float bonus = Sum(product, dim);
      AddAndGate(bonus, at(kV), at(kG), dim, o);
    }
  }
}

void Rwkv7::Forward(MatrixView<const float> x,
                    std::span<const Segment> segments, Scratch& scratch,
                    MatrixView<float> y) const {
  Project(x, segments, scratch);
  ForEach(x.rows, 8 * x.cols,
          [&](int64_t row) { PrepareRow(scratch, x.rows, row); });
  AdvanceDelta(StepArgs(scratch, x.rows), segments, d_.heads, p_.s_offset,
               [&](const HeadTile& tile) { Finish(scratch, x.rows, tile); });
  p_.o.Apply(Rows(scratch, kOutput, x.rows), y, scratch.linear());
}

// value(relu(key(mixed))^2).
class Rwkv7Ffn : public Mixer {
 public:
  Rwkv7Ffn(TokenShift shift, Floats mix, Linear key, Linear value)
      : shift_(shift),
        mix_(std::move(mix)),
        key_(std::move(key)),
        value_(std::move(value)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override {
    const MatrixView<float> mixed = scratch.Matrix(kMixed, x.rows, x.cols);
    const MatrixView<float> hidden =
        scratch.Matrix(kHidden, x.rows, key_.out());
    const TokenShift::Mix mix[] = {{mix_, mixed}};
    shift_.Apply(x, segments, mix);
    key_.Apply(mixed, hidden, scratch.linear());
    ForRows(hidden, &SquaredRelu);
    value_.Apply(hidden, y, scratch.linear());
  }

 private:
  const TokenShift shift_;
  const Floats mix_;  // [d_model]
  const Linear key_;
  const Linear value_;
};

// d_model numbers of whatever shape.
absl::StatusOr<Floats> Numbers(const ShapedRef& ref,
                               const MixerContext& context) {
  return context.weights.Tensor(ref.tensor, ref.shape);
}

absl::StatusOr<std::array<Floats, kRwkv7Mixes>> ReadMixes(
    const Rwkv7Description& d, const MixerContext& context) {
  Floats all;
  for (const ShapedRef& ref : d.mixes) {
    ASSIGN_OR_RETURN(const Floats some, Numbers(ref, context));
    all.insert(all.end(), some.begin(), some.end());
  }
  CHECK(std::ssize(all) == kRwkv7Mixes * context.d_model);
  std::array<Floats, kRwkv7Mixes> mixes;
  auto from = all.begin();
  for (Floats& mix : mixes) {
    mix.assign(from, from + context.d_model);
    from += context.d_model;
  }
  return mixes;
}

absl::StatusOr<Linear> Square(const LinearRef& ref,
                              const MixerContext& context) {
  const LinearPart parts[] = {{ref, context.d_model}};
  return context.weights.MakeLinear(parts, context.d_model);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv7(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<Rwkv7Description>();
  Weights& weights = context.weights;
  CHECK(d.heads * d.head_dim == context.d_model);
  ASSIGN_OR_RETURN(auto mixes, ReadMixes(d, context));
  ASSIGN_OR_RETURN(Linear r, Square(d.r, context));
  ASSIGN_OR_RETURN(Linear k, Square(d.k, context));
  ASSIGN_OR_RETURN(Linear v, Square(d.v, context));
  ASSIGN_OR_RETURN(Linear o, Square(d.o, context));
  // f32 whatever the model's type for what decides how the state decays.
  const auto f32 = [&](std::span<const LinearPart> parts, int64_t in) {
    return weights.MakeHeadLinear(parts, in, /*rows_per_row=*/1);
  };
  const auto typed = [&](std::span<const LinearPart> parts, int64_t in) {
    return weights.MakeLinear(parts, in);
  };
  ASSIGN_OR_RETURN(Lora w, Lora::Create(d.w, &Tanh, context, f32));
  ASSIGN_OR_RETURN(Lora a, Lora::Create(d.a, nullptr, context, f32));
  ASSIGN_OR_RETURN(Lora g, Lora::Create(d.g, &Sigmoid, context, typed));
  std::optional<Lora> first_value;
  if (d.first_value) {
    ASSIGN_OR_RETURN(first_value,
                     Lora::Create(*d.first_value, nullptr, context, typed));
  }
  ASSIGN_OR_RETURN(Floats k_k, Numbers(d.k_k, context));
  ASSIGN_OR_RETURN(Floats k_a, Numbers(d.k_a, context));
  ASSIGN_OR_RETURN(Floats r_k, Numbers(d.r_k, context));
  ASSIGN_OR_RETURN(Floats output_weight,
                   weights.Vector(d.output_weight, context.d_model));
  ASSIGN_OR_RETURN(Floats output_bias,
                   weights.Vector(d.output_bias, context.d_model));
  for (int64_t i = 0; i < kBuffers; ++i) {
    if (i >= kHidden && i <= kLastHidden) continue;
    context.scratch.Reserve(i, context.d_model);
  }
  context.scratch.ReserveKept(context.d_model);
  Parts parts{
      .description = d,
      .shift = TokenShift("shift_att", context),
      .mixes = std::move(mixes),
      .r = std::move(r),
      .k = std::move(k),
      .v = std::move(v),
      .o = std::move(o),
      .w = std::move(w),
      .a = std::move(a),
      .g = std::move(g),
      .first_value = std::move(first_value),
      .decay_rate = Floats(static_cast<size_t>(context.d_model), kDecayRate),
      .k_k = std::move(k_k),
      .k_a = std::move(k_a),
      .r_k = std::move(r_k),
      .output_weight = std::move(output_weight),
      .output_bias = std::move(output_bias)};
  parts.s_offset = context.layout.Add(absl::StrCat(context.layer, ".recurrent"),
                                      {d.heads, d.head_dim, d.head_dim});
  return std::make_unique<Rwkv7>(std::move(parts));
}

absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv7Ffn(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<Rwkv7FfnDescription>();
  ASSIGN_OR_RETURN(Floats mix, Numbers(d.mix, context));
  const LinearPart in[] = {{d.key, d.width}};
  const LinearPart out[] = {{d.value, context.d_model}};
  ASSIGN_OR_RETURN(Linear key, context.weights.MakeLinear(in, context.d_model));
  ASSIGN_OR_RETURN(Linear value, context.weights.MakeLinear(out, d.width));
  context.scratch.Reserve(kMixed, context.d_model);
  context.scratch.Reserve(kHidden, d.width);
  return std::make_unique<Rwkv7Ffn>(TokenShift("shift_ffn", context),
                                    std::move(mix), std::move(key),
                                    std::move(value));
}

}  // namespace reprise
