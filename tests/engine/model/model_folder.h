// Folders with a config and a checkpoint, for tests of adapters.
#ifndef TESTS_ENGINE_MODEL_MODEL_FOLDER_H_
#define TESTS_ENGINE_MODEL_MODEL_FOLDER_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/mixer_description.h"
#include "engine/model/model_config.h"
#include "tests/support/json.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// The config of a case in tests/testdata/golden.
inline Json GoldenConfig(const std::string& name) {
  return ReadJson(REPRISE_TESTDATA "/golden/" + name + "/config.json");
}

// Loads descriptions from a folder whose checkpoint has the tensors `names`.
class ModelFolder {
 public:
  explicit ModelFolder(const std::vector<std::string>& names = {}) {
    SafetensorsWriter writer;
    for (const std::string& name : names) writer.AddF32(name, {1}, {1});
    dir_.Write("model.safetensors", writer.File());
  }
  absl::StatusOr<ModelDescription> Load(const Json& config) {
    return LoadText(JsonText(config));
  }
  absl::StatusOr<ModelDescription> LoadText(const std::string& config) {
    dir_.Write("config.json", config);
    const auto checkpoint = Checkpoint::Open(dir_.path());
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    return LoadModelDescription(dir_.path(), *checkpoint);
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

// What the config describes with a checkpoint of those tensors.
inline ModelDescription Describe(const Json& config,
                                 const std::vector<std::string>& tensors = {}) {
  auto model = ModelFolder(tensors).Load(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : ModelDescription{};
}

// The description of one of a model's mixers, of that type.
template <class Description>
const Description& MixerOf(const ModelDescription& model, size_t layer,
                           size_t sublayer = 0) {
  return model.layers.at(layer).at(sublayer).mixer.As<Description>();
}

// `config` with one field set to `value`, null as if missing, is refused with a
// message that has both the field and `says`. A field "outer.inner" is one of
// the object in the field "outer".
inline void ExpectRefused(Json config, const std::string& field,
                          const Json& value, const std::string& says) {
  std::string pointer = "/" + field;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  config[Json::json_pointer(pointer)] = value;
  const auto model = ModelFolder().Load(config);
  ASSERT_FALSE(model.ok()) << field << " = " << JsonText(value);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string message(model.status().message());
  EXPECT_THAT(message,
              testing::HasSubstr("config.json: field '" + field + "' "));
  EXPECT_THAT(message, testing::HasSubstr(says));
}

}  // namespace reprise

#endif  // TESTS_ENGINE_MODEL_MODEL_FOLDER_H_
