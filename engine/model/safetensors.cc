#include "engine/model/safetensors.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"
#include "engine/model/file_access.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
// The index of the largest published models (thousands of experts) has 10 MB.
constexpr JsonLimits kIndexLimits = {.max_bytes = 64 << 20, .max_depth = 8};

// A link is there, wherever it leads: opening it tells. Fails as looking does.
absl::StatusOr<bool> IsThere(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return false;
  if (error) return FileError(path, error.value());
  return true;
}

// A tensor's name and the shard the index puts it in.
using WeightMap = std::vector<std::pair<std::string, std::string>>;

absl::Status CheckShardName(const std::string& tensor,
                            const std::string& shard) {
  const bool plain = !shard.empty() && shard != "." && shard != ".." &&
                     std::none_of(shard.begin(), shard.end(), [](char c) {
                       return c == '/' || (c >= 0 && c < ' ');
                     });
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      kIndexFile, " puts tensor ", Quoted(tensor), " into ", Quoted(shard),
      ", which is not the plain name of a file in the model's folder"));
}

absl::StatusOr<WeightMap> ReadIndex(const fs::path& path) {
  ASSIGN_OR_RETURN(const nlohmann::json index,
                   ReadJsonObject(path, kIndexLimits));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object() || map->empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(kIndexFile,
                     ": field 'weight_map' is not an object of "
                     "tensor names and file names"));
  }
  WeightMap result;
  for (const auto& [tensor, shard] : map->items()) {
    if (!shard.is_string()) {
      return absl::InvalidArgumentError(
          absl::StrCat(kIndexFile, ": the file of tensor ", Quoted(tensor),
                       " is not a string"));
    }
    RETURN_IF_ERROR(CheckShardName(tensor, shard.get<std::string>()));
    result.emplace_back(tensor, shard.get<std::string>());
  }
  return result;
}

absl::Status CheckFolder(const std::string& dir) {
  std::error_code error;
  const fs::file_type type = fs::status(dir, error).type();
  if (type == fs::file_type::directory) return absl::OkStatus();
  if (error) return FileError(dir, error.value());
  return absl::NotFoundError(absl::StrCat(dir, " is not a folder"));
}

absl::Status NoCheckpoint(const std::string& dir) {
  std::string message =
      absl::StrCat("no ", kSingleFile, " and no ", kIndexFile, " in ", dir);
  std::error_code ignored;
  for (const fs::directory_entry& file : fs::directory_iterator(dir, ignored)) {
    const std::string extension = file.path().extension();
    if (extension == ".bin" || extension == ".pth" || extension == ".pt") {
      absl::StrAppend(&message, "; ", file.path().filename().string(),
                      " looks like a pickle, which can run any code and is "
                      "never read here: convert it to safetensors");
      break;
    }
  }
  return absl::NotFoundError(message);
}

// Elements converted at a time: the copy below stays in the L1 cache.
constexpr int64_t kPieceElements = 4096;

// Converts `count` elements that lie at `from`, which need not be aligned.
void ConvertPiece(DType dtype, const char* from, int64_t count, float* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
    return;
  }
  std::array<uint16_t, kPieceElements> piece;
  std::memcpy(piece.data(), from, static_cast<size_t>(count) * 2);
  if (dtype == DType::kBf16) {
    Bf16ToF32(piece.data(), count, to);
  } else {
    F16ToF32(piece.data(), count, to);
  }
}

template <typename T>
absl::StatusOr<std::vector<int32_t>> NarrowToI32(std::string_view name,
                                                 std::string_view bytes) {
  std::vector<int32_t> result(bytes.size() / sizeof(T));
  for (size_t i = 0; i < result.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    if (value < std::numeric_limits<int32_t>::min() ||
        value > std::numeric_limits<int32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(name), " holds ", value,
                       ", which does not fit 32 bits"));
    }
    result[i] = static_cast<int32_t>(value);
  }
  return result;
}

}  // namespace

absl::StatusOr<Checkpoint> Checkpoint::Open(const std::string& dir) {
  const fs::path folder(dir);
  RETURN_IF_ERROR(CheckFolder(dir));
  ASSIGN_OR_RETURN(const bool single, IsThere(folder / kSingleFile));
  if (single) return OpenFile(folder / kSingleFile);
  ASSIGN_OR_RETURN(const bool sharded, IsThere(folder / kIndexFile));
  if (sharded) return OpenShards(dir);
  return NoCheckpoint(dir);
}

absl::StatusOr<Checkpoint> Checkpoint::OpenFile(const std::string& path) {
  Checkpoint checkpoint;
  RETURN_IF_ERROR(checkpoint.AddFile(path));
  return checkpoint;
}

absl::StatusOr<Checkpoint> Checkpoint::OpenShards(const std::string& dir) {
  const fs::path folder(dir);
  ASSIGN_OR_RETURN(const WeightMap map, ReadIndex(folder / kIndexFile));
  std::set<std::string> shards;
  for (const auto& item : map) shards.insert(item.second);
  Checkpoint checkpoint;
  for (const std::string& shard : shards) {
    RETURN_IF_ERROR(checkpoint.AddFile(folder / shard));
  }
  for (const auto& [tensor, shard] : map) {
    const TensorInfo* info = checkpoint.Find(tensor);
    if (info == nullptr || info->file != shard) {
      return absl::InvalidArgumentError(
          absl::StrCat(kIndexFile, " puts tensor ", Quoted(tensor), " into ",
                       Quoted(shard), ", but it is not there"));
    }
  }
  return checkpoint;
}

absl::Status Checkpoint::AddFile(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile file, MappedFile::Open(path));
  const std::string name = fs::path(path).filename();
  const std::string_view bytes = file.bytes();
  const auto refuse = [&name](const auto&... reason) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": ", reason...));
  };
  uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    return refuse("truncated: ", bytes.size(), " bytes are too few");
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  if (header_bytes > kMaxHeaderBytes) {
    return refuse("the header claims ", header_bytes, " bytes, the limit is ",
                  kMaxHeaderBytes);
  }
  const std::string_view rest = bytes.substr(sizeof(header_bytes));
  if (header_bytes > rest.size()) {
    return refuse("truncated: the header claims ", header_bytes,
                  " bytes, the file has only ", rest.size(), " more");
  }
  const std::string_view data = rest.substr(header_bytes);
  absl::StatusOr<TensorEntries> entries =
      ParseSafetensorsHeader(rest.substr(0, header_bytes), data.size());
  if (!entries.ok()) return refuse(entries.status().message());
  for (auto& [tensor, entry] : *entries) {
    TensorInfo info{.dtype = entry.dtype,
                    .shape = std::move(entry.shape),
                    .elements = entry.elements,
                    .bytes = data.substr(entry.begin, entry.end - entry.begin),
                    .file = name};
    if (!tensors_.emplace(tensor, std::move(info)).second) {
      return refuse("tensor ", Quoted(tensor),
                    " is also in another file of the checkpoint");
    }
  }
  sources_.push_back({.path = path,
                      .stamp = file.stamp(),
                      .header_checksum = Crc32c(rest.substr(0, header_bytes))});
  file.DropPages(bytes.substr(0, sizeof(header_bytes) + header_bytes));
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

const TensorInfo* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

absl::Status Checkpoint::ReadF32(std::string_view name,
                                 std::span<float> out) const {
  const TensorInfo* tensor = Find(name);
  CHECK(tensor == nullptr || std::ssize(out) == tensor->elements);
  return ReadF32Range(name, /*first=*/0, out);
}

absl::Status Checkpoint::ReadF32Range(std::string_view name, int64_t first,
                                      std::span<float> out) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("tensor ", Quoted(name), " is missing"));
  }
  const DType dtype = tensor->dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBf16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(name), " has dtype ", ToAbsl(DTypeName(dtype)),
        "; weights are read from F32, F16 and BF16"));
  }
  const int64_t elements = std::ssize(out);
  CHECK(first >= 0 && elements <= tensor->elements - first);
  const char* start = tensor->bytes.data() + first * DTypeBytes(dtype);
  const int64_t pieces = (elements + kPieceElements - 1) / kPieceElements;
  std::atomic<bool> finite = true;
  ParallelFor(pieces, [&](int64_t piece) {
    const int64_t done = piece * kPieceElements;
    const int64_t count = std::min(kPieceElements, elements - done);
    float* to = &out[static_cast<size_t>(done)];
    ConvertPiece(dtype, start + done * DTypeBytes(dtype), count, to);
    if (!AllFinite(to, count)) finite = false;
  });
  if (!finite) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", Quoted(name), " holds a number that is NaN or infinite"));
  }
  return absl::OkStatus();
}

void Checkpoint::DropPages(std::string_view part) const {
  for (const MappedFile& file : files_) {
    const std::string_view bytes = file.bytes();
    // Pointers into different files are ordered by std::less.
    if (std::less_equal<>()(bytes.data(), part.data()) &&
        std::less<>()(part.data(), bytes.data() + bytes.size())) {
      return file.DropPages(part);
    }
  }
}

absl::StatusOr<std::vector<int32_t>> Checkpoint::ReadI32(
    std::string_view name) const {
  const TensorInfo* tensor = Find(name);
  if (tensor == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("tensor ", Quoted(name), " is missing"));
  }
  switch (tensor->dtype) {
    case DType::kI32:
      return NarrowToI32<int32_t>(name, tensor->bytes);
    case DType::kI64:
      return NarrowToI32<int64_t>(name, tensor->bytes);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Quoted(name), " has dtype ",
                       ToAbsl(DTypeName(tensor->dtype)), ", not I32 or I64"));
  }
}

}  // namespace reprise
