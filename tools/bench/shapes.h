// The named shapes: which tensors a model of a known family and size has, and
// what random numbers to fill them with, so that the engine (and other
// programs) can be measured on sizes for which no model is at hand.
#ifndef TOOLS_BENCH_SHAPES_H_
#define TOOLS_BENCH_SHAPES_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise::bench {

// What a tensor's numbers are drawn from.
struct Distribution {
  enum class Kind { kNormal, kUniform };
  Kind kind = Kind::kNormal;
  float a = 0;  // the mean, or the lowest
  float b = 0;  // the standard deviation, or the highest
};

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  Distribution values;
  bool f32 = false;  // in the file; else bf16
};

// How the family's models turn text into tokens.
enum class Vocabulary { kBytePairs, kRwkv };

struct ModelShape {
  nlohmann::ordered_json config;
  std::vector<TensorSpec> tensors;
  Vocabulary vocabulary = Vocabulary::kBytePairs;
};

struct ShapeSize {
  int64_t layers = 0;
  int64_t width = 0;
  int64_t vocab = 0;
};

// What to change of a named shape's size.
struct ShapeChange {
  std::optional<int64_t> layers = std::nullopt;
  std::optional<int64_t> width = std::nullopt;
  std::optional<int64_t> vocab = std::nullopt;
};

std::vector<std::string> ShapeNames();

// The size of a shape. InvalidArgument, listing the names, for an unknown one,
// and if the changed width is not a multiple of what the family's heads need.
absl::StatusOr<ShapeSize> SizeOfShape(std::string_view name,
                                      const ShapeChange& change);

// The shape itself; the same errors.
absl::StatusOr<ModelShape> MakeShape(std::string_view name,
                                     const ShapeChange& change);

// The families, each in a file of its own.
ModelShape LinearAttentionShape(const ShapeSize& size);
ModelShape GatedDeltaNetShape(const ShapeSize& size);
ModelShape Rwkv7Shape(const ShapeSize& size);
ModelShape MambaShape(const ShapeSize& size);
ModelShape Mamba2Shape(const ShapeSize& size);
ModelShape QwenHybridShape(const ShapeSize& size);

// Collects tensors in the order of the file.
class TensorList {
 public:
  // A matrix [out, in] of variance 1 / in, which keeps a norm's scale.
  void Matrix(std::string name, int64_t out, int64_t in);
  // Weights of a norm, around 1; around 0 where the model adds 1 itself.
  void Norm(std::string name, int64_t n, float mean = 1);
  void Normal(std::string name, std::vector<int64_t> shape, float mean,
              float deviation);
  void Uniform(std::string name, std::vector<int64_t> shape, float lowest,
               float highest);
  // The same in f32, as files have numbers that decide what a state keeps.
  void UniformF32(std::string name, std::vector<int64_t> shape, float lowest,
                  float highest);
  std::vector<TensorSpec> Take() { return std::move(tensors_); }

 private:
  std::vector<TensorSpec> tensors_;
};

}  // namespace reprise::bench

#endif  // TOOLS_BENCH_SHAPES_H_
