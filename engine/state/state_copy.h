// Copies of what a session's state is made of, and of nothing else: of a field
// that grows, only the rows in use.
#ifndef ENGINE_STATE_STATE_COPY_H_
#define ENGINE_STATE_STATE_COPY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/state/state_layout.h"

namespace reprise {

// Makes the slot at `to` hold the state at `from`, which has consumed
// `position` tokens. `to` may have held any state of the same layout.
void CopyState(const StateLayout& layout, int64_t position,
               const std::byte* from, std::byte* to);

// The values of a field after `position` tokens, the rows of a window in the
// order of their tokens, oldest first.
std::vector<float> FieldValues(const StateField& field, int64_t position,
                               const std::byte* slot);

// A whole state outside a slot.
class StateImage {
 public:
  // That an image of a state after `position` tokens takes.
  static int64_t BytesOf(const StateLayout& layout, int64_t position);

  // Remembers the state in `slot`, in place of what was remembered before.
  void Save(const StateLayout& layout, int64_t position, const std::byte* slot);
  // Writes it to a zeroed slot of the same layout. CHECKs that it was saved.
  void Restore(const StateLayout& layout, std::byte* slot) const;

 private:
  int64_t position_ = 0;
  std::vector<std::byte> bytes_;  // of all fields, the rows in use
};

// Takes a slot back to where its session was some tokens ago. Fields that grow
// with the context are not copied: tokens only add rows to them. So a copy of a
// state of fixed size costs that size, and one of a KV cache costs nothing.
class StateUndo {
 public:
  // Remembers the state in `slot`, in place of what was remembered before.
  // Allocates at the first use only, unless a window has grown since.
  void Save(const StateLayout& layout, int64_t position, const std::byte* slot);

  // `slot` is the one that was saved, and in between it only consumed tokens.
  void Restore(const StateLayout& layout, std::byte* slot) const;

 private:
  int64_t position_ = 0;
  std::vector<std::byte> bytes_;  // of all fields but Growth::kContext
};

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_COPY_H_
