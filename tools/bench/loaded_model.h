// The model that is measured: a folder's, or random weights of a named shape.
#ifndef TOOLS_BENCH_LOADED_MODEL_H_
#define TOOLS_BENCH_LOADED_MODEL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/engine.h"
#include "engine/model_summary.h"
#include "tools/bench/engine_bench.h"
#include "tools/bench/shapes.h"

namespace reprise::bench {

// A model's folder, which is gone when this is, if it was made for this.
class ModelFolder {
 public:
  // One that is there already.
  static ModelFolder At(std::string path);
  // Writes random weights of the shape into a temporary folder. Unavailable if
  // that fails; else as WriteRandomCheckpoint.
  static absl::StatusOr<ModelFolder> OfShape(const std::string& shape,
                                             const ShapeChange& change);
  ~ModelFolder();
  ModelFolder(ModelFolder&& other) noexcept;
  ModelFolder& operator=(ModelFolder&& other) noexcept;

  const std::string& path() const { return path_; }

 private:
  ModelFolder() = default;
  std::string path_;
  bool temporary_ = false;
};

struct LoadedModel {
  std::unique_ptr<Engine> engine;
  TokenWork work;
};

// Loads the model so that it has room for what `options` asks, as far as
// memory reaches. Fails as LoadEngine and SummariseModel do.
absl::StatusOr<LoadedModel> LoadForBench(const std::string& dir,
                                         WeightType weights,
                                         const BenchOptions& options);

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_LOADED_MODEL_H_
