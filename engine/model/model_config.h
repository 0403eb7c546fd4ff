// Reads config.json and chooses the adapter for its model_type.
#ifndef ENGINE_MODEL_MODEL_CONFIG_H_
#define ENGINE_MODEL_MODEL_CONFIG_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/model/block_description.h"
#include "engine/model/safetensors.h"

namespace reprise {

// The description of the model in the folder `dir`, from its config.json and,
// for the special tokens, generation_config.json where there is one.
// InvalidArgument, naming the field, its value and what would be allowed, or
// the model types known; NotFound if there is no config.json.
absl::StatusOr<ModelDescription> LoadModelDescription(
    const std::string& dir, const Checkpoint& checkpoint);

}  // namespace reprise

#endif  // ENGINE_MODEL_MODEL_CONFIG_H_
