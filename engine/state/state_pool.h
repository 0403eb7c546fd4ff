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

// Thread-safe. Must outlive its slots. All memory is allocated at creation and
// aligned to 64 bytes.
class StatePool {
 public:
  // InvalidArgument if a size is not positive or `slot_bytes` is no multiple
  // of 64; ResourceExhausted if the memory is not to be had.
  static absl::StatusOr<std::unique_ptr<StatePool>> Create(int64_t slot_bytes,
                                                           int64_t num_slots);
  ~StatePool();

  // A slot filled with zeros, so that nothing of another session can show
  // through: zeros are a new session. ResourceExhausted if none is free.
  absl::StatusOr<StateSlot> Acquire();

  int64_t slot_bytes() const { return slot_bytes_; }
  int64_t num_slots() const { return num_slots_; }
  int64_t num_free() const;

 private:
  friend class StateSlot;
  StatePool(int64_t slot_bytes, int64_t num_slots, std::byte* memory);
  void Release(std::byte* data);

  const int64_t slot_bytes_;
  const int64_t num_slots_;
  std::byte* const memory_;  // num_slots * slot_bytes, owned
  mutable Mutex mu_;
  std::vector<std::byte*> free_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_POOL_H_
