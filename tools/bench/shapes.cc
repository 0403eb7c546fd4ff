#include "tools/bench/shapes.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise::bench {
namespace {

struct NamedShape {
  const char* name;
  ModelShape (*make)(const ShapeSize& size);
  ShapeSize size;
  int64_t width_step;  // widths are multiples of it
};

// linear-gpt2 has the width, depth and vocabulary of GPT-2 small. rwkv7-0.1b,
// mamba-130m, mamba2-130m and hybrid-0.8b are RWKV-7 World 0.1B, mamba-130m and
// mamba2-130m of state-spaces, and the text part of Qwen3.5 0.8B. gdn-0.4b has
// the proportions that flash-linear-attention recommends.
constexpr NamedShape kNamedShapes[] = {
    {"rwkv7-0.1b", &Rwkv7Shape, {12, 768, 65536}, 64},
    {"mamba-130m", &MambaShape, {24, 768, 50280}, 64},
    {"mamba2-130m", &Mamba2Shape, {24, 768, 50288}, 64},
    {"linear-gpt2", &LinearAttentionShape, {12, 768, 50257}, 64},
    {"gdn-0.4b", &GatedDeltaNetShape, {24, 1024, 32000}, 512},
    {"hybrid-0.8b", &QwenHybridShape, {24, 1024, 248320}, 512},
    {"linear-tiny", &LinearAttentionShape, {2, 128, 512}, 64},
};

absl::StatusOr<NamedShape> FindShape(std::string_view name,
                                     const ShapeChange& change) {
  for (NamedShape shape : kNamedShapes) {
    if (name != shape.name) continue;
    shape.size.layers = change.layers.value_or(shape.size.layers);
    shape.size.width = change.width.value_or(shape.size.width);
    shape.size.vocab = change.vocab.value_or(shape.size.vocab);
    if (shape.size.width % shape.width_step != 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--width=", shape.size.width, " is not a multiple of ",
          shape.width_step, ", which the heads of ", shape.name, " need"));
    }
    return shape;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--shape=", ToAbsl(name), " is not one of ",
                   absl::StrJoin(ShapeNames(), ", ")));
}

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kNamedShapes) names.push_back(shape.name);
  return names;
}

absl::StatusOr<ShapeSize> SizeOfShape(std::string_view name,
                                      const ShapeChange& change) {
  ASSIGN_OR_RETURN(const NamedShape shape, FindShape(name, change));
  return shape.size;
}

absl::StatusOr<ModelShape> MakeShape(std::string_view name,
                                     const ShapeChange& change) {
  ASSIGN_OR_RETURN(const NamedShape shape, FindShape(name, change));
  return shape.make(shape.size);
}

void TensorList::Matrix(std::string name, int64_t out, int64_t in) {
  Normal(std::move(name), {out, in}, 0, 1 / std::sqrt(static_cast<float>(in)));
}

void TensorList::Norm(std::string name, int64_t n, float mean) {
  Normal(std::move(name), {n}, mean, 0.1f);
}

void TensorList::Normal(std::string name, std::vector<int64_t> shape,
                        float mean, float deviation) {
  tensors_.push_back({std::move(name),
                      std::move(shape),
                      {Distribution::Kind::kNormal, mean, deviation}});
}

void TensorList::Uniform(std::string name, std::vector<int64_t> shape,
                         float lowest, float highest) {
  tensors_.push_back({std::move(name),
                      std::move(shape),
                      {Distribution::Kind::kUniform, lowest, highest}});
}

void TensorList::UniformF32(std::string name, std::vector<int64_t> shape,
                            float lowest, float highest) {
  Uniform(std::move(name), std::move(shape), lowest, highest);
  tensors_.back().f32 = true;
}

}  // namespace reprise::bench
