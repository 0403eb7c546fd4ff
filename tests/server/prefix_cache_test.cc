#include "server/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <random>

#include "engine/kernels/state_kernels.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kTile = kTileRows;
constexpr int64_t kMany = 1 << 20;

using Tokens = std::vector<int32_t>;

Tokens Prompt(int64_t tokens, int32_t first = 1) {
  Tokens prompt(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    prompt[i] = first + static_cast<int32_t>(i % 7);
  }
  return prompt;
}

// A prompt that begins as `a` does for `shared` tokens and differs then.
Tokens Branch(const Tokens& a, int64_t shared, int64_t tokens) {
  Tokens prompt(a.begin(), a.begin() + shared);
  prompt.resize(static_cast<size_t>(tokens), 99);
  return prompt;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  PrefixCacheTest() { layout_.Add("0.kv", {4}); }

  // A slot whose state is `value`.
  std::vector<std::byte> Slot(float value) const {
    std::vector<std::byte> slot(static_cast<size_t>(layout_.slot_bytes()));
    const std::vector<float> values(4, value);
    std::memcpy(slot.data() + layout_.fields()[0].offset, values.data(), 16);
    return slot;
  }
  void Put(const Tokens& prompt, int64_t tokens, float value,
           const std::string& tenant = "t") {
    cache_->Put(tenant, prompt, tokens, Slot(value).data());
  }
  // The state that Find has found.
  float Restored() const {
    std::vector<std::byte> slot = Slot(0);
    cache_->RestoreFound(slot.data());
    float value = 0;
    std::memcpy(&value, slot.data() + layout_.fields()[0].offset, 4);
    return value;
  }
  // Does what a turn does: finds, and puts where it is told to.
  PrefixFound Turn(const Tokens& prompt, float value,
                   const std::string& tenant = "t") {
    PrefixFound found = cache_->Find(tenant, prompt);
    for (const int64_t tokens : found.save) {
      Put(prompt, tokens, value + static_cast<float>(tokens), tenant);
    }
    return found;
  }

  StateLayout layout_;
  std::unique_ptr<PrefixCache> cache_ =
      std::make_unique<PrefixCache>(layout_, kMany);
};

TEST_F(PrefixCacheTest, TheSamePromptIsFoundAtItsLastTile) {
  const Tokens prompt = Prompt(3 * kTile + 5);
  const PrefixFound first = Turn(prompt, 0.5);
  EXPECT_EQ(first.tokens, 0);
  EXPECT_EQ(first.miss, PrefixMiss::kUnknown);
  EXPECT_THAT(first.save, ElementsAre(3 * kTile));
  const PrefixFound second = cache_->Find("t", prompt);
  EXPECT_EQ(second.tokens, 3 * kTile);
  EXPECT_THAT(second.save, IsEmpty());
  EXPECT_EQ(Restored(), 0.5 + 3 * kTile);
}

TEST_F(PrefixCacheTest, ALongerPromptGoesOnFromThere) {
  Turn(Prompt(2 * kTile + 1), 0);
  const PrefixFound found = Turn(Prompt(5 * kTile + 1), 0);
  EXPECT_EQ(found.tokens, 2 * kTile);
  EXPECT_THAT(found.save, ElementsAre(5 * kTile));
  EXPECT_EQ(cache_->Find("t", Prompt(5 * kTile + 1)).tokens, 5 * kTile);
}

TEST_F(PrefixCacheTest, OneTokenIsAlwaysLeftToRead) {
  Turn(Prompt(2 * kTile + 1), 0);
  EXPECT_EQ(cache_->Find("t", Prompt(2 * kTile + 1)).tokens, 2 * kTile);
  const PrefixFound found = cache_->Find("t", Prompt(2 * kTile));
  EXPECT_EQ(found.tokens, 0);
  EXPECT_THAT(found.save, ElementsAre(kTile));
  for (const int64_t tokens : {int64_t{0}, int64_t{1}, kTile}) {
    const PrefixFound none = cache_->Find("t", Prompt(tokens));
    EXPECT_EQ(none.tokens, 0);
    EXPECT_EQ(none.miss, PrefixMiss::kShort);
    EXPECT_THAT(none.save, IsEmpty());
  }
}

TEST_F(PrefixCacheTest, WhatPromptsHaveInCommonIsFoundTheThirdTime) {
  const Tokens a = Prompt(6 * kTile + 3);
  Turn(a, 0);
  const Tokens b = Branch(a, 4 * kTile + 30, 9 * kTile);
  const PrefixFound second = Turn(b, 0);
  EXPECT_EQ(second.tokens, 0);
  EXPECT_EQ(second.miss, PrefixMiss::kNotKept);
  EXPECT_THAT(second.save, ElementsAre(4 * kTile, 8 * kTile));
  const PrefixFound third = Turn(Branch(a, 4 * kTile + 50, 5 * kTile + 1), 0);
  EXPECT_EQ(third.tokens, 4 * kTile);
  EXPECT_THAT(third.save, ElementsAre(5 * kTile));
}

TEST_F(PrefixCacheTest, ADifferenceInAnyTokenIsAMiss) {
  const Tokens prompt = Prompt(2 * kTile + 1);
  Turn(prompt, 0);
  for (int64_t i = 0; i < 2 * kTile; ++i) {
    Tokens other = prompt;
    ++other[i];
    EXPECT_EQ(cache_->Find("t", other).tokens, 0) << i;
  }
}

TEST_F(PrefixCacheTest, TenantsFindNothingOfEachOthers) {
  const Tokens prompt = Prompt(2 * kTile + 1);
  Turn(prompt, 0.25, "a");
  const PrefixFound found = Turn(prompt, 0.75, "b");
  EXPECT_EQ(found.tokens, 0);
  EXPECT_EQ(found.miss, PrefixMiss::kUnknown);
  EXPECT_EQ(cache_->Find("a", prompt).tokens, 2 * kTile);
  EXPECT_EQ(Restored(), 0.25 + 2 * kTile);
  EXPECT_EQ(cache_->Find("b", prompt).tokens, 2 * kTile);
  EXPECT_EQ(Restored(), 0.75 + 2 * kTile);
  EXPECT_EQ(cache_->Find("", prompt).tokens, 0);
}

TEST_F(PrefixCacheTest, TheLeastRecentlyUsedGoFirstAndTheBudgetHolds) {
  Turn(Prompt(kTile + 1, 100), 0);
  const int64_t one = cache_->bytes();
  EXPECT_GT(one, kTile * 4 + 16);
  cache_ = std::make_unique<PrefixCache>(layout_, 3 * one);
  for (const int32_t first : {100, 200, 300}) {
    Turn(Prompt(kTile + 1, first), 0);
  }
  EXPECT_EQ(cache_->bytes(), 3 * one);
  EXPECT_EQ(cache_->Find("t", Prompt(kTile + 1, 100)).tokens, kTile);
  Turn(Prompt(kTile + 1, 400), 0);
  EXPECT_EQ(cache_->bytes(), 3 * one);
  EXPECT_EQ(cache_->Find("t", Prompt(kTile + 1, 100)).tokens, kTile);
  const PrefixFound gone = cache_->Find("t", Prompt(kTile + 1, 200));
  EXPECT_EQ(gone.tokens, 0);
  EXPECT_EQ(gone.miss, PrefixMiss::kNotKept);
  // What alone is too large throws nothing else out.
  Turn(Prompt(40 * kTile + 1, 500), 0);
  EXPECT_EQ(cache_->bytes(), 3 * one);
  EXPECT_EQ(cache_->Find("t", Prompt(kTile + 1, 400)).tokens, kTile);
}

TEST_F(PrefixCacheTest, TheSameStateIsKeptOnce) {
  const Tokens prompt = Prompt(kTile + 1);
  Put(prompt, kTile, 1);
  const int64_t bytes = cache_->bytes();
  Put(Branch(prompt, kTile, kTile + 9), kTile, 2);
  EXPECT_EQ(cache_->bytes(), bytes);
  cache_->Find("t", prompt);
  EXPECT_EQ(Restored(), 1);
}

TEST_F(PrefixCacheTest, WithoutABudgetItIsOff) {
  PrefixCache off(layout_, 0);
  EXPECT_FALSE(off.enabled());
  EXPECT_TRUE(cache_->enabled());
  off.Put("t", Prompt(kTile + 1), kTile, Slot(1).data());
  EXPECT_EQ(off.bytes(), 0);
}

// Against a map of all that was put and has room.
TEST_F(PrefixCacheTest, RandomPromptsFindTheLongestStateThatBeginsThem) {
  std::mt19937 random(3);
  std::map<Tokens, float> put;
  for (int i = 0; i < 600; ++i) {
    // Few tokens, so that many begin alike.
    Tokens prompt;
    const int64_t tiles = 1 + random() % 4;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const auto token = static_cast<int32_t>(random() % 2);
      prompt.insert(prompt.end(), kTile, token);
    }
    prompt.resize(prompt.size() - random() % 5, 0);
    const PrefixFound found = cache_->Find("t", prompt);
    int64_t longest = 0;
    for (const auto& [tokens, value] : put) {
      const auto size = static_cast<int64_t>(tokens.size());
      if (size < static_cast<int64_t>(prompt.size()) && size > longest &&
          std::equal(tokens.begin(), tokens.end(), prompt.begin())) {
        longest = size;
      }
    }
    ASSERT_EQ(found.tokens, longest);
    const Tokens beginning(prompt.begin(), prompt.begin() + longest);
    if (longest > 0) {
      ASSERT_EQ(Restored(), put.at(beginning));
    }
    for (const int64_t tokens : found.save) {
      const Tokens saved(prompt.begin(), prompt.begin() + tokens);
      const auto value = static_cast<float>(i);
      Put(prompt, tokens, value);
      put.emplace(saved, value);
    }
  }
}

}  // namespace
}  // namespace reprise
