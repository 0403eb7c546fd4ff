#include "engine/mixer/registry.h"

#include "engine/base/log.h"

namespace reprise {
namespace {

constexpr MixerEntry kMixers[] = {
    {DeltaNetDescription::kKind, &MakeDeltaNet},
    {GatedFfnDescription::kKind, &MakeGatedFfn},
    {GatedLinearAttentionDescription::kKind, &MakeGatedLinearAttention},
    {LinearAttentionDescription::kKind, &MakeLinearAttention},
    {MambaDescription::kKind, &MakeMamba},
    {Mamba2Description::kKind, &MakeMamba2},
    {MoeFfnDescription::kKind, &MakeMoeFfn},
    {PlainFfnDescription::kKind, &MakePlainFfn},
    {RetentionDescription::kKind, &MakeRetention},
    {Rwkv4TimeMixDescription::kKind, &MakeRwkv4TimeMix},
    {Rwkv7Description::kKind, &MakeRwkv7},
    {Rwkv7FfnDescription::kKind, &MakeRwkv7Ffn},
    {RwkvChannelMixDescription::kKind, &MakeRwkvChannelMix},
    {RwkvTimeMixDescription::kKind, &MakeRwkvTimeMix},
    {SoftmaxAttentionDescription::kKind, &MakeSoftmaxAttention},
};

}  // namespace

std::span<const MixerEntry> MixerTable() { return kMixers; }

absl::StatusOr<std::unique_ptr<Mixer>> MakeMixer(
    const MixerDescription& description, const MixerContext& context) {
  const std::string_view kind = MixerKind(description);
  for (const MixerEntry& entry : kMixers) {
    if (entry.kind == kind) return entry.make(description, context);
  }
  CHECK(!"a mixer without a line in the table");
}

}  // namespace reprise
