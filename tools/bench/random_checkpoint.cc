#include "tools/bench/random_checkpoint.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "tools/bench/random_vocabulary.h"

namespace reprise::bench {
namespace {

// No more ids than this are read as raw bytes, without a tokenizer.
constexpr int64_t kMostByteIds = 512;

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
  return static_cast<float>((static_cast<double>(sum) - kMean) / kStddev);
}

float NextNumber(const Distribution& values, uint64_t& state) {
  if (values.kind == Distribution::Kind::kNormal) {
    return values.a + values.b * NextNormal(state);
  }
  const double share = static_cast<double>(NextRandom(state) >> 11) * 0x1p-53;
  return values.a + (values.b - values.a) * static_cast<float>(share);
}

uint16_t ToBf16(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
}

void WriteTensor(const TensorSpec& tensor, uint64_t& state,
                 std::ofstream& file) {
  // Piece by piece: embeddings can have hundreds of megabytes.
  constexpr int64_t kPiece = 1 << 16;
  std::vector<float> numbers;
  std::vector<uint16_t> halves;
  for (int64_t left = Elements(tensor); left > 0; left -= kPiece) {
    numbers.resize(static_cast<size_t>(std::min(left, kPiece)));
    for (float& number : numbers) number = NextNumber(tensor.values, state);
    if (tensor.f32) {
      file.write(reinterpret_cast<const char*>(numbers.data()),
                 std::ssize(numbers) * 4);
      continue;
    }
    halves.resize(numbers.size());
    std::transform(numbers.begin(), numbers.end(), halves.begin(), ToBf16);
    file.write(reinterpret_cast<const char*>(halves.data()),
               std::ssize(halves) * 2);
  }
}

std::string SafetensorsHeader(const std::vector<TensorSpec>& tensors) {
  // Not ordered_json, which looks through all keys for every new one.
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const TensorSpec& tensor : tensors) {
    const int64_t end = offset + Elements(tensor) * (tensor.f32 ? 4 : 2);
    header[tensor.name] = {{"dtype", tensor.f32 ? "F32" : "BF16"},
                           {"shape", tensor.shape},
                           {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  ByteWriter writer;
  writer.Put(static_cast<uint64_t>(text.size()));
  writer.PutBytes(text);
  return std::string(writer.data());
}

absl::Status Close(std::ofstream& file, const std::string& path) {
  file.close();
  if (file) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", path));
}

absl::Status WriteText(const std::string& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  return Close(file, path);
}

}  // namespace

absl::Status WriteRandomCheckpoint(std::string_view name,
                                   const ShapeChange& change,
                                   const std::string& dir) {
  ASSIGN_OR_RETURN(const ModelShape shape, MakeShape(name, change));
  RETURN_IF_ERROR(WriteText(dir + "/config.json", shape.config.dump(2) + "\n"));
  const auto vocab_size = shape.config.at("vocab_size").get<int64_t>();
  if (shape.vocabulary == Vocabulary::kRwkv) {
    // The name under which other programs look for it.
    RETURN_IF_ERROR(WriteText(dir + "/rwkv_vocab_v20230424.txt",
                              RwkvVocabulary(vocab_size)));
  } else if (vocab_size > kMostByteIds) {
    RETURN_IF_ERROR(
        WriteText(dir + "/tokenizer.json", BytePairTokenizerJson(vocab_size)));
  }
  const std::string path = dir + "/model.safetensors";
  std::ofstream file(path, std::ios::binary);
  file << SafetensorsHeader(shape.tensors);
  uint64_t state = 1;
  for (const TensorSpec& tensor : shape.tensors) {
    WriteTensor(tensor, state, file);
  }
  return Close(file, path);
}

}  // namespace reprise::bench
