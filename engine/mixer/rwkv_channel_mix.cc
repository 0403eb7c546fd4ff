// The channel mix of RWKV-4, 5 and 6.
#include <utility>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/rwkv_mix.h"
#include "engine/mixer/token_shift.h"
#include "engine/model/mixer_description.h"
#include "engine/model/rwkv_descriptions.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kDifference,  // [rows, d_model]
  kMixed,       // [rows, d_model]
  kHidden,      // [rows, width]
  kReceptance,  // [rows, d_model]
};

struct Parts {
  TokenShift shift;
  std::vector<float> share_k;
  std::vector<float> share_r;
  Linear key;
  Linear value;
  Linear receptance;
};

class RwkvChannelMix : public Mixer {
 public:
  explicit RwkvChannelMix(Parts parts) : p_(std::move(parts)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override {
    const int64_t width = p_.key.out();
    const auto rows = [&](Buffer buffer, int64_t cols) {
      return scratch.Matrix(buffer, x.rows, cols);
    };
    const MatrixView<float> difference = rows(kDifference, x.cols);
    const MatrixView<float> mixed = rows(kMixed, x.cols);
    const MatrixView<float> hidden = rows(kHidden, width);
    const MatrixView<float> receptance = rows(kReceptance, x.cols);
    p_.shift.Apply(x, segments, difference);
    MixRows(x, difference, p_.share_r, mixed);
    p_.receptance.Apply(mixed, receptance, scratch.linear());
    MixRows(x, difference, p_.share_k, mixed);
    p_.key.Apply(mixed, hidden, scratch.linear());
    ForEach(x.rows, width,
            [&](int64_t row) { SquaredRelu(hidden.Row(row), width); });
    p_.value.Apply(hidden, y, scratch.linear());
    ForEach(x.rows, 4 * x.cols, [&](int64_t row) {
      Sigmoid(receptance.Row(row), x.cols);
      Multiply(receptance.Row(row), y.Row(row), x.cols, y.Row(row));
    });
  }

 private:
  const Parts p_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkvChannelMix(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<RwkvChannelMixDescription>();
  const int64_t model = context.d_model;
  Weights& weights = context.weights;
  ASSIGN_OR_RETURN(std::vector<float> share_k,
                   ReadShares(d.mix_k, model, weights));
  ASSIGN_OR_RETURN(std::vector<float> share_r,
                   ReadShares(d.mix_r, model, weights));
  const LinearPart key[] = {{d.key, d.width}};
  const LinearPart value[] = {{d.value, model}};
  const LinearPart receptance[] = {{d.receptance, model}};
  ASSIGN_OR_RETURN(Linear k, weights.MakeLinear(key, model));
  ASSIGN_OR_RETURN(Linear v, weights.MakeLinear(value, d.width));
  ASSIGN_OR_RETURN(Linear r, weights.MakeLinear(receptance, model));
  context.scratch.Reserve(kDifference, model);
  context.scratch.Reserve(kMixed, model);
  context.scratch.Reserve(kHidden, d.width);
  context.scratch.Reserve(kReceptance, model);
  return std::make_unique<RwkvChannelMix>(
      Parts{.shift = TokenShift("shift_ffn", context),
            .share_k = std::move(share_k),
            .share_r = std::move(share_r),
            .key = std::move(k),
            .value = std::move(v),
            .receptance = std::move(r)});
}

}  // namespace reprise
