#include "server/plan_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "engine/kernels/state_kernels.h"

namespace reprise {
namespace {

struct Case {
  std::string name;
  std::vector<PlannableSequence> sequences;
  int64_t prefill_rows;
  int64_t max_rows;
  std::vector<std::pair<int64_t, int64_t>> want;  // sequence, rows
};

std::vector<std::pair<int64_t, int64_t>> Plan(
    const std::vector<PlannableSequence>& sequences, int64_t prefill_rows,
    int64_t max_rows) {
  std::vector<PlannedSegment> plan = {{.sequence = 99, .rows = 99}};
  PlanStep(sequences, prefill_rows, max_rows, plan);
  std::vector<std::pair<int64_t, int64_t>> result;
  for (const PlannedSegment& segment : plan) {
    result.emplace_back(segment.sequence, segment.rows);
  }
  return result;
}

constexpr PlannableSequence kDecode = {.prefill_tokens = 0};
constexpr PlannableSequence kPausedDecode = {.paused = true};
PlannableSequence Prefill(int64_t tokens) { return {.prefill_tokens = tokens}; }

class PlanStepTest : public testing::TestWithParam<Case> {};

TEST_P(PlanStepTest, Plans) {
  const Case& c = GetParam();
  EXPECT_EQ(Plan(c.sequences, c.prefill_rows, c.max_rows), c.want);
}

INSTANTIATE_TEST_SUITE_P(
    Table, PlanStepTest,
    testing::Values(
        Case{"NothingToDo", {}, 256, 512, {}},
        Case{"OneRowForEachDecode",
             {kDecode, kDecode},
             256,
             512,
             {{0, 1}, {1, 1}}},
        Case{"PausedIsLeftOut",
             {kDecode, kPausedDecode, kDecode},
             256,
             512,
             {{0, 1}, {2, 1}}},
        Case{"AllPaused", {kPausedDecode, kPausedDecode}, 256, 512, {}},
        Case{"DecodeComesBeforePrefill",
             {Prefill(10), kDecode},
             256,
             512,
             {{1, 1}, {0, 10}}},
        Case{"ShortPromptInOnePiece", {Prefill(63)}, 64, 512, {{0, 63}}},
        Case{"PartialLastTileGoesAlong", {Prefill(100)}, 128, 512, {{0, 100}}},
        Case{"LongPromptInWholeTiles", {Prefill(1000)}, 256, 512, {{0, 256}}},
        Case{"BudgetIsRoundedDownToTiles",
             {Prefill(1000)},
             200,
             512,
             {{0, 192}}},
        Case{
            "OneTileHoweverSmallTheBudget", {Prefill(1000)}, 1, 512, {{0, 64}}},
        Case{"FirstComeFirstServed",
             {Prefill(1000), Prefill(10)},
             128,
             512,
             {{0, 128}}},
        Case{"WhatIsLeftGoesToTheNext",
             {Prefill(70), Prefill(1000)},
             256,
             512,
             {{0, 70}, {1, 128}}},
        Case{"ATileThatDoesNotFitIsNotCut",
             {Prefill(100), Prefill(1000), Prefill(20)},
             128,
             512,
             {{0, 100}, {2, 20}}},
        Case{"DecodeRowsAreNotOfTheBudget",
             {kDecode, kDecode, Prefill(1000)},
             64,
             512,
             {{0, 1}, {1, 1}, {2, 64}}},
        Case{"AllRowsTogetherStayBelowTheLimit",
             {kDecode, Prefill(1000), kDecode},
             512,
             512,
             {{0, 1}, {2, 1}, {1, 448}}},
        Case{"NoRoomForATile",
             {kDecode, kDecode, Prefill(1000)},
             64,
             65,
             {{0, 1}, {1, 1}}},
        Case{"NoMoreDecodeRowsThanFit",
             {kDecode, kDecode, kDecode},
             64,
             2,
             {{0, 1}, {1, 1}}}),
    [](const auto& info) { return info.param.name; });

// Whatever the budgets and mates, a prompt is cut at multiples of kTileRows
// only, and every decoding sequence gets its row.
TEST(PlanStepPropertyTest, CutsAtTilesOnlyAndStarvesNobody) {
  std::mt19937 random(1);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<PlannableSequence> sequences(1 + below(40));
    for (PlannableSequence& sequence : sequences) {
      sequence = {.prefill_tokens = below(2) ? below(700) : 0,
                  .paused = below(4) == 0};
    }
    const int64_t prefill_rows = 1 + below(512);
    const int64_t max_rows = 128 + below(400);
    int64_t rows = 0, prefill = 0, decoding = 0, decode_rows = 0;
    bool wants_prefill = false;
    for (const PlannableSequence& sequence : sequences) {
      if (sequence.paused) continue;
      decoding += sequence.prefill_tokens == 0;
      wants_prefill |= sequence.prefill_tokens > 0;
    }
    for (auto [index, count] : Plan(sequences, prefill_rows, max_rows)) {
      const PlannableSequence& sequence = sequences[index];
      EXPECT_FALSE(sequence.paused);
      rows += count;
      if (sequence.prefill_tokens == 0) {
        EXPECT_EQ(count, 1);
        ++decode_rows;
        continue;
      }
      prefill += count;
      EXPECT_GE(count, 1);
      EXPECT_TRUE(count == sequence.prefill_tokens || count % kTileRows == 0);
    }
    EXPECT_LE(rows, max_rows);
    EXPECT_LE(prefill, std::max(prefill_rows, kTileRows));
    EXPECT_EQ(decode_rows, decoding);
    EXPECT_EQ(prefill > 0, wants_prefill);
  }
}

}  // namespace
}  // namespace reprise
