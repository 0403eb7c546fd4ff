#include "engine/state/state_pool.h"

#include <sanitizer/asan_interface.h>
#include <sys/mman.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

constexpr int64_t kSlotAlignment = 64;

}  // namespace

StateSlot::~StateSlot() {
  if (data_ != nullptr) pool_->Release(data_);
}

StateSlot::StateSlot(StateSlot&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)),
      data_(std::exchange(other.data_, nullptr)) {}

StateSlot& StateSlot::operator=(StateSlot&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr) pool_->Release(data_);
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  return *this;
}

std::span<std::byte> StateSlot::bytes() const {
  if (data_ == nullptr) return {};
  return {data_, static_cast<size_t>(pool_->slot_bytes())};
}

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Create(
    int64_t slot_bytes, int64_t num_slots) {
  if (slot_bytes <= 0 || slot_bytes % kSlotAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot_bytes is ", slot_bytes,
                     ", must be a positive multiple of ", kSlotAlignment));
  }
  if (num_slots <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots is ", num_slots, ", must be positive"));
  }
  void* memory = MAP_FAILED;
  if (num_slots <= std::numeric_limits<int64_t>::max() / slot_bytes) {
    // mmap, not new: the memory starts at a page, a size beyond what the
    // machine has is an error instead of the end of the process, and large
    // pages save the recurrences most of their TLB misses.
    const size_t bytes = static_cast<size_t>(slot_bytes * num_slots);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (memory != MAP_FAILED) madvise(memory, bytes, MADV_HUGEPAGE);
  }
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", num_slots, " state slots of ", slot_bytes, " bytes"));
  }
  return std::unique_ptr<StatePool>(
      new StatePool(slot_bytes, num_slots, static_cast<std::byte*>(memory)));
}

StatePool::StatePool(int64_t slot_bytes, int64_t num_slots, std::byte* memory)
    : slot_bytes_(slot_bytes), num_slots_(num_slots), memory_(memory) {
  MutexLock lock(mu_);
  free_.reserve(num_slots);
  // Taken from the back, so the first slot is the first to be used.
  for (int64_t i = num_slots - 1; i >= 0; --i) {
    free_.push_back(memory + i * slot_bytes);
  }
  // With AddressSanitizer, use of a slot that nobody holds ends the process.
  ASAN_POISON_MEMORY_REGION(memory, slot_bytes * num_slots);
}

StatePool::~StatePool() {
  CHECK(num_free() == num_slots_);
  const size_t bytes = static_cast<size_t>(slot_bytes_ * num_slots_);
  ASAN_UNPOISON_MEMORY_REGION(memory_, bytes);
  munmap(memory_, bytes);
}

absl::StatusOr<StateSlot> StatePool::Acquire() {
  std::byte* data = nullptr;
  {
    MutexLock lock(mu_);
    if (free_.empty()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("all ", num_slots_, " state slots are in use"));
    }
    data = free_.back();
    free_.pop_back();
  }
  ASAN_UNPOISON_MEMORY_REGION(data, slot_bytes_);
  std::memset(data, 0, static_cast<size_t>(slot_bytes_));
  return StateSlot(this, data);
}

void StatePool::Release(std::byte* data) {
  ASAN_POISON_MEMORY_REGION(data, slot_bytes_);
  MutexLock lock(mu_);
  CHECK(free_.size() < static_cast<size_t>(num_slots_));
  free_.push_back(data);
}

int64_t StatePool::num_free() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(free_.size());
}

}  // namespace reprise
