#include "engine/mixer/token_shift.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/kernels/gate_ops.h"
#include "engine/mixer/row_ops.h"

namespace reprise {

TokenShift::TokenShift(std::string_view field, const MixerContext& context)
    : offset_(context.layout.Add(
          absl::StrCat(context.layer, ".", ToAbsl(field)), {context.d_model})) {
}

void TokenShift::ForRows(
    MatrixView<const float> x, std::span<const Segment> segments,
    int64_t floats_each,
    absl::FunctionRef<void(int64_t, const float*)> use) const {
  const auto state = [this](const Segment& segment) {
    return reinterpret_cast<float*>(segment.slot + offset_);
  };
  ForEach(x.rows, floats_each, [&](int64_t row) {
    const auto next = std::upper_bound(segments.begin(), segments.end(), row,
                                       [](int64_t r, const Segment& segment) {
                                         return r < segment.first_row;
                                       });
    const Segment& segment = *std::prev(next);
    use(row, row == segment.first_row ? state(segment) : x.Row(row - 1));
  });
  ForEach(std::ssize(segments), x.cols, [&](int64_t i) {
    const Segment& segment = segments[static_cast<size_t>(i)];
    const int64_t last = segment.first_row + segment.num_rows - 1;
    std::copy_n(x.Row(last), x.cols, state(segment));
  });
}

void TokenShift::Apply(MatrixView<const float> x,
                       std::span<const Segment> segments,
                       MatrixView<float> difference) const {
  ForRows(x, segments, x.cols, [&](int64_t row, const float* before) {
    Subtract(before, x.Row(row), x.cols, difference.Row(row));
  });
}

void TokenShift::Apply(MatrixView<const float> x,
                       std::span<const Segment> segments,
                       std::span<const Mix> mixes) const {
  const int64_t floats_each = std::ssize(mixes) * x.cols;
  ForRows(x, segments, floats_each, [&](int64_t row, const float* before) {
    for (const auto& [share, out] : mixes) {
      Interpolate(x.Row(row), before, share.data(), x.cols, out.Row(row));
    }
  });
}

}  // namespace reprise
