// Makes the descriptions and random weights of small mixers.
#ifndef TESTS_ENGINE_MIXER_EXAMPLE_BUILDER_H_
#define TESTS_ENGINE_MIXER_EXAMPLE_BUILDER_H_

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/block_description.h"
#include "engine/model/short_conv_description.h"
#include "tests/engine/mixer/mixer_examples.h"

namespace reprise {

inline constexpr int64_t kModelWidth = 64;

class ExampleBuilder {
 public:
  ExampleBuilder(std::string name, uint32_t seed) : random_(seed) {
    example_.name = std::move(name);
    example_.d_model = kModelWidth;
  }

  // Outputs of about the size of the inputs.
  LinearRef Linear(const std::string& name, int64_t out, int64_t in,
                   bool bias) {
    LinearRef ref;
    ref.weight = Tensor(name + ".weight", {out, in}, /*mean=*/0,
                        1 / std::sqrt(static_cast<float>(in)));
    if (bias) ref.bias = Tensor(name + ".bias", {out}, 0, 0.3F);
    return ref;
  }
  TensorRef Tensor(const std::string& name, std::vector<int64_t> shape,
                   float mean, float deviation) {
    int64_t elements = 1;
    for (const int64_t dimension : shape) elements *= dimension;
    std::normal_distribution<float> normal(mean, deviation);
    ExampleTensor tensor{std::move(shape), {}};
    for (int64_t i = 0; i < elements; ++i) {
      tensor.values.push_back(normal(random_));
    }
    example_.tensors[name] = std::move(tensor);
    return {name, "the example"};
  }
  ShortConvDescription Conv(const std::string& name, int64_t channels,
                            int64_t taps, bool bias) {
    ShortConvDescription conv;
    conv.channels = channels;
    conv.taps = taps;
    conv.weight = Tensor(name + ".weight", {channels, 1, taps}, 0, 0.6F);
    if (bias) conv.bias = Tensor(name + ".bias", {channels}, 0, 0.3F);
    return conv;
  }
  MixerExample Finish(MixerDescription description) {
    example_.description = std::move(description);
    return std::move(example_);
  }

 private:
  std::mt19937 random_;
  MixerExample example_;
};

// The examples of each family that has a file of its own.
void AddAttentionExamples(std::vector<MixerExample>& examples);
void AddDecayExamples(std::vector<MixerExample>& examples);
void AddDeltaExamples(std::vector<MixerExample>& examples);
void AddMambaExamples(std::vector<MixerExample>& examples);
void AddMoeExamples(std::vector<MixerExample>& examples);
void AddRwkv7Examples(std::vector<MixerExample>& examples);
void AddRwkvExamples(std::vector<MixerExample>& examples);

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_EXAMPLE_BUILDER_H_
