// The short causal convolution in front of a recurrence (GLA, the delta rule,
// Mamba), with its part of a session's state.
#ifndef ENGINE_MIXER_SHORT_CONV_H_
#define ENGINE_MIXER_SHORT_CONV_H_

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/registry.h"
#include "engine/model/short_conv_description.h"
#include "engine/tensor.h"

namespace reprise {

// Immutable after construction; Apply may run on distinct slots concurrently.
class ShortConvolution {
 public:
  // Adds the state field "LAYER.field" of [channels, taps]: the last inputs,
  // before the convolution, oldest first. Fails as Weights does.
  static absl::StatusOr<ShortConvolution> Create(
      const ShortConvDescription& description, std::string_view field,
      const MixerContext& context);

  // y = the convolution of x, [rows of all segments, channels] both (and silu
  // of that, if described); the state advances. They may be some columns of
  // wider matrices, and the same. However a segment is split, the bits are the
  // same.
  void Apply(MatrixView<const float> x, std::span<const Segment> segments,
             MatrixView<float> y) const;

  int64_t channels() const { return channels_; }

 private:
  ShortConvolution() = default;

  int64_t channels_ = 0;
  int64_t taps_ = 0;
  bool silu_ = false;
  std::vector<float> weight_;  // [taps, channels]
  std::vector<float> bias_;    // [channels], or empty: none
  int64_t offset_ = 0;         // bytes, in the slot
};

}  // namespace reprise

#endif  // ENGINE_MIXER_SHORT_CONV_H_
