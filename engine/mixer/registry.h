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
#include "engine/model/mixer_description.h"
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

// A function MakeNAME in the .cc file of its mixer. `description` is of the
// kind that the function is for. Fails as MakeMixer does.
using MixerFactory = absl::StatusOr<std::unique_ptr<Mixer>>(
    const MixerDescription& description, const MixerContext& context);

struct MixerEntry {
  std::string_view kind;  // kKind of its description
  MixerFactory* make;
};

// Every mixer, in alphabetical order.
std::span<const MixerEntry> MixerTable();

// The mixer that `description` describes. Fails as Weights does, with the
// tensor that is missing or not what the description says, and as
// Linear::Create does. CHECKs that the description's kind is in the table:
// adapters make no other.
absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(
    const MixerDescription& description, const MixerContext& context);

}  // namespace reprise

#endif  // ENGINE_MIXER_REGISTRY_H_
