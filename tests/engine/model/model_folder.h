// Folders with a config and a checkpoint, for tests of adapters.
#ifndef TESTS_ENGINE_MODEL_MODEL_FOLDER_H_
#define TESTS_ENGINE_MODEL_MODEL_FOLDER_H_

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/model/model_config.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// The config of a case in tests/testdata/golden.
inline nlohmann::json GoldenConfig(const std::string& name) {
  std::ifstream file(std::string(REPRISE_TESTDATA) + "/golden/" + name +
                     "/config.json");
  EXPECT_TRUE(file.good()) << name;
  return nlohmann::json::parse(file);
}

// Loads descriptions from a folder whose checkpoint has the tensors `names`.
class ModelFolder {
 public:
  explicit ModelFolder(const std::vector<std::string>& names = {}) {
    SafetensorsWriter writer;
    for (const std::string& name : names) writer.AddF32(name, {1}, {1});
    dir_.Write("model.safetensors", writer.File());
  }
  absl::StatusOr<ModelDescription> Load(const nlohmann::json& config) {
    return LoadText(config.dump());
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

}  // namespace reprise

#endif  // TESTS_ENGINE_MODEL_MODEL_FOLDER_H_
