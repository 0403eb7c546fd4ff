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

// What `ranges`, ascending, leave of [0, bytes).
std::vector<ByteRange> Complement(const std::vector<ByteRange>& ranges,
                                  int64_t bytes) {
  std::vector<ByteRange> result;
  int64_t end = 0;
  for (const ByteRange& range : ranges) {
    if (range.offset > end) result.push_back({end, range.offset - end});
    end = range.offset + range.bytes;
  }
  if (bytes > end) result.push_back({end, bytes - end});
  return result;
}

// With AddressSanitizer, use of a slot that nobody holds ends the process. Of
// what grows, the first bytes stand for the rest: marking the address space
// would take an eighth of it as memory.
constexpr int64_t kMarkedBytes = 4096;

void Poison([[maybe_unused]] std::byte* data,
            const std::vector<ByteRange>& fixed,
            const std::vector<ByteRange>& growing) {
  for ([[maybe_unused]] const ByteRange& range : fixed) {
    ASAN_POISON_MEMORY_REGION(data + range.offset, range.bytes);
  }
  for ([[maybe_unused]] const ByteRange& range : growing) {
    ASAN_POISON_MEMORY_REGION(data + range.offset, kMarkedBytes);
  }
}

void Unpoison([[maybe_unused]] std::byte* data,
              const std::vector<ByteRange>& fixed,
              const std::vector<ByteRange>& growing) {
  for ([[maybe_unused]] const ByteRange& range : fixed) {
    ASAN_UNPOISON_MEMORY_REGION(data + range.offset, range.bytes);
  }
  for ([[maybe_unused]] const ByteRange& range : growing) {
    ASAN_UNPOISON_MEMORY_REGION(data + range.offset, kMarkedBytes);
  }
}

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
  return Reserve(slot_bytes, num_slots, /*growing=*/{});
}

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Create(
    const StateLayout& layout, int64_t num_slots) {
  return Reserve(layout.slot_bytes(), num_slots, layout.growing());
}

absl::StatusOr<std::unique_ptr<StatePool>> StatePool::Reserve(
    int64_t slot_bytes, int64_t num_slots, std::vector<ByteRange> growing) {
  if (slot_bytes <= 0 || slot_bytes % kSlotAlignment != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("slot_bytes is ", slot_bytes,
                     ", must be a positive multiple of ", kSlotAlignment));
  }
  if (num_slots <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("num_slots is ", num_slots, ", must be positive"));
  }
  const bool grows = !growing.empty();
  void* memory = MAP_FAILED;
  if (num_slots <= std::numeric_limits<int64_t>::max() / slot_bytes) {
    // mmap, not new: the memory starts at a page, a size beyond what the
    // machine has is an error instead of the end of the process, and large
    // pages save the recurrences most of their TLB misses. Where fields grow,
    // the size is only address space, and a large page would be 2 MB for the
    // first token of each of them.
    const size_t bytes = static_cast<size_t>(slot_bytes * num_slots);
    memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | (grows ? MAP_NORESERVE : 0),
                  /*fd=*/-1, /*offset=*/0);
    if (memory != MAP_FAILED) {
      madvise(memory, bytes, grows ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
    }
  }
  if (memory == MAP_FAILED) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for ", num_slots, " state slots of ", slot_bytes, " bytes"));
  }
  return std::unique_ptr<StatePool>(
      new StatePool(slot_bytes, num_slots, std::move(growing),
                    static_cast<std::byte*>(memory)));
}

StatePool::StatePool(int64_t slot_bytes, int64_t num_slots,
                     std::vector<ByteRange> growing, std::byte* memory)
    : slot_bytes_(slot_bytes),
      num_slots_(num_slots),
      growing_(std::move(growing)),
      fixed_(Complement(growing_, slot_bytes)),
      memory_(memory) {
  MutexLock lock(mu_);
  free_.reserve(num_slots);
  // Taken from the back, so the first slot is the first to be used.
  for (int64_t i = num_slots - 1; i >= 0; --i) {
    std::byte* data = memory + i * slot_bytes;
    free_.push_back(data);
    Poison(data, fixed_, growing_);
  }
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
  Unpoison(data, fixed_, growing_);
  for (const ByteRange& range : fixed_) {
    std::memset(data + range.offset, 0, static_cast<size_t>(range.bytes));
  }
  return StateSlot(this, data);
}

// Growing fields are cleared here, not in Acquire: pages that the system has
// taken back read as zeros, and a slot that nobody holds takes no memory.
void StatePool::Release(std::byte* data) {
  for (const ByteRange& range : growing_) {
    const int failed = madvise(data + range.offset,
                               static_cast<size_t>(range.bytes), MADV_DONTNEED);
    CHECK(failed == 0);
  }
  Poison(data, fixed_, growing_);
  MutexLock lock(mu_);
  CHECK(free_.size() < static_cast<size_t>(num_slots_));
  free_.push_back(data);
}

int64_t StatePool::num_free() const {
  MutexLock lock(mu_);
  return static_cast<int64_t>(free_.size());
}

}  // namespace reprise
