// One step of each kind of mixer whose reference has a file of its own.
#ifndef TESTS_ENGINE_MIXER_REFERENCE_STEPS_H_
#define TESTS_ENGINE_MIXER_REFERENCE_STEPS_H_

#include "engine/model/block_description.h"
#include "engine/model/decay_descriptions.h"
#include "engine/model/delta_description.h"
#include "engine/model/mamba_descriptions.h"
#include "engine/model/moe_description.h"
#include "engine/model/rwkv7_description.h"
#include "engine/model/rwkv_descriptions.h"
#include "engine/model/softmax_attention_description.h"
#include "tests/engine/mixer/reference.h"

namespace reprise {

// As ReferenceMixer::Step. In attention_reference.cc.
Doubles StepOf(const SoftmaxAttentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);

// In decay_reference.cc.
Doubles StepOf(const RetentionDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
Doubles StepOf(const GatedLinearAttentionDescription& d,
               const ReferenceMixer& m, const Doubles& x,
               ReferenceState& state);

// In delta_reference.cc.
Doubles StepOf(const DeltaNetDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);

// In mamba_reference.cc.
Doubles StepOf(const MambaDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
Doubles StepOf(const Mamba2Description& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);

// In moe_reference.cc.
Doubles StepOf(const MoeFfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
// In rwkv7_reference.cc.
Doubles StepOf(const Rwkv7Description& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
Doubles StepOf(const Rwkv7FfnDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);

// In rwkv_reference.cc.
Doubles StepOf(const RwkvTimeMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
Doubles StepOf(const Rwkv4TimeMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);
Doubles StepOf(const RwkvChannelMixDescription& d, const ReferenceMixer& m,
               const Doubles& x, ReferenceState& state);

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_REFERENCE_STEPS_H_
