#include "engine/model/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

using nlohmann::json;

struct DTypeRow {
  DType dtype;
  std::string_view name;
  int64_t bytes;
};

// In the order of the enumeration.
constexpr std::array<DTypeRow, 15> kDTypes = {{
    {DType::kBool, "BOOL", 1},
    {DType::kU8, "U8", 1},
    {DType::kI8, "I8", 1},
    {DType::kF8E4M3, "F8_E4M3", 1},
    {DType::kF8E5M2, "F8_E5M2", 1},
    {DType::kI16, "I16", 2},
    {DType::kU16, "U16", 2},
    {DType::kF16, "F16", 2},
    {DType::kBf16, "BF16", 2},
    {DType::kI32, "I32", 4},
    {DType::kU32, "U32", 4},
    {DType::kF32, "F32", 4},
    {DType::kI64, "I64", 8},
    {DType::kU64, "U64", 8},
    {DType::kF64, "F64", 8},
}};

std::optional<DType> FindDType(std::string_view name) {
  for (const DTypeRow& row : kDTypes) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

// Follows the header value by value, without a tree of it: a header of 100 MB
// of small numbers would need gigabytes as a tree.
class HeaderHandler : public nlohmann::json_sax<json> {
 public:
  TensorEntries TakeEntries() { return std::move(entries_); }
  const std::string& reason() const { return reason_; }

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override {
    return Unexpected("a negative number");
  }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is not a whole one below 2^64");
  }
  bool number_unsigned(number_unsigned_t value) override;
  bool string(string_t& value) override;
  bool binary(binary_t&) override { return Unexpected("binary data"); }
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(string_t& name) override;
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(
        absl::StrCat("the header is not JSON: error at byte ", position));
  }

 private:
  enum class Place { kStart, kTop, kTensor, kShape, kOffsets, kMetadata };

  bool Fail(std::string reason) {
    reason_ = std::move(reason);
    return false;
  }
  bool Unexpected(std::string_view what) {
    return Fail(absl::StrCat(Where(), " holds ", ToAbsl(what)));
  }
  std::string Where() const;
  bool FinishTensor();

  Place place_ = Place::kStart;
  std::string name_;   // of the tensor
  std::string field_;  // of the tensor, whose value comes next
  TensorEntry* entry_ = nullptr;
  std::set<std::string> fields_;    // of the tensor, seen so far
  std::set<std::string> metadata_;  // keys
  std::vector<uint64_t> offsets_;
  TensorEntries entries_;
  std::string reason_;
};

std::string HeaderHandler::Where() const {
  switch (place_) {
    case Place::kStart:
    case Place::kTop:
      return name_.empty() ? "the header"
                           : absl::StrCat("tensor ", Quoted(name_));
    case Place::kMetadata:
      return "__metadata__";
    default:
      return absl::StrCat("tensor ", Quoted(name_), ": ", Quoted(field_));
  }
}

bool HeaderHandler::number_unsigned(number_unsigned_t value) {
  if (place_ == Place::kOffsets) {
    if (offsets_.size() == 2) return Unexpected("more than two numbers");
    offsets_.push_back(value);
    return true;
  }
  if (place_ != Place::kShape) return Unexpected("a number");
  if (value > std::numeric_limits<int64_t>::max()) {
    return Unexpected(absl::StrCat("the dimension ", value));
  }
  if (entry_->shape.size() == kMaxTensorRank) {
    return Unexpected(
        absl::StrCat("more than ", kMaxTensorRank, " dimensions"));
  }
  entry_->shape.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderHandler::string(string_t& value) {
  if (place_ == Place::kMetadata) return true;
  if (place_ != Place::kTensor || field_ != "dtype") {
    return Unexpected("a string");
  }
  const std::optional<DType> dtype = FindDType(value);
  if (!dtype) {
    return Fail(absl::StrCat("tensor ", Quoted(name_),
                             " has the unknown dtype ", Quoted(value)));
  }
  entry_->dtype = *dtype;
  return true;
}

bool HeaderHandler::start_object(size_t) {
  if (place_ == Place::kStart) {
    place_ = Place::kTop;
    return true;
  }
  if (place_ != Place::kTop) return Unexpected("an object");
  if (name_ == "__metadata__") {
    place_ = Place::kMetadata;
    return true;
  }
  place_ = Place::kTensor;
  fields_.clear();
  offsets_.clear();
  return true;
}

bool HeaderHandler::end_object() {
  const bool tensor = place_ == Place::kTensor;
  place_ = Place::kTop;
  return !tensor || FinishTensor();
}

bool HeaderHandler::start_array(size_t) {
  if (place_ != Place::kTensor) return Unexpected("an array");
  if (field_ == "shape") {
    place_ = Place::kShape;
  } else if (field_ == "data_offsets") {
    place_ = Place::kOffsets;
  } else {
    return Unexpected("an array");
  }
  return true;
}

bool HeaderHandler::end_array() {
  if (place_ == Place::kOffsets && offsets_.size() != 2) {
    return Unexpected("fewer than two numbers");
  }
  place_ = Place::kTensor;
  return true;
}

bool HeaderHandler::key(string_t& name) {
  if (place_ == Place::kMetadata) {
    if (metadata_.insert(name).second) return true;
    return Fail(
        absl::StrCat("__metadata__ has the key ", Quoted(name), " twice"));
  }
  if (place_ == Place::kTop) {
    name_ = name;
    const auto [it, inserted] = entries_.try_emplace(name);
    if (!inserted) {
      return Fail(absl::StrCat("tensor ", Quoted(name), " is listed twice"));
    }
    entry_ = &it->second;
    return true;
  }
  field_ = name;
  if (name != "dtype" && name != "shape" && name != "data_offsets") {
    return Fail(absl::StrCat("tensor ", Quoted(name_),
                             " has the unknown field ", Quoted(name)));
  }
  if (fields_.insert(name).second) return true;
  return Fail(absl::StrCat("tensor ", Quoted(name_), " has the field ",
                           Quoted(name), " twice"));
}

bool HeaderHandler::FinishTensor() {
  const std::string tensor = absl::StrCat("tensor ", Quoted(name_));
  for (const char* field : {"dtype", "shape", "data_offsets"}) {
    if (!fields_.contains(field)) {
      return Fail(absl::StrCat(tensor, " has no '", field, "'"));
    }
  }
  int64_t elements = 1;
  bool overflow = false;
  for (const int64_t dimension : entry_->shape) {
    overflow |= __builtin_mul_overflow(elements, dimension, &elements);
  }
  int64_t bytes = 0;
  overflow |=
      __builtin_mul_overflow(elements, DTypeBytes(entry_->dtype), &bytes);
  if (overflow) {
    return Fail(absl::StrCat(tensor, ": the size of shape ",
                             ShapeText(entry_->shape), " overflows"));
  }
  entry_->elements = elements;
  entry_->begin = offsets_[0];
  entry_->end = offsets_[1];
  if (entry_->begin > entry_->end ||
      entry_->end - entry_->begin != static_cast<uint64_t>(bytes)) {
    return Fail(absl::StrCat(
        tensor, ": dtype ", ToAbsl(DTypeName(entry_->dtype)), " and shape ",
        ShapeText(entry_->shape), " need ", bytes, " bytes, data_offsets are [",
        offsets_[0], ", ", offsets_[1], "]"));
  }
  return true;
}

// The tensors must tile the data exactly.
absl::Status CheckCoverage(const TensorEntries& entries, uint64_t data_bytes) {
  std::vector<const TensorEntries::value_type*> order;
  order.reserve(entries.size());
  for (const auto& item : entries) order.push_back(&item);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) <
           std::pair(b->second.begin, b->second.end);
  });
  uint64_t covered = 0;
  for (const auto* item : order) {
    const auto& [name, entry] = *item;
    if (entry.end > data_bytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(name), " ends at byte ", entry.end,
          " of the data, which has only ", data_bytes, ": truncated"));
    }
    if (entry.begin != covered) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", Quoted(name), " begins at byte ", entry.begin,
          " of the data, ",
          entry.begin < covered ? "overlapping the tensor before it, which "
                                : "leaving a hole after the tensor before, "
                                  "which ",
          "ends at ", covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        data_bytes - covered, " trailing bytes after the last tensor's data"));
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view DTypeName(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].name;
}

int64_t DTypeBytes(DType dtype) {
  return kDTypes[static_cast<size_t>(dtype)].bytes;
}

absl::StatusOr<TensorEntries> ParseSafetensorsHeader(std::string_view text,
                                                     uint64_t data_bytes) {
  HeaderHandler handler;
  if (!json::sax_parse(text.begin(), text.end(), &handler)) {
    return absl::InvalidArgumentError(handler.reason());
  }
  TensorEntries entries = handler.TakeEntries();
  entries.erase("__metadata__");
  RETURN_IF_ERROR(CheckCoverage(entries, data_bytes));
  return entries;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

}  // namespace reprise
