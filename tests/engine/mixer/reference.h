// What every mixer computes, as plain loops in double, one token at a time.
// Shares no code with the engine but the descriptions.
#ifndef TESTS_ENGINE_MIXER_REFERENCE_H_
#define TESTS_ENGINE_MIXER_REFERENCE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/model/block_description.h"

namespace reprise {

using Doubles = std::vector<double>;

// The tensors of a model by name, row-major.
using ReferenceTensors = std::map<std::string, Doubles>;

// The state of one layer by field ("recurrent"); empty is a new session.
using ReferenceState = std::map<std::string, Doubles>;

// What the engine's matmuls round their inputs to.
// int8: the row of inputs, and each output's row of weights, become multiples
// of 1/127 of their largest number.
enum class ReferenceRounding { kNone, kBf16, kInt8 };

struct ReferenceMixer {
  const MixerDescription& description;
  const ReferenceTensors& tensors;
  int64_t d_model = 0;
  ReferenceRounding rounding = ReferenceRounding::kNone;
  int64_t position = 0;  // rows of the session before the one that Step gets
  // What one layer leaves for the later ones of the same row, if any do.
  Doubles* kept = nullptr;

  // The output for one row, [d_model]; advances the state.
  Doubles Step(const Doubles& x, ReferenceState& state) const;
};

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_REFERENCE_H_
