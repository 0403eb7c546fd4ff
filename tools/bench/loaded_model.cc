#include "tools/bench/loaded_model.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "tools/bench/random_checkpoint.h"

namespace reprise::bench {
namespace {

// Room for the longest session that is measured and still fits the memory.
int64_t ContextFor(const ModelSummary& summary, const BenchOptions& options) {
  int64_t context = options.context;
  for (const int64_t tokens : options.prefill_tokens) {
    context = std::max(context, tokens);
  }
  const int64_t per_token = summary.state_bytes_per_token;
  const int64_t available = AvailableMemory();
  for (const int64_t position : options.positions) {
    if (per_token == 0 || available == 0 || position < available / per_token) {
      context = std::max(context, position);
    }
  }
  return std::min(context + kTileRows, kMostContext);
}

}  // namespace

ModelFolder ModelFolder::At(std::string path) {
  ModelFolder folder;
  folder.path_ = std::move(path);
  return folder;
}

absl::StatusOr<ModelFolder> ModelFolder::OfShape(const std::string& shape,
                                                 const ShapeChange& change) {
  // Before anything is written.
  RETURN_IF_ERROR(SizeOfShape(shape, change).status());
  ModelFolder folder;
  std::error_code error;
  std::string name =
      std::filesystem::temp_directory_path(error) / "reprise-bench-XXXXXX";
  if (error || mkdtemp(name.data()) == nullptr) {
    return absl::UnavailableError("cannot make a temporary folder");
  }
  folder.path_ = name;
  folder.temporary_ = true;
  std::fprintf(stderr, "Writing random weights of shape %s ...\n",
               shape.c_str());
  RETURN_IF_ERROR(WriteRandomCheckpoint(shape, change, name));
  return folder;
}

ModelFolder::ModelFolder(ModelFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})),
      temporary_(std::exchange(other.temporary_, false)) {}

ModelFolder& ModelFolder::operator=(ModelFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

ModelFolder::~ModelFolder() {
  std::error_code ignored;
  if (temporary_) std::filesystem::remove_all(path_, ignored);
}

absl::StatusOr<LoadedModel> LoadForBench(const std::string& dir,
                                         WeightType weights,
                                         const BenchOptions& options) {
  ASSIGN_OR_RETURN(const ModelSummary summary, SummariseModel(dir));
  EngineOptions engine;
  engine.model_dir = dir;
  engine.weights = weights;
  for (const int64_t sessions : options.decode_sessions) {
    const int64_t rows = (sessions + kTileRows - 1) / kTileRows * kTileRows;
    engine.max_rows = std::max(engine.max_rows, rows);
  }
  engine.max_context = ContextFor(summary, options);
  LoadedModel model{.engine = nullptr, .work = summary.work};
  ASSIGN_OR_RETURN(model.engine, LoadEngine(engine));
  return model;
}

}  // namespace reprise::bench
