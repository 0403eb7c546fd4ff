#include "engine/mixer/registry.h"

#include "engine/base/log.h"

// The table: the kind of its description, and NAME of the mixer's MakeNAME. To
// add a mixer, add its file and its line here.
#define REPRISE_MIXERS(MIXER)                           \
  MIXER("delta_net", DeltaNet)                          \
  MIXER("gated_ffn", GatedFfn)                          \
  MIXER("gated_linear_attention", GatedLinearAttention) \
  MIXER("linear_attention", LinearAttention)            \
  MIXER("mamba", Mamba)                                 \
  MIXER("mamba2", Mamba2)                               \
  MIXER("moe_ffn", MoeFfn)                              \
  MIXER("plain_ffn", PlainFfn)                          \
  MIXER("retention", Retention)                         \
  MIXER("rwkv4_time_mix", Rwkv4TimeMix)                 \
  MIXER("rwkv7", Rwkv7)                                 \
  MIXER("rwkv7_ffn", Rwkv7Ffn)                          \
  MIXER("rwkv_channel_mix", RwkvChannelMix)             \
  MIXER("rwkv_time_mix", RwkvTimeMix)                   \
  MIXER("softmax_attention", SoftmaxAttention)

namespace reprise {

#define DECLARE_FACTORY(kind, name) MixerFactory Make##name;
REPRISE_MIXERS(DECLARE_FACTORY)
#undef DECLARE_FACTORY

namespace {

#define MIXER_ENTRY(kind, name) {kind, &Make##name},
constexpr MixerEntry kMixers[] = {REPRISE_MIXERS(MIXER_ENTRY)};
#undef MIXER_ENTRY

}  // namespace

std::span<const MixerEntry> MixerTable() { return kMixers; }

absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(
    const MixerDescription& description, const MixerContext& context) {
  const std::string_view kind = description.kind();
  for (const MixerEntry& entry : kMixers) {
    if (entry.kind == kind) return entry.make(description, context);
  }
  CHECK(!"a mixer without a line in the table");
}

}  // namespace reprise
