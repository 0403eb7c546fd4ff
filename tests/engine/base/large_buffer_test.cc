#include "engine/base/large_buffer.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace reprise {
namespace {

constexpr size_t kMib = size_t{1} << 20;

// Resident memory of this process that no file backs.
size_t AnonymousBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    size_t kib = 0;
    if (word == "RssAnon:" && status >> kib) return kib * 1024;
  }
  ADD_FAILURE() << "no RssAnon";
  return 0;
}

TEST(LargeBufferTest, IsAlignedWhateverItsSize) {
  for (const size_t bytes : {size_t{1}, size_t{100}, 4 * kMib - 1, 4 * kMib,
                             4 * kMib + 1, 7 * kMib + 5}) {
    const LargeBuffer buffer(bytes);
    EXPECT_EQ(buffer.size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u) << bytes;
    std::memset(buffer.data(), 0x5a, bytes);
    EXPECT_EQ(buffer.data()[bytes - 1], std::byte{0x5a});
  }
}

TEST(LargeBufferTest, OfNoBytesIsEmpty) {
  EXPECT_EQ(LargeBuffer().data(), nullptr);
  EXPECT_EQ(LargeBuffer(0).data(), nullptr);
}

TEST(LargeBufferTest, StaysWhereItIsWhenItMoves) {
  LargeBuffer first(5 * kMib);
  std::byte* const data = first.data();
  data[0] = std::byte{7};
  LargeBuffer second(std::move(first));
  EXPECT_EQ(second.data(), data);
  LargeBuffer third(10);
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 5 * kMib);
  EXPECT_EQ(third.data()[0], std::byte{7});
}

TEST(LargeBufferTest, GivesItsMemoryBack) {
  const size_t before = AnonymousBytes();
  {
    const LargeBuffer buffer(64 * kMib);
    std::memset(buffer.data(), 1, buffer.size());
    EXPECT_GE(AnonymousBytes(), before + 60 * kMib);
  }
  EXPECT_LE(AnonymousBytes(), before + 4 * kMib);
}

// So that they have huge pages in common.
TEST(LargeBufferTest, SmallerOnesLieTogether) {
  std::vector<LargeBuffer> buffers;
  for (int i = 0; i < 8; ++i) {
    buffers.emplace_back(kMib + 1);
    std::memset(buffers.back().data(), i, buffers.back().size());
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    EXPECT_EQ(buffers[i].data()[kMib], std::byte(i));
    if (i == 0) continue;
    EXPECT_EQ(buffers[i].data() - buffers[i - 1].data(),
              static_cast<std::ptrdiff_t>(kMib + 64));
  }
  LargeBuffer first = std::move(buffers.front());
  buffers.clear();
  EXPECT_EQ(first.data()[kMib], std::byte{0});
}

TEST(LargeBufferTest, SmallerOnesGiveTheirMemoryBackTogether) {
  const size_t before = AnonymousBytes();
  {
    std::vector<LargeBuffer> buffers;
    for (int i = 0; i < 100; ++i) {  // several arenas
      buffers.emplace_back(kMib);
      std::memset(buffers.back().data(), 1, kMib);
    }
    EXPECT_GE(AnonymousBytes(), before + 95 * kMib);
  }
  EXPECT_LE(AnonymousBytes(), before + 4 * kMib);
}

TEST(LargeBufferTest, ThrowsWhenThereIsNoSuchMemory) {
  for (const size_t bytes :
       {size_t{1} << 60, std::numeric_limits<size_t>::max()}) {
    EXPECT_THROW(LargeBuffer buffer(bytes), std::bad_alloc);
  }
}

}  // namespace
}  // namespace reprise
