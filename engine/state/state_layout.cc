#include "engine/state/state_layout.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

// A cache line, and the widest vector register.
constexpr int64_t kFieldAlignment = 64;

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int64_t PageBytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

int64_t BytesOf(int64_t elements) {
  return elements * static_cast<int64_t>(sizeof(float));
}

absl::Status TooLarge(std::string_view field,
                      const std::vector<int64_t>& shape) {
  return absl::InvalidArgumentError(absl::StrCat(
      "the config makes the state of a session too large: field '",
      ToAbsl(field), "' of shape [", absl::StrJoin(shape, ", "),
      "] takes it above ", StateLayout::kMaxSlotBytes, " bytes, the limit"));
}

}  // namespace

std::vector<int64_t> StateField::ShapeInUse(int64_t position) const {
  std::vector<int64_t> result = shape;
  if (growth != Growth::kNone) {
    result[0] = std::clamp<int64_t>(position, 0, shape[0]);
  }
  return result;
}

int64_t StateField::ElementsInUse(int64_t position) const {
  if (growth == Growth::kNone) return elements;
  return elements / shape[0] * std::clamp<int64_t>(position, 0, shape[0]);
}

StateLayout::StateLayout(int64_t max_context) : max_context_(max_context) {
  CHECK(max_context >= 1);
}

int64_t StateLayout::Add(std::string_view name, std::vector<int64_t> shape) {
  return Append(name, std::move(shape), Growth::kNone);
}

int64_t StateLayout::AddContext(std::string_view name,
                                std::vector<int64_t> row_shape) {
  row_shape.insert(row_shape.begin(), max_context_);
  return Append(name, std::move(row_shape), Growth::kContext);
}

int64_t StateLayout::AddWindow(std::string_view name, int64_t window,
                               std::vector<int64_t> row_shape) {
  row_shape.insert(row_shape.begin(), window);
  return Append(name, std::move(row_shape), Growth::kWindow);
}

int64_t StateLayout::Append(std::string_view name, std::vector<int64_t> shape,
                            Growth growth) {
  for (const StateField& field : fields_) CHECK(field.name != name);
  const int64_t most = kMaxSlotBytes / BytesOf(1);
  int64_t elements = 1;  // above `most` if they are too many
  for (const int64_t dimension : shape) {
    CHECK(dimension > 0);
    elements = elements > most / dimension ? most + 1 : elements * dimension;
  }
  const bool grows = growth != Growth::kNone;
  const int64_t alignment = grows ? PageBytes() : kFieldAlignment;
  const int64_t end =
      RoundUp(end_, alignment) + RoundUp(BytesOf(elements), alignment);
  if (end > kMaxSlotBytes) {
    if (status_.ok()) status_ = TooLarge(name, shape);
    return 0;
  }
  StateField field;
  field.name = std::string(name);
  field.offset = RoundUp(end_, alignment);
  field.elements = elements;
  field.growth = growth;
  end_ = end;
  if (growth == Growth::kContext) {
    bytes_per_token_ += BytesOf(elements / shape[0]);
  } else {
    payload_bytes_ += BytesOf(elements);
  }
  if (grows) {
    const int64_t bytes = end_ - field.offset;
    if (!growing_.empty() &&
        growing_.back().offset + growing_.back().bytes == field.offset) {
      growing_.back().bytes += bytes;
    } else {
      growing_.push_back({field.offset, bytes});
    }
  }
  field.shape = std::move(shape);
  fields_.push_back(std::move(field));
  return fields_.back().offset;
}

std::optional<int64_t> StateLayout::max_context() const {
  if (bytes_per_token_ == 0) return std::nullopt;
  return max_context_;
}

int64_t StateLayout::slot_bytes() const {
  return growing_.empty() ? end_ : RoundUp(end_, PageBytes());
}

int64_t StateLayout::PayloadBytesAt(int64_t position) const {
  int64_t bytes = 0;
  for (const StateField& field : fields_) {
    bytes += BytesOf(field.ElementsInUse(position));
  }
  return bytes;
}

uint64_t StateLayout::fingerprint() const {
  ByteWriter description;
  for (const StateField& field : fields_) {
    description.PutSized(field.name);
    description.Put(static_cast<uint32_t>(field.shape.size()));
    // No dimension is 0 or negative, so these stand for growth.
    std::vector<int64_t> shape = field.shape;
    if (field.growth == Growth::kContext) shape[0] = 0;
    if (field.growth == Growth::kWindow) shape[0] = -shape[0];
    for (const int64_t dimension : shape) description.Put(dimension);
  }
  return Fnv1a(description.data());
}

}  // namespace reprise
