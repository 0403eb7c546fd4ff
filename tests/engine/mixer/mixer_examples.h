// Descriptions of small mixers, with random weights: what the conformance
// suite runs.
#ifndef TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_
#define TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_

#include <cstdint>
#include <map>
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
  std::map<std::string, ExampleTensor> tensors;
};

// At least one for every line of the mixer table; the same at every call.
std::vector<MixerExample> MixerExamples();

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_MIXER_EXAMPLES_H_
