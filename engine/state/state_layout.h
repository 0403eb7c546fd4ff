// Where each number of a session's state lies in its slot.
#ifndef ENGINE_STATE_STATE_LAYOUT_H_
#define ENGINE_STATE_STATE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace reprise {

// One named f32 tensor inside a slot.
struct StateField {
  std::string name;            // "LAYER.NAME", as in "3.recurrent"
  std::vector<int64_t> shape;  // row-major
  int64_t offset = 0;          // bytes from the start of the slot
  int64_t elements = 0;
};

// Built by the mixers while a model loads, immutable afterwards. Fields start
// at multiples of 64 bytes; the gaps between them stay zero.
class StateLayout {
 public:
  // Appends a field and returns its offset in bytes. CHECKs that the name is
  // new and that every dimension is positive.
  int64_t Add(std::string_view name, std::vector<int64_t> shape);

  const std::vector<StateField>& fields() const { return fields_; }
  // Size of a slot: a multiple of 64.
  int64_t slot_bytes() const { return slot_bytes_; }
  // Bytes of the fields alone, without gaps.
  int64_t payload_bytes() const { return payload_bytes_; }
  // Equal for equal names, shapes and order; differs otherwise.
  uint64_t fingerprint() const;

 private:
  std::vector<StateField> fields_;
  int64_t slot_bytes_ = 0;
  int64_t payload_bytes_ = 0;
};

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_LAYOUT_H_
