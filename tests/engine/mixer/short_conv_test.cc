#include "engine/mixer/short_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kChannels = 21;
constexpr int64_t kTaps = 4;

Floats Random(int64_t n, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  Floats values(static_cast<size_t>(n));
  for (float& value : values) value = normal(generator);
  return values;
}

class ShortConvolutionTest : public testing::Test {
 protected:
  absl::StatusOr<ShortConvolution> Make(int64_t channels, int64_t taps) {
    SafetensorsWriter writer;
    writer.AddF32("w", {kChannels, 1, kTaps}, weight_);
    writer.AddF32("b", {kChannels}, bias_);
    TempDir dir;
    auto checkpoint =
        Checkpoint::OpenFile(dir.Write("m.safetensors", writer.File()));
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.status();
    Scratch scratch;
    Weights weights(*checkpoint, WeightType::kF32, /*max_rows=*/64,
                    scratch.linear());
    return ShortConvolution::Create({.channels = channels,
                                     .taps = taps,
                                     .weight = {"w", "conv_size"},
                                     .bias = {"b", "conv_size"},
                                     .silu = true},
                                    "conv_q",
                                    {.layer = 3,
                                     .d_model = 8,
                                     .weights = weights,
                                     .layout = layout_,
                                     .scratch = scratch});
  }
  Floats NewSlot() const {
    return Floats(static_cast<size_t>(layout_.slot_bytes()) / 4);
  }

  const Floats weight_ = Random(kChannels * kTaps, 1);
  const Floats bias_ = Random(kChannels, 2);
  StateLayout layout_;
};

Segment SegmentOf(int64_t first_row, int64_t num_rows, Floats& slot) {
  return {.first_row = first_row,
          .num_rows = num_rows,
          .position = 0,
          .slot = reinterpret_cast<std::byte*>(slot.data())};
}

TEST_F(ShortConvolutionTest, ConvolvesEachSegmentWithItsOwnPast) {
  const auto conv = Make(kChannels, kTaps);
  ASSERT_TRUE(conv.ok()) << conv.status();
  ASSERT_EQ(layout_.fields().size(), 1);
  EXPECT_EQ(layout_.fields()[0].name, "3.conv_q");
  EXPECT_EQ(layout_.fields()[0].shape,
            (std::vector<int64_t>{kChannels, kTaps}));
  // Columns 5 to 26 of a matrix of 30, rows of two sessions.
  Floats a = NewSlot();
  Floats b = NewSlot();
  const Floats start = Random(9 * 30, 3);
  Floats x = start;
  const std::vector<Segment> segments = {SegmentOf(0, 2, a),
                                         SegmentOf(2, 7, b)};
  const MatrixView<float> columns(x.data() + 5, 9, kChannels, 30);
  conv->Apply(columns, segments, columns);
  for (const Segment& segment : segments) {
    for (int64_t row = 0; row < segment.num_rows; ++row) {
      for (int64_t c = 0; c < kChannels; ++c) {
        double sum = bias_[c];
        for (int64_t back = 0; back < kTaps && back <= row; ++back) {
          const int64_t from = segment.first_row + row - back;
          sum += static_cast<double>(weight_[c * kTaps + kTaps - 1 - back]) *
                 start[from * 30 + 5 + c];
        }
        // A few roundings of numbers below 10.
        EXPECT_NEAR(x[(segment.first_row + row) * 30 + 5 + c],
                    sum / (1 + std::exp(-sum)), 5e-6);
      }
    }
  }
  for (int64_t row = 0; row < 9; ++row) {
    EXPECT_EQ(x[row * 30 + 4], start[row * 30 + 4]);
    EXPECT_EQ(x[row * 30 + 5 + kChannels], start[row * 30 + 5 + kChannels]);
  }
  // Two inputs so far: zeros first.
  EXPECT_EQ((Floats{a.begin(), a.begin() + kTaps}),
            (Floats{0, 0, start[5], start[35]}));
}

TEST_F(ShortConvolutionTest, NoSplitOfASegmentChangesABit) {
  const auto conv = Make(kChannels, kTaps);
  ASSERT_TRUE(conv.ok()) << conv.status();
  const int64_t rows = 70;
  const Floats start = Random(rows * kChannels, 4);
  Floats whole = start;
  Floats slot = NewSlot();
  const std::vector<Segment> all = {SegmentOf(0, rows, slot)};
  const MatrixView<float> view(whole.data(), rows, kChannels);
  conv->Apply(view, all, view);
  for (const int64_t piece : {1, 2, 3, 31, 64}) {
    Floats x = start;
    Floats other = NewSlot();
    for (int64_t row = 0; row < rows; row += piece) {
      const int64_t count = std::min(piece, rows - row);
      const std::vector<Segment> part = {SegmentOf(0, count, other)};
      const MatrixView<float> some(x.data() + row * kChannels, count,
                                   kChannels);
      conv->Apply(some, part, some);
    }
    EXPECT_EQ(x, whole) << piece;
    EXPECT_EQ(other, slot) << piece;
  }
}

TEST_F(ShortConvolutionTest, RefusesAWeightOfAnotherShape) {
  const auto conv = Make(kChannels, kTaps - 1);
  EXPECT_EQ(conv.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(conv.status().message()).find("conv_size"),
            std::string::npos);
}

}  // namespace
}  // namespace reprise
