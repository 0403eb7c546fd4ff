#include "engine/state/state_layout.h"

#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

// A cache line, and the widest vector register.
constexpr int64_t kFieldAlignment = 64;

// FNV-1a, 64 bits: stable for ever, since snapshots carry its results, and
// good enough to tell layouts apart that nobody made to collide.
uint64_t Fnv1a(std::string_view bytes) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

int64_t StateLayout::Add(std::string_view name, std::vector<int64_t> shape) {
  for (const StateField& field : fields_) CHECK(field.name != name);
  // Far beyond any machine's memory, and far from overflow below.
  constexpr int64_t kMaxElements = int64_t{1} << 48;
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    CHECK(dimension > 0);
    CHECK(elements <= kMaxElements / dimension);
    elements *= dimension;
  }
  StateField field;
  field.name = std::string(name);
  field.shape = std::move(shape);
  field.offset = slot_bytes_;
  field.elements = elements;
  const int64_t bytes = elements * static_cast<int64_t>(sizeof(float));
  payload_bytes_ += bytes;
  slot_bytes_ +=
      (bytes + kFieldAlignment - 1) / kFieldAlignment * kFieldAlignment;
  fields_.push_back(std::move(field));
  return fields_.back().offset;
}

uint64_t StateLayout::fingerprint() const {
  ByteWriter description;
  for (const StateField& field : fields_) {
    description.PutSized(field.name);
    description.Put(static_cast<uint32_t>(field.shape.size()));
    for (const int64_t dimension : field.shape) description.Put(dimension);
  }
  return Fnv1a(description.data());
}

}  // namespace reprise
