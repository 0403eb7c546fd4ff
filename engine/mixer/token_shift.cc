#include "engine/mixer/token_shift.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/parallel.h"
#include "engine/mixer/row_ops.h"

namespace reprise {

TokenShift::TokenShift(std::string_view field, const MixerContext& context)
    : offset_(context.layout.Add(
          absl::StrCat(context.layer, ".", ToAbsl(field)), {context.d_model})) {
}

void TokenShift::Apply(MatrixView<const float> x,
                       std::span<const Segment> segments,
                       MatrixView<float> difference) const {
  const int64_t sessions = std::ssize(segments);
  ForEach(sessions, x.rows * x.cols / sessions, [&](int64_t i) {
    const Segment& segment = segments[static_cast<size_t>(i)];
    float* state = reinterpret_cast<float*>(segment.slot + offset_);
    const float* before = state;
    for (int64_t r = 0; r < segment.num_rows; ++r) {
      const float* now = x.Row(segment.first_row + r);
      float* out = difference.Row(segment.first_row + r);
      for (int64_t c = 0; c < x.cols; ++c) out[c] = before[c] - now[c];
      before = now;
    }
    std::copy_n(before, x.cols, state);
  });
}

}  // namespace reprise
