#include "tools/bench/random_checkpoint.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"

namespace reprise::bench {
namespace {

using Json = nlohmann::ordered_json;

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;  // [out, in], or [n] for a norm's weight
};

// A linear-attention model (elu + 1, with the normaliser) in the layout of
// flash-linear-attention.
struct LinearAttentionShape {
  const char* name;
  int64_t layers;
  int64_t d_model;
  int64_t heads;
  int64_t intermediate;
  int64_t vocab;
};

// linear-gpt2 has the width, depth and vocabulary of GPT-2 small, and the
// gated MLP of 8/3 the width that keeps the parameters of its plain one.
constexpr LinearAttentionShape kShapes[] = {
    {"linear-gpt2", 12, 768, 12, 2048, 50257},
    {"linear-tiny", 2, 128, 2, 256, 512},
};

Json Config(const LinearAttentionShape& shape) {
  return {{"model_type", "linear_attn"},
          {"architectures", {"LinearAttentionForCausalLM"}},
          {"hidden_size", shape.d_model},
          {"num_hidden_layers", shape.layers},
          {"num_heads", shape.heads},
          {"num_kv_heads", nullptr},
          {"expand_k", 1.0},
          {"expand_v", 1.0},
          {"feature_map", "elu"},
          {"tie_feature_map_qk", false},
          {"norm_q", false},
          {"norm_k", false},
          {"norm_feature_map", true},
          {"hidden_act", "swish"},
          {"hidden_ratio", 4},
          {"intermediate_size", shape.intermediate},
          {"norm_eps", 1e-6},
          {"attn", nullptr},
          {"tie_word_embeddings", false},
          {"vocab_size", shape.vocab}};
}

std::vector<TensorSpec> Tensors(const LinearAttentionShape& shape) {
  const int64_t d = shape.d_model;
  const int64_t ff = shape.intermediate;
  std::vector<TensorSpec> tensors = {
      {"model.embeddings.weight", {shape.vocab, d}}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string at = absl::StrCat("model.layers.", layer, ".");
    tensors.push_back({at + "attn_norm.weight", {d}});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      tensors.push_back({absl::StrCat(at, "attn.", name, ".weight"), {d, d}});
    }
    tensors.push_back({at + "attn.norm.weight", {d / shape.heads}});
    tensors.push_back({at + "mlp_norm.weight", {d}});
    tensors.push_back({at + "mlp.gate_proj.weight", {ff, d}});
    tensors.push_back({at + "mlp.up_proj.weight", {ff, d}});
    tensors.push_back({at + "mlp.down_proj.weight", {d, ff}});
  }
  tensors.push_back({"model.norm.weight", {d}});
  tensors.push_back({"lm_head.weight", {shape.vocab, d}});
  return tensors;
}

int64_t Elements(const TensorSpec& tensor) {
  int64_t elements = 1;
  for (const int64_t dim : tensor.shape) elements *= dim;
  return elements;
}

// SplitMix64 (Steele et al. 2014): fast, and the same everywhere.
uint64_t NextRandom(uint64_t& state) {
  uint64_t z = (state += 0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// The sum of four uniform 16-bit numbers, scaled to variance 1: near enough to
// a normal distribution for weights, and a tenth of the time of a real one.
float NextNormal(uint64_t& state) {
  constexpr double kMean = 4 * 32767.5;
  constexpr double kStddev = 37837.2;  // sqrt(4 * (65536^2 - 1) / 12)
  const uint64_t bits = NextRandom(state);
  const int64_t sum =
      static_cast<int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                           ((bits >> 32) & 0xffff) + (bits >> 48));
  return static_cast<float>((sum - kMean) / kStddev);
}

uint16_t ToBf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

std::vector<uint16_t> RandomTensor(const TensorSpec& tensor, uint64_t& state) {
  std::vector<uint16_t> values(Elements(tensor));
  const bool is_norm = tensor.shape.size() == 1;
  const float scale =
      is_norm ? 0.1f : 1.0f / std::sqrt(static_cast<float>(tensor.shape[1]));
  for (uint16_t& value : values) {
    value = ToBf16((is_norm ? 1.0f : 0.0f) + scale * NextNormal(state));
  }
  return values;
}

absl::Status WriteSafetensors(const std::vector<TensorSpec>& tensors,
                              const std::string& path) {
  Json header = Json::object();
  int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t end = offset + 2 * Elements(tensor);
    header[tensor.name] = {{"dtype", "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  ByteWriter prefix;
  prefix.Put(static_cast<uint64_t>(text.size()));
  prefix.PutBytes(text);
  std::ofstream file(path, std::ios::binary);
  file << prefix.data();
  uint64_t state = 1;
  for (const TensorSpec& tensor : tensors) {
    const std::vector<uint16_t> values = RandomTensor(tensor, state);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * 2));
  }
  file.close();
  if (!file) {
    return absl::UnavailableError(absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> ShapeNames() {
  std::vector<std::string> names;
  for (const LinearAttentionShape& shape : kShapes) {
    names.push_back(shape.name);
  }
  return names;
}

absl::Status WriteRandomCheckpoint(std::string_view shape_name,
                                   const std::string& dir) {
  for (const LinearAttentionShape& shape : kShapes) {
    if (shape_name != shape.name) continue;
    std::ofstream config(dir + "/config.json");
    config << Config(shape).dump(2) << "\n";
    config.close();
    if (!config) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", dir, "/config.json"));
    }
    return WriteSafetensors(Tensors(shape), dir + "/model.safetensors");
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--shape=", ToAbsl(shape_name), " is not one of ",
                   absl::StrJoin(ShapeNames(), ", ")));
}

}  // namespace reprise::bench
