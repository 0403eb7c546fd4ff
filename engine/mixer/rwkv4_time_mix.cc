// The time mix of RWKV-4 (Peng et al. 2023).
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/kernels/wkv_kernel.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/rwkv_mix.h"
#include "engine/mixer/session_groups.h"
#include "engine/mixer/token_shift.h"
#include "engine/model/mixer_description.h"
#include "engine/model/rwkv_descriptions.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kDifference,  // [rows, d_model]
  kMixed,       // [rows, d_model]
  kR,           // [rows, width]
  kK,
  kV,  // then the output
};

struct Parts {
  TokenShift shift;
  std::vector<float> share_k;
  std::vector<float> share_v;
  std::vector<float> share_r;
  Linear k;
  Linear v;
  Linear r;
  Linear o;
  std::vector<float> decay;      // [width], -exp of the tensor
  std::vector<float> bonus;      // [width]
  int64_t numerator_offset = 0;  // bytes, in the slot
  int64_t denominator_offset = 0;
  int64_t peak_offset = 0;
};

class Rwkv4TimeMix : public Mixer {
 public:
  explicit Rwkv4TimeMix(Parts parts) : p_(std::move(parts)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  // v becomes the weighted means.
  void Average(MatrixView<const float> k, MatrixView<float> v,
               std::span<const Segment> segments) const;

  const Parts p_;
};

void Rwkv4TimeMix::Forward(MatrixView<const float> x,
                           std::span<const Segment> segments, Scratch& scratch,
                           MatrixView<float> y) const {
  const int64_t width = p_.k.out();
  const MatrixView<float> difference =
      scratch.Matrix(kDifference, x.rows, x.cols);
  const MatrixView<float> mixed = scratch.Matrix(kMixed, x.rows, x.cols);
  const MatrixView<float> r = scratch.Matrix(kR, x.rows, width);
  const MatrixView<float> k = scratch.Matrix(kK, x.rows, width);
  const MatrixView<float> v = scratch.Matrix(kV, x.rows, width);
  p_.shift.Apply(x, segments, difference);
  MixRows(x, difference, p_.share_k, mixed);
  p_.k.Apply(mixed, k, scratch.linear());
  MixRows(x, difference, p_.share_v, mixed);
  p_.v.Apply(mixed, v, scratch.linear());
  MixRows(x, difference, p_.share_r, mixed);
  p_.r.Apply(mixed, r, scratch.linear());
  Average(k, v, segments);
  ForEach(x.rows, 4 * width, [&](int64_t row) {
    Sigmoid(r.Row(row), width);
    Multiply(r.Row(row), v.Row(row), width, v.Row(row));
  });
  p_.o.Apply(v, y, scratch.linear());
}

void Rwkv4TimeMix::Average(MatrixView<const float> k, MatrixView<float> v,
                           std::span<const Segment> segments) const {
  // About ten times the work of reading a number.
  const int64_t floats = 10 * k.rows * k.cols;
  ForEachSessionGroup(segments, k.cols, floats, [&](const SessionGroup& g) {
    const Segment& segment = g.segment;
    const int64_t first = g.first;
    const int64_t last = g.last;
    const auto state = [&](int64_t offset) {
      return reinterpret_cast<float*>(segment.slot + offset) + first;
    };
    Wkv({.k = k.Row(segment.first_row) + first,
         .v = v.Row(segment.first_row) + first,
         .y = v.Row(segment.first_row) + first,
         .stride = k.stride,
         .rows = segment.num_rows,
         .channels = last - first,
         .decay = &p_.decay[static_cast<size_t>(first)],
         .bonus = &p_.bonus[static_cast<size_t>(first)],
         .numerator = state(p_.numerator_offset),
         .denominator = state(p_.denominator_offset),
         .peak = state(p_.peak_offset)});
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv4TimeMix(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<Rwkv4TimeMixDescription>();
  const int64_t model = context.d_model;
  Weights& weights = context.weights;
  ASSIGN_OR_RETURN(std::vector<float> share_k,
                   ReadShares(d.mix_k, model, weights));
  ASSIGN_OR_RETURN(std::vector<float> share_v,
                   ReadShares(d.mix_v, model, weights));
  ASSIGN_OR_RETURN(std::vector<float> share_r,
                   ReadShares(d.mix_r, model, weights));
  const auto linear = [&](const LinearRef& ref, int64_t out, int64_t in) {
    const LinearPart part[] = {{ref, out}};
    return weights.MakeLinear(part, in);
  };
  ASSIGN_OR_RETURN(Linear k, linear(d.k, d.width, model));
  ASSIGN_OR_RETURN(Linear v, linear(d.v, d.width, model));
  ASSIGN_OR_RETURN(Linear r, linear(d.r, d.width, model));
  ASSIGN_OR_RETURN(Linear o, linear(d.o, model, d.width));
  ASSIGN_OR_RETURN(std::vector<float> decay, weights.Vector(d.decay, d.width));
  for (float& value : decay) value = -std::exp(value);
  ASSIGN_OR_RETURN(std::vector<float> bonus, weights.Vector(d.bonus, d.width));
  context.scratch.Reserve(kDifference, model);
  context.scratch.Reserve(kMixed, model);
  for (const Buffer buffer : {kR, kK, kV}) {
    context.scratch.Reserve(buffer, d.width);
  }
  Parts parts{.shift = TokenShift("shift_att", context),
              .share_k = std::move(share_k),
              .share_v = std::move(share_v),
              .share_r = std::move(share_r),
              .k = std::move(k),
              .v = std::move(v),
              .r = std::move(r),
              .o = std::move(o),
              .decay = std::move(decay),
              .bonus = std::move(bonus)};
  const auto field = [&](const char* name) {
    return context.layout.Add(absl::StrCat(context.layer, ".", name),
                              {d.width});
  };
  parts.numerator_offset = field("aa");
  parts.denominator_offset = field("bb");
  parts.peak_offset = field("pp");
  return std::make_unique<Rwkv4TimeMix>(std::move(parts));
}

}  // namespace reprise
