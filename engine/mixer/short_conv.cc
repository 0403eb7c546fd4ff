#include "engine/mixer/short_conv.h"

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/short_conv_kernel.h"
#include "engine/mixer/session_groups.h"

namespace reprise {

absl::StatusOr<ShortConvolution> ShortConvolution::Create(
    const ShortConvDescription& description, std::string_view field,
    const MixerContext& context) {
  ShortConvolution conv;
  const int64_t channels = conv.channels_ = description.channels;
  const int64_t taps = conv.taps_ = description.taps;
  conv.silu_ = description.silu;
  // The file has [channels, 1, taps]; the kernel reads a tap of many channels.
  ASSIGN_OR_RETURN(
      const std::vector<float> weight,
      context.weights.Tensor(description.weight, {channels, 1, taps}));
  conv.weight_.resize(weight.size());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t j = 0; j < taps; ++j) {
      conv.weight_[static_cast<size_t>(j * channels + c)] =
          weight[static_cast<size_t>(c * taps + j)];
    }
  }
  ASSIGN_OR_RETURN(conv.bias_,
                   context.weights.Vector(description.bias, channels));
  conv.offset_ = context.layout.Add(
      absl::StrCat(context.layer, ".", ToAbsl(field)), {channels, taps});
  return conv;
}

void ShortConvolution::Apply(MatrixView<const float> x,
                             std::span<const Segment> segments,
                             MatrixView<float> y) const {
  const int64_t floats = x.rows * channels_ * taps_;
  ForEachSessionGroup(segments, channels_, floats, [&](const SessionGroup& g) {
    const auto& [segment, first, last] = g;
    float* state = reinterpret_cast<float*>(segment.slot + offset_);
    ShortConv({.x = x.Row(segment.first_row) + first,
               .y = y.Row(segment.first_row) + first,
               .x_stride = x.stride,
               .y_stride = y.stride,
               .rows = segment.num_rows,
               .channels = last - first,
               .taps = taps_,
               .weight = weight_.data() + first,
               .weight_stride = channels_,
               .bias = bias_.empty() ? nullptr : bias_.data() + first,
               .silu = silu_,
               .state = state + first * taps_});
  });
}

}  // namespace reprise
