// Makes a model folder whose checkpoint is what its config asks for, whatever
// that is: it asks for a summary and believes the complaints.
#ifndef TESTS_SUPPORT_FITTING_CHECKPOINT_H_
#define TESTS_SUPPORT_FITTING_CHECKPOINT_H_

#include <filesystem>
#include <map>
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
  const std::string message(status.message());
  const std::string begin = "tensor '";
  const size_t name_end = message.find("' ", begin.size());
  const size_t list = message.rfind('[');
  if (!message.starts_with(begin) || name_end == std::string::npos ||
      list == std::string::npos || list + 2 >= message.size() ||
      message.find_first_not_of("0123456789, ", list + 1) + 1 !=
          message.size() ||
      !message.ends_with(']')) {
    return false;
  }
  std::vector<int64_t> shape;
  for (size_t at = list + 1; at < message.size();) {
    size_t length = 0;
    shape.push_back(std::stoll(message.substr(at), &length));
    at += length + 2;  // ", "
  }
  const std::string name(message, begin.size(), name_end - begin.size());
  shapes[name] = std::move(shape);
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
