// Retention (Sun et al. 2023): linear attention with rotary positions and a
// fixed decay for every head.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
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
  void FillCosSin(const Segment& segment, MatrixView<float> cos_sin) const;

  const std::vector<float> decay_;  // [heads]
  // [key_dim / 2]. In double, as the angles: at position 10^6 an angle in f32
  // would be off by 0.06.
  std::vector<double> frequencies_;
};

Retention::Retention(Parts parts, const RetentionDescription& d)
    : DecayAttention(std::move(parts)), decay_(d.decay) {
  const int64_t dim = d.attention.key_dim;
  for (int64_t i = 0; i < dim / 2; ++i) {
    frequencies_.push_back(
        std::pow(d.rotary_base,
                 -2.0 * static_cast<double>(i) / static_cast<double>(dim)));
  }
}

void Retention::FillCosSin(const Segment& segment,
                           MatrixView<float> cos_sin) const {
  const int64_t half = std::ssize(frequencies_);
  for (int64_t row = 0; row < segment.num_rows; ++row) {
    float* to = cos_sin.Row(segment.first_row + row);
    const auto position = static_cast<double>(segment.position + row);
    for (int64_t i = 0; i < half; ++i) {
      const double angle = position * frequencies_[static_cast<size_t>(i)];
      to[i] = static_cast<float>(std::cos(angle));
      to[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// Turns every head's pairs (i, i + dim / 2).
void Rotate(const float* cos_sin, int64_t dim, int64_t width, float* x) {
  const int64_t half = dim / 2;
  for (float* head = x; head < x + width; head += dim) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = head[i];
      const float b = head[half + i];
      head[i] = a * cos_sin[i] - b * cos_sin[half + i];
      head[half + i] = b * cos_sin[i] + a * cos_sin[half + i];
    }
  }
}

void Retention::Prepare(const Rows& rows, std::span<const Segment> segments,
                        Scratch& scratch, DecayArgs& args) const {
  Activate(rows);
  const int64_t dim = description().key_dim;
  const MatrixView<float> cos_sin = scratch.Matrix(kCosSin, rows.q.rows, dim);
  for (const Segment& segment : segments) FillCosSin(segment, cos_sin);
  ForEach(rows.q.rows, rows.q.cols + rows.k.cols, [&](int64_t row) {
    Rotate(cos_sin.Row(row), dim, rows.q.cols, rows.q.Row(row));
    Rotate(cos_sin.Row(row), dim, rows.k.cols, rows.k.Row(row));
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
