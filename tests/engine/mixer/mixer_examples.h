// Descriptions of small mixers, with random weights: what the conformance
// suite runs.
#ifndef TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_
#define TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/model/block_description.h"

namespace reprise {

struct ExampleTensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

struct MixerExample {
  std::string name;  // letters and digits
  int64_t d_model = 0;
  MixerDescription description;
  // Of the layer before, which leaves what this one needs: it runs first, on
  // the same rows, and its output is dropped.
  std::optional<MixerDescription> before;
  // What the matmuls before the state read is computed, not given: in bf16 the
  // state then carries its rounding.
  bool state_behind_rounding = false;
  std::map<std::string, ExampleTensor> tensors;
};

// At least one for every line of the mixer table; the same at every call.
std::vector<MixerExample> MixerExamples();

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_
