// Mixture of experts (Shazeer et al. 2017; Fedus et al. 2021): a router picks a
// few experts for every row, an expert works on the rows that picked it, packed
// together. A row's result is the sum over its experts in the order of their
// numbers, so that it does not depend on who else picked them.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/model/mixer_description.h"
#include "engine/model/moe_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kScores,  // [rows, experts | shared gate]
  kPacked,  // [an expert's rows, d_model]
  kUp,      // [an expert's rows, gate | up]
  kHidden,  // [an expert's rows, its width]
  kOut,     // [an expert's rows, d_model]
};

// One expert, or the shared one.
class Expert {
 public:
  static absl::StatusOr<Expert> Create(const ExpertDescription& d,
                                       int64_t width,
                                       const MixerContext& context) {
    const LinearPart gate_up[] = {{d.gate, width}, {d.up, width}};
    const LinearPart down[] = {{d.down, context.d_model}};
    ASSIGN_OR_RETURN(Linear first,
                     context.weights.MakeLinear(gate_up, context.d_model));
    ASSIGN_OR_RETURN(Linear second, context.weights.MakeLinear(down, width));
    context.scratch.Reserve(kUp, 2 * width);
    context.scratch.Reserve(kHidden, width);
    return Expert(std::move(first), std::move(second));
  }

  void Apply(MatrixView<const float> x, Scratch& scratch,
             MatrixView<float> y) const {
    const int64_t width = down_.in();
    const MatrixView<float> gate_up = scratch.Matrix(kUp, x.rows, 2 * width);
    const MatrixView<float> hidden = scratch.Matrix(kHidden, x.rows, width);
    gate_up_.Apply(x, gate_up, scratch.linear());
    ForEach(x.rows, 3 * width, [&](int64_t row) {
      const float* gate = gate_up.Row(row);
      SiluMultiply(gate, gate + width, width, hidden.Row(row));
    });
    down_.Apply(hidden, y, scratch.linear());
  }

 private:
  Expert(Linear gate_up, Linear down)
      : gate_up_(std::move(gate_up)), down_(std::move(down)) {}

  Linear gate_up_;  // [d_model] to [gate | up]
  Linear down_;
};

// Turns a row's scores into the experts' shares, 0 for those not chosen. Of
// equal scores the first is taken.
void Choose(float* scores, int64_t experts, int64_t per_row, bool sum_to_one) {
  Softmax(scores, experts);
  std::array<std::pair<int64_t, float>, kMaxExpertsPerRow> chosen;
  float sum = 0;
  for (int64_t i = 0; i < per_row; ++i) {
    const float* best = std::max_element(scores, scores + experts);
    const int64_t expert = best - scores;
    chosen[static_cast<size_t>(i)] = {expert, *best};
    sum += *best;
    scores[expert] = -1;  // below every probability
  }
  std::fill(scores, scores + experts, 0.0F);
  for (int64_t i = 0; i < per_row; ++i) {
    const auto [expert, share] = chosen[static_cast<size_t>(i)];
    scores[expert] = sum_to_one ? share / sum : share;
  }
}

// What MoeFfn is made of.
struct Parts {
  int64_t per_row = 0;
  bool sum_to_one = false;
  Linear router;  // [d_model] to [experts | shared gate]
  std::vector<Expert> experts;
  std::optional<Expert> shared;
};

class MoeFfn : public Mixer {
 public:
  explicit MoeFfn(Parts parts) : p_(std::move(parts)) {}

  void Forward(MatrixView<const float> x, std::span<const Segment>,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  void ApplyExpert(int64_t expert, MatrixView<const float> x,
                   MatrixView<const float> shares, Scratch& scratch,
                   MatrixView<float> y) const;

  const Parts p_;
};

// Adds the expert's share of every row that chose it to y.
void MoeFfn::ApplyExpert(int64_t expert, MatrixView<const float> x,
                         MatrixView<const float> shares, Scratch& scratch,
                         MatrixView<float> y) const {
  const MatrixView<float> packed = scratch.Matrix(kPacked, x.rows, x.cols);
  int64_t rows = 0;
  for (int64_t row = 0; row < x.rows; ++row) {
    if (shares.Row(row)[expert] == 0) continue;
    std::copy_n(x.Row(row), x.cols, packed.Row(rows++));
  }
  if (rows == 0) return;
  const MatrixView<float> out = scratch.Matrix(kOut, rows, x.cols);
  p_.experts[static_cast<size_t>(expert)].Apply(packed.Rows(0, rows), scratch,
                                                out);
  int64_t from = 0;
  for (int64_t row = 0; row < x.rows; ++row) {
    const float share = shares.Row(row)[expert];
    if (share == 0) continue;
    float* result = out.Row(from++);
    Scale(share, x.cols, result);
    AddInto(result, x.cols, y.Row(row));
  }
}

void MoeFfn::Forward(MatrixView<const float> x, std::span<const Segment>,
                     Scratch& scratch, MatrixView<float> y) const {
  const int64_t experts = std::ssize(p_.experts);
  const MatrixView<float> scores =
      scratch.Matrix(kScores, x.rows, p_.router.out());
  p_.router.Apply(x, scores, scratch.linear());
  ForEach(x.rows, experts * (p_.per_row + 4), [&](int64_t row) {
    Choose(scores.Row(row), experts, p_.per_row, p_.sum_to_one);
  });
  if (p_.shared) {
    p_.shared->Apply(x, scratch, y);
    ForEach(x.rows, 2 * x.cols, [&](int64_t row) {
      float* gate = scores.Row(row) + experts;
      Sigmoid(gate, 1);
      Scale(*gate, x.cols, y.Row(row));
    });
  } else {
    std::fill_n(y.data, y.rows * y.cols, 0.0F);
  }
  for (int64_t expert = 0; expert < experts; ++expert) {
    ApplyExpert(expert, x, scores, scratch, y);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeMoeFfn(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<MoeFfnDescription>();
  const int64_t experts = std::ssize(d.experts);
  CHECK(d.per_row >= 1 && d.per_row <= std::min(experts, kMaxExpertsPerRow));
  // In f32 whatever the model's type: rounding must not choose experts, and it
  // is one row of weights beside three matrices an expert.
  std::vector<LinearPart> router_parts = {{d.router, experts}};
  if (d.shared_width > 0) router_parts.push_back({d.shared_gate, 1});
  ASSIGN_OR_RETURN(Linear router,
                   context.weights.MakeHeadLinear(router_parts, context.d_model,
                                                  /*rows_per_row=*/1));
  std::vector<Expert> made;
  for (const ExpertDescription& expert : d.experts) {
    ASSIGN_OR_RETURN(Expert one, Expert::Create(expert, d.width, context));
    made.push_back(std::move(one));
  }
  std::optional<Expert> shared;
  if (d.shared_width > 0) {
    ASSIGN_OR_RETURN(shared, Expert::Create(d.shared, d.shared_width, context));
  }
  context.scratch.Reserve(kScores, router.out());
  context.scratch.Reserve(kPacked, context.d_model);
  context.scratch.Reserve(kOut, context.d_model);
  return std::make_unique<MoeFfn>(Parts{.per_row = d.per_row,
                                        .sum_to_one = d.sum_to_one,
                                        .router = std::move(router),
                                        .experts = std::move(made),
                                        .shared = std::move(shared)});
}

}  // namespace reprise
