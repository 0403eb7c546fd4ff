#include "engine/mixer/scratch.h"

#include <gtest/gtest.h>

namespace reprise {
namespace {

TEST(ScratchTest, BuffersAreAsWideAsTheWidestUserAsked) {
  Scratch scratch;
  scratch.Reserve(2, 10);
  scratch.Reserve(0, 3);
  scratch.Reserve(2, 7);
  scratch.Allocate(64);
  const MatrixView<float> wide = scratch.Matrix(2, 64, 10);
  EXPECT_EQ(wide.rows, 64);
  EXPECT_EQ(wide.stride, 10);
  // The same numbers as fewer columns and more rows.
  EXPECT_EQ(scratch.Matrix(2, 128, 5).data, wide.data);
  EXPECT_NE(scratch.Matrix(0, 1, 3).data, wide.data);
}

TEST(ScratchTest, HasRoomForThePaddingOfEveryRowCount) {
  Scratch scratch;
  scratch.Reserve(0, 1);
  scratch.Allocate(100);
  EXPECT_NE(scratch.Matrix(0, 100, 1).data, nullptr);
}

TEST(ScratchTest, TheKeptMatrixIsNobodysBuffer) {
  Scratch scratch;
  scratch.Reserve(0, 8);
  scratch.ReserveKept(8);
  scratch.ReserveKept(4);
  scratch.Allocate(64);
  const MatrixView<float> kept = scratch.Kept(64, 8);
  kept.Row(63)[7] = 1;
  EXPECT_NE(scratch.Matrix(0, 64, 8).data, kept.data);
  EXPECT_EQ(scratch.Kept(64, 8).Row(63)[7], 1);
}

TEST(ScratchDeathTest, ChecksWhatWasReserved) {
  Scratch scratch;
  scratch.Reserve(1, 8);
  scratch.Allocate(64);
  EXPECT_DEATH(scratch.Matrix(2, 1, 1), "");
  EXPECT_DEATH(scratch.Matrix(0, 1, 1), "");
  EXPECT_DEATH(scratch.Matrix(1, 64, 9), "");
  EXPECT_DEATH(scratch.Matrix(1, 65, 8), "");
  EXPECT_DEATH(scratch.Kept(1, 1), "");
}

}  // namespace
}  // namespace reprise
