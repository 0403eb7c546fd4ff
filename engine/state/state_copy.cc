#include "engine/state/state_copy.h"

#include <algorithm>
#include <cstring>

#include "engine/base/log.h"

namespace reprise {
namespace {

size_t BytesInUse(const StateField& field, int64_t position) {
  return static_cast<size_t>(field.ElementsInUse(position)) * sizeof(float);
}

}  // namespace

void CopyState(const StateLayout& layout, int64_t position,
               const std::byte* from, std::byte* to) {
  for (const StateField& field : layout.fields()) {
    std::memcpy(to + field.offset, from + field.offset,
                BytesInUse(field, position));
  }
}

std::vector<float> FieldValues(const StateField& field, int64_t position,
                               const std::byte* slot) {
  std::vector<float> values(static_cast<size_t>(field.ElementsInUse(position)));
  if (values.empty()) return values;
  std::memcpy(values.data(), slot + field.offset,
              values.size() * sizeof(float));
  if (field.growth == Growth::kWindow && position > field.shape[0]) {
    const int64_t oldest = position % field.shape[0];
    const int64_t row = field.elements / field.shape[0];
    std::rotate(values.begin(), values.begin() + oldest * row, values.end());
  }
  return values;
}

int64_t StateImage::BytesOf(const StateLayout& layout, int64_t position) {
  int64_t bytes = 0;
  for (const StateField& field : layout.fields()) {
    bytes += static_cast<int64_t>(BytesInUse(field, position));
  }
  return bytes;
}

void StateImage::Save(const StateLayout& layout, int64_t position,
                      const std::byte* slot) {
  position_ = position;
  bytes_.clear();
  bytes_.reserve(static_cast<size_t>(BytesOf(layout, position)));
  for (const StateField& field : layout.fields()) {
    const std::byte* first = slot + field.offset;
    bytes_.insert(bytes_.end(), first, first + BytesInUse(field, position));
  }
}

void StateImage::Restore(const StateLayout& layout, std::byte* slot) const {
  const std::byte* from = bytes_.data();
  for (const StateField& field : layout.fields()) {
    const size_t bytes = BytesInUse(field, position_);
    std::memcpy(slot + field.offset, from, bytes);
    from += bytes;
  }
  CHECK(from == bytes_.data() + bytes_.size());
}

void StateUndo::Save(const StateLayout& layout, int64_t position,
                     const std::byte* slot) {
  position_ = position;
  bytes_.clear();
  for (const StateField& field : layout.fields()) {
    if (field.growth == Growth::kContext) continue;
    const std::byte* first = slot + field.offset;
    bytes_.insert(bytes_.end(), first, first + BytesInUse(field, position));
  }
}

void StateUndo::Restore(const StateLayout& layout, std::byte* slot) const {
  const std::byte* from = bytes_.data();
  for (const StateField& field : layout.fields()) {
    if (field.growth == Growth::kContext) continue;
    const size_t bytes = BytesInUse(field, position_);
    std::memcpy(slot + field.offset, from, bytes);
    from += bytes;
  }
  CHECK(from == bytes_.data() + bytes_.size());
}

}  // namespace reprise
