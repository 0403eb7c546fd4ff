// Makes a model folder whose checkpoint is what its config asks for, whatever
// that is: it asks for a summary and believes the complaints.
#ifndef TESTS_SUPPORT_FITTING_CHECKPOINT_H_
#define TESTS_SUPPORT_FITTING_CHECKPOINT_H_

#include <filesystem>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "engine/model/safetensors.h"
#include "engine/model_summary.h"
#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// Tensors by name; all are F32 and all their numbers 0.
using TensorShapes = std::map<std::string, std::vector<int64_t>>;

inline TensorShapes ShapesOf(const std::string& dir) {
  TensorShapes shapes;
  const auto checkpoint = Checkpoint::Open(dir);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
  if (!checkpoint.ok()) return shapes;
  for (const auto& [name, tensor] : checkpoint->tensors()) {
    shapes[name] = tensor.shape;
  }
  return shapes;
}

// Writes DIR/model.safetensors. Its data are a hole in the file.
inline void WriteZeros(const TempDir& dir, const TensorShapes& shapes) {
  std::string header;
  int64_t end = 0;
  for (const auto& [name, shape] : shapes) {
    std::string dimensions;
    int64_t bytes = 4;
    for (const int64_t dimension : shape) {
      dimensions += (dimensions.empty() ? "" : ",") + std::to_string(dimension);
      bytes *= dimension;
    }
    header += (header.empty() ? "\"" : ",\"") + name +
              "\":{\"dtype\":\"F32\",\"shape\":[" + dimensions +
              "],\"data_offsets\":[" + std::to_string(end) + ",";
    end += bytes;
    header += std::to_string(end) + "]}";
  }
  const std::string file = SafetensorsFile("{" + header + "}", "");
  dir.Write("model.safetensors", file);
  std::filesystem::resize_file(dir.Path("model.safetensors"),
                               file.size() + static_cast<size_t>(end));
}

// The shape that a complaint about a tensor ends with, and whose it is.
inline bool TakeComplaint(const absl::Status& status, TensorShapes& shapes) {
  static const std::regex pattern(R"(^tensor '([^']+)' .*\[([0-9, ]+)\]$)");
  const std::string message(status.message());
  std::smatch match;
  if (!std::regex_match(message, match, pattern)) return false;
  std::vector<int64_t> shape;
  const std::string dimensions = match[2];
  for (size_t at = 0; at < dimensions.size();) {
    size_t length = 0;
    shape.push_back(std::stoll(dimensions.substr(at), &length));
    at += length + 2;  // ", "
  }
  shapes[match[1]] = std::move(shape);
  return true;
}

// Summarises the folder's model once its checkpoint, which begins as `shapes`,
// is what its config.json asks for; the error if there is no such checkpoint.
inline absl::StatusOr<ModelSummary> SummariseFitting(const TempDir& dir,
                                                     TensorShapes& shapes) {
  constexpr int kMostTries = 1000;
  absl::StatusOr<ModelSummary> summary;
  for (int i = 0; i < kMostTries; ++i) {
    WriteZeros(dir, shapes);
    summary = SummariseModel(dir.path());
    if (summary.ok() || !TakeComplaint(summary.status(), shapes))
      return summary;
  }
  ADD_FAILURE() << "never satisfied: " << summary.status();
  return summary;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_FITTING_CHECKPOINT_H_
