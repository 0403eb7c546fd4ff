// Which mixers there are, and how each is made from its description.
#ifndef ENGINE_MIXER_REGISTRY_H_
#define ENGINE_MIXER_REGISTRY_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/scratch.h"
#include "engine/model/block_description.h"
#include "engine/model/weights.h"
#include "engine/state/state_layout.h"

namespace reprise {

// What a mixer takes from and adds to while the model loads; it keeps none of
// the references.
struct MixerContext {
  int64_t layer = 0;    // its fields in the state are named "LAYER.NAME"
  int64_t d_model = 0;  // width of x and y
  Weights& weights;
  StateLayout& layout;
  Scratch& scratch;  // where it reserves the buffers that Forward uses
};

// `description` holds the alternative that the factory is for. Fails as Weights
// does.
using MixerFactory = absl::StatusOr<std::unique_ptr<Mixer>> (*)(
    const MixerDescription& description, const MixerContext& context);

struct MixerEntry {
  std::string_view kind;  // kKind of its description
  MixerFactory make;
};

// Every mixer, in alphabetical order.
std::span<const MixerEntry> MixerTable();

// The mixer that `description` describes.
absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(
    const MixerDescription& description, const MixerContext& context);

// The factories, each in the .cc file of its mixer.
absl::StatusOr<std::unique_ptr<Mixer>> MakeDeltaNet(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedFfn(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeGatedLinearAttention(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeLinearAttention(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeMamba2(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeMoeFfn(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakePlainFfn(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRetention(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv4TimeMix(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv7(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkv7Ffn(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkvChannelMix(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeRwkvTimeMix(
    const MixerDescription& description, const MixerContext& context);
absl::StatusOr<std::unique_ptr<Mixer>> MakeSoftmaxAttention(
    const MixerDescription& description, const MixerContext& context);

}  // namespace reprise

#endif  // ENGINE_MIXER_REGISTRY_H_
