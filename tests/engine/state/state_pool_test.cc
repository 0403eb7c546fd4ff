#include "engine/state/state_pool.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <set>
#include <thread>
#include <utility>

#include "tests/support/resident_bytes.h"

namespace reprise {
namespace {

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte b) { return b == std::byte{0}; });
}

TEST(StatePoolTest, HandsOutEverySlotOnceAlignedAndZero) {
  auto pool = *StatePool::Create(/*slot_bytes=*/192, /*num_slots=*/5);
  EXPECT_EQ(pool->num_free(), 5);
  std::vector<StateSlot> slots;
  std::set<std::byte*> starts;
  for (int i = 0; i < 5; ++i) {
    slots.push_back(*pool->Acquire());
    EXPECT_EQ(slots.back().bytes().size(), 192u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slots.back().data()) % 64, 0u);
    EXPECT_TRUE(AllZero(slots.back().bytes()));
    std::memset(slots.back().data(), 0xab, 192);
    starts.insert(slots.back().data());
  }
  EXPECT_EQ(starts.size(), 5u);
  EXPECT_EQ(*starts.rbegin() - *starts.begin(), 4 * 192);
  EXPECT_EQ(pool->num_free(), 0);
  const absl::Status none = pool->Acquire().status();
  EXPECT_EQ(none.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(none.message().find("5"), absl::string_view::npos);
}

TEST(StatePoolTest, AUsedSlotComesBackZeroed) {
  auto pool = *StatePool::Create(64, 1);
  for (int i = 0; i < 3; ++i) {
    StateSlot slot = *pool->Acquire();
    EXPECT_TRUE(AllZero(slot.bytes()));
    std::memset(slot.data(), 0xff, 64);
  }
  EXPECT_EQ(pool->num_free(), 1);
}

TEST(StatePoolTest, MovingASlotKeepsOneOwner) {
  auto pool = *StatePool::Create(64, 2);
  StateSlot a = *pool->Acquire();
  std::byte* data = a.data();
  StateSlot b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: what a moved-from slot is
  EXPECT_FALSE(a);
  EXPECT_TRUE(a.bytes().empty());
  EXPECT_EQ(pool->num_free(), 1);
  b = *pool->Acquire();  // gives its old slot back
  EXPECT_NE(b.data(), data);
  EXPECT_EQ(pool->num_free(), 1);
  StateSlot& self = b;
  b = std::move(self);
  EXPECT_TRUE(b);
  b = StateSlot();
  EXPECT_EQ(pool->num_free(), 2);
}

TEST(StatePoolTest, RefusesSizesThatCannotBe) {
  using enum absl::StatusCode;
  EXPECT_EQ(StatePool::Create(0, 1).status().code(), kInvalidArgument);
  EXPECT_EQ(StatePool::Create(-64, 1).status().code(), kInvalidArgument);
  EXPECT_EQ(StatePool::Create(100, 1).status().code(), kInvalidArgument);
  EXPECT_EQ(StatePool::Create(64, 0).status().code(), kInvalidArgument);
  EXPECT_EQ(StatePool::Create(64, -1).status().code(), kInvalidArgument);
  // More than the address space, and more than 64 bits.
  EXPECT_EQ(StatePool::Create(int64_t{1} << 40, 1 << 20).status().code(),
            kResourceExhausted);
  EXPECT_EQ(
      StatePool::Create(int64_t{1} << 40, std::numeric_limits<int64_t>::max())
          .status()
          .code(),
      kResourceExhausted);
}

TEST(StatePoolTest, ThreadsNeverShareASlot) {
  auto pool = *StatePool::Create(64, 3);
  std::vector<std::thread> threads;
  for (int t = 1; t <= 4; ++t) {
    threads.emplace_back([&pool, t] {
      for (int i = 0; i < 2000; ++i) {
        absl::StatusOr<StateSlot> slot = pool->Acquire();
        if (!slot.ok()) continue;
        ASSERT_TRUE(AllZero(slot->bytes()));
        std::memset(slot->data(), t, 64);
        ASSERT_EQ(slot->data()[63], std::byte(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool->num_free(), 3);
}

// A fixed field on both sides of 4 KB a token, for up to a million tokens.
StateLayout GrowingLayout() {
  StateLayout layout(/*max_context=*/1 << 20);
  layout.Add("0.kv", {100});
  layout.AddContext("1.k", {512});
  layout.AddContext("1.v", {512});
  layout.Add("2.kv", {100});
  return layout;
}

TEST(StatePoolTest, AGrowingSlotTakesAsMuchMemoryAsWasUsed) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer keeps four bytes of its own for each byte";
#endif
  const StateLayout layout = GrowingLayout();
  auto pool = *StatePool::Create(layout, /*num_slots=*/16);  // 64 GB
  const int64_t before = ResidentBytes();
  std::vector<StateSlot> slots;
  for (int i = 0; i < 16; ++i) slots.push_back(*pool->Acquire());
  // Pages of the fixed fields only; room for the test's own allocations.
  EXPECT_LT(ResidentBytes() - before, 1 << 20);
  const int64_t tokens = 1000;
  for (StateSlot& slot : slots) {
    for (const StateField& field : layout.fields()) {
      std::memset(slot.data() + field.offset, 1,
                  4 * static_cast<size_t>(field.ElementsInUse(tokens)));
    }
  }
  const int64_t payload = 16 * layout.PayloadBytesAt(tokens);
  int64_t room = 1 << 20;
#ifdef __SANITIZE_ADDRESS__
  room += payload / 8;  // it keeps a byte of its own for every eight
#endif
  EXPECT_GT(ResidentBytes() - before, payload);
  EXPECT_LT(ResidentBytes() - before, payload + room);
  slots.clear();  // gives the memory back, not only the slot
  EXPECT_LT(ResidentBytes() - before, room);
}

TEST(StatePoolTest, AUsedGrowingSlotComesBackZeroed) {
  const StateLayout layout = GrowingLayout();
  auto pool = *StatePool::Create(layout, 1);
  const std::vector<int64_t> rows = {0, 1, 700, (1 << 20) - 1};
  for (int i = 0; i < 3; ++i) {
    StateSlot slot = *pool->Acquire();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(slot.data()) %
                  static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)),
              0u);
    for (const StateField& field : layout.fields()) {
      const bool grows = field.growth != Growth::kNone;
      for (const int64_t row : grows ? rows : std::vector<int64_t>{0}) {
        std::byte* start = slot.data() + field.offset + row * 2048;
        const std::span<std::byte> bytes(start, grows ? 2048 : 400);
        EXPECT_TRUE(AllZero(bytes)) << field.name << " row " << row;
        std::memset(bytes.data(), 0xff, bytes.size());
      }
    }
  }
}

TEST(StatePoolDeathTest, ChecksThatNoSlotOutlivesThePool) {
  EXPECT_DEATH(
      {
        auto pool = *StatePool::Create(64, 1);
        StateSlot slot = *pool->Acquire();
        pool.reset();
      },
      "CHECK failed");
}

}  // namespace
}  // namespace reprise
