// The functions that models apply element by element.
#ifndef ENGINE_MODEL_ACTIVATION_H_
#define ENGINE_MODEL_ACTIVATION_H_

namespace reprise {

enum class Activation { kRelu, kGelu, kSilu };

}  // namespace reprise

#endif  // ENGINE_MODEL_ACTIVATION_H_
