// A fixed number of slots, each the memory one resident state lives in.
#ifndef ENGINE_STATE_STATE_POOL_H_
#define ENGINE_STATE_STATE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "engine/state/state_layout.h"

namespace reprise {

class StatePool;

// Owns one slot and gives it back when destroyed. Movable; used by one thread
// at a time. An empty one (default, moved from) owns nothing.
class StateSlot {
 public:
  StateSlot() = default;
  ~StateSlot();
  StateSlot(StateSlot&& other) noexcept;
  StateSlot& operator=(StateSlot&& other) noexcept;

  std::byte* data() const { return data_; }
  std::span<std::byte> bytes() const;
  explicit operator bool() const { return data_ != nullptr; }

 private:
  friend class StatePool;
  StateSlot(StatePool* pool, std::byte* data) : pool_(pool), data_(data) {}
  StatePool* pool_ = nullptr;
  std::byte* data_ = nullptr;
};

// Thread-safe. Must outlive its slots. Slots are aligned to 64 bytes, and to a
// page where a layout has growing fields. All address space is reserved at
// creation; pages of growing fields get memory when they are first written to
// and give it back with their slot.
class StatePool {
 public:
  // InvalidArgument if a size is not positive or `slot_bytes` is no multiple
  // of 64; ResourceExhausted if the memory is not to be had.
  static absl::StatusOr<std::unique_ptr<StatePool>> Create(int64_t slot_bytes,
                                                           int64_t num_slots);
  // Slots for states of `layout`, growing fields and all; the same errors.
  static absl::StatusOr<std::unique_ptr<StatePool>> Create(
      const StateLayout& layout, int64_t num_slots);
  ~StatePool();

  // A slot filled with zeros, so that nothing of another session can show
  // through: zeros are a new session. ResourceExhausted if none is free.
  absl::StatusOr<StateSlot> Acquire();

  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t num_slots() const { return num_slots_; }
  int64_t num_free() const;

 private:
  friend class StateSlot;
  static absl::StatusOr<std::unique_ptr<StatePool>> Reserve(
      int64_t slot_bytes, int64_t num_slots, std::vector<ByteRange> growing);
  StatePool(int64_t slot_bytes, int64_t num_slots,
            std::vector<ByteRange> growing, std::byte* memory);
  void Release(std::byte* data);

  const int64_t slot_bytes_;
  const int64_t num_slots_;
  const std::vector<ByteRange> growing_;  // of every slot
  const std::vector<ByteRange> fixed_;    // of every slot, all the others
  std::byte* const memory_;               // num_slots * slot_bytes, owned
  mutable Mutex mu_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_POOL_H_
