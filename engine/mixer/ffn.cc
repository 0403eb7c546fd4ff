// Feed-forward parts: no state, every row for itself.
#include <utility>

#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
constexpr int64_t kUp = 0;      // [rows, 2 * width] or [rows, width]
constexpr int64_t kHidden = 1;  // [rows, width]

// down(silu(gate(x)) * up(x)) (Shazeer 2020, SwiGLU).
class GatedFfn : public Mixer {
 public:
  GatedFfn(Linear gate_up, Linear down)
      : gate_up_(std::move(gate_up)), down_(std::move(down)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment>,
               Scratch& scratch, MatrixView<float> y) const override {
    const int64_t width = down_.in();
    const MatrixView<float> gate_up = scratch.Matrix(kUp, x.rows, 2 * width);
    const MatrixView<float> hidden = scratch.Matrix(kHidden, x.rows, width);
    gate_up_.Apply(x, gate_up, scratch.linear());
    ForEach(x.rows, width, [&](int64_t row) {
      const float* gate = gate_up.Row(row);
      SiluMultiply(gate, gate + width, width, hidden.Row(row));
    });
    down_.Apply(hidden, y, scratch.linear());
  }

 private:
  const Linear gate_up_;  // [d_model] to [gate | up]
  const Linear down_;
};

// down(activation(up(x))).
class PlainFfn : public Mixer {
 public:
  PlainFfn(Activation activation, Linear up, Linear down)
      : activate_(FunctionOf(activation)),
        up_(std::move(up)),
        down_(std::move(down)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment>,
               Scratch& scratch, MatrixView<float> y) const override {
    const int64_t width = down_.in();
    const MatrixView<float> hidden = scratch.Matrix(kUp, x.rows, width);
    up_.Apply(x, hidden, scratch.linear());
    ForEach(x.rows, width,
            [&](int64_t row) { activate_(hidden.Row(row), width); });
    down_.Apply(hidden, y, scratch.linear());
  }

 private:
  const ActivationFunction activate_;
  const Linear up_;
  const Linear down_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedFfn(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<GatedFfnDescription>();
  const LinearPart gate_up[] = {{d.gate, d.width}, {d.up, d.width}};
  const LinearPart down[] = {{d.down, context.d_model}};
  ASSIGN_OR_RETURN(Linear first,
                   context.weights.MakeLinear(gate_up, context.d_model));
  ASSIGN_OR_RETURN(Linear second, context.weights.MakeLinear(down, d.width));
  context.scratch.Reserve(kUp, 2 * d.width);
  context.scratch.Reserve(kHidden, d.width);
  return std::make_unique<GatedFfn>(std::move(first), std::move(second));
}

absl::StatusOr<std::unique_ptr<Mixer>> MakePlainFfn(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<PlainFfnDescription>();
  const LinearPart up[] = {{d.up, d.width}};
  const LinearPart down[] = {{d.down, context.d_model}};
  ASSIGN_OR_RETURN(Linear first,
                   context.weights.MakeLinear(up, context.d_model));
  ASSIGN_OR_RETURN(Linear second, context.weights.MakeLinear(down, d.width));
  context.scratch.Reserve(kUp, d.width);
  return std::make_unique<PlainFfn>(d.activation, std::move(first),
                                    std::move(second));
}

}  // namespace reprise
