// Retention (Sun et al. 2023): linear attention with rotary positions and a
// fixed decay for every head.
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/rotary.h"
#include "engine/mixer/decay_attention.h"
#include "engine/model/decay_descriptions.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
constexpr int64_t kCosSin = 2;  // [rows, key_dim]: cosines, then sines

class Retention : public DecayAttention {
 public:
  static absl::StatusOr<std::unique_ptr<Mixer>> Make(
      const RetentionDescription& d, const MixerContext& context);

 private:
  Retention(Parts parts, const RetentionDescription& d);
  void Prepare(const Rows& rows, std::span<const Segment> segments,
               Scratch& scratch, DecayArgs& args) const override;

  const std::vector<float> decay_;  // [heads]
  std::vector<double> turns_;       // [key_dim / 2], per token; see rotary.h
};

Retention::Retention(Parts parts, const RetentionDescription& d)
    : DecayAttention(std::move(parts)), decay_(d.decay) {
  const int64_t dim = d.attention.key_dim;
  for (int64_t i = 0; i < dim / 2; ++i) {
    turns_.push_back(std::pow(d.rotary_base, -2.0 * static_cast<double>(i) /
                                                 static_cast<double>(dim)) /
                     (2 * std::numbers::pi));
  }
}

void Retention::Prepare(const Rows& rows, std::span<const Segment> segments,
                        Scratch& scratch, DecayArgs& args) const {
  Activate(rows);
  const int64_t dim = description().key_dim;
  const MatrixView<float> cos_sin = scratch.Matrix(kCosSin, rows.q.rows, dim);
  for (const Segment& segment : segments) {
    for (int64_t row = 0; row < segment.num_rows; ++row) {
      RotaryAngles(turns_.data(), dim / 2, segment.position + row,
                   cos_sin.Row(segment.first_row + row));
    }
  }
  ForEach(rows.q.rows, rows.q.cols + rows.k.cols, [&](int64_t row) {
    for (const MatrixView<float>& heads : {rows.q, rows.k}) {
      for (int64_t i = 0; i < heads.cols; i += dim) {
        Rotate(cos_sin.Row(row), dim / 2, heads.Row(row) + i);
      }
    }
  });
  args.decay = Decay::kPerHead;
  args.w = decay_.data();
}

absl::StatusOr<std::unique_ptr<Mixer>> Retention::Make(
    const RetentionDescription& d, const MixerContext& context) {
  ASSIGN_OR_RETURN(Parts parts,
                   MakeParts(d.attention, /*extra=*/{}, 0, context));
  static_assert(kCosSin >= kFirstFreeBuffer);
  context.scratch.Reserve(kCosSin, d.attention.key_dim);
  return std::unique_ptr<Mixer>(new Retention(std::move(parts), d));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeRetention(
    const MixerDescription& description, const MixerContext& context) {
  return Retention::Make(description.As<RetentionDescription>(), context);
}

}  // namespace reprise
