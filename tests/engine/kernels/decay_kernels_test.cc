#include "engine/kernels/decay_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "tests/engine/kernels/decay_problem.h"
#include "tests/engine/kernels/simd_targets.h"

namespace reprise::decay_kernels_test {
namespace {

class LinearAttentionTest : public testing::TestWithParam<bool> {};

INSTANTIATE_TEST_SUITE_P(, LinearAttentionTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& info) {
                           return info.param ? "normalised" : "plain";
                         });

TEST_P(LinearAttentionTest, AgreesWithDoubleForEveryRowCount) {
  ForEveryTarget([] {
    for (int64_t rows = 1; rows <= kTileRows; ++rows) {
      CheckShape({.rows = rows,
                  .heads = 2,
                  .key_dim = 16,
                  .value_dim = 20,
                  .normalize = GetParam(),
                  .gap = 3});
    }
  });
}

TEST_P(LinearAttentionTest, AgreesWithDoubleForEverySmallDimension) {
  ForEveryTarget([] {
    for (int64_t dim = 1; dim <= 70; ++dim) {
      CheckShape({.rows = 9,
                  .key_dim = dim,
                  .value_dim = 71 - dim,
                  .normalize = GetParam()});
    }
  });
}

TEST_P(LinearAttentionTest, AgreesWithDoubleForUsualAndOddShapes) {
  ForEveryTarget([] {
    for (Shape shape : std::vector<Shape>{
             {.rows = 64, .heads = 4, .key_dim = 64, .value_dim = 64},
             {.rows = 64, .heads = 2, .key_dim = 128, .value_dim = 256},
             {.rows = 63,
             .heads = 6,
             .heads_per_kv = 3,
             .key_dim = 32,
             .value_dim = 48},
             {.rows = 17,
             .heads = 4,
             .heads_per_kv = 4,
             .key_dim = 33,
             .value_dim = 65,
             .gap = 1},
             {.rows = 5, .heads = 3, .key_dim = kMaxKeyDim, .value_dim = 3},
             {.rows = 64, .heads = 1, .key_dim = 1, .value_dim = 1}}) {
      shape.normalize = GetParam();
      CheckShape(shape);
    }
  });
}

TEST_P(LinearAttentionTest, TilesContinueFromTheState) {
  ForEveryTarget([] {
    for (const int64_t rows : {65, 128, 200}) {
      CheckShape({.rows = rows,
                  .heads = 2,
                  .key_dim = 24,
                  .value_dim = 40,
                  .normalize = GetParam()});
    }
  });
}

TEST(DecayTest, AgreesWithDoubleForEveryRowCount) {
  ForEveryTarget([] {
    for (int64_t rows = 1; rows <= kTileRows; ++rows) {
      Shape shape = {.rows = rows,
                     .heads = 2,
                     .key_dim = 18,
                     .value_dim = 20,
                     .gap = 3,
                     .decay = Decay::kPerHead};
      CheckShape(shape);
      shape.decay = Decay::kPerChannel;
      CheckShape(shape);
      shape.bonus = true;
      CheckShape(shape);
    }
  });
}

// From decays that can be neglected to such that forget all within a row.
TEST(DecayTest, AgreesWithDoubleHoweverStrongTheDecay) {
  ForEveryTarget([] {
    for (const double strength : {1e-6, 1e-3, 0.03, 1.0, 30.0, 1e4}) {
      Shape shape = {.rows = 150,
                     .heads = 2,
                     .key_dim = 24,
                     .value_dim = 17,
                     .decay = Decay::kPerHead,
                     .strength = strength};
      CheckShape(shape);
      shape.decay = Decay::kPerChannel;
      CheckShape(shape);
      shape.bonus = true;
      CheckShape(shape);
    }
  });
}

TEST(DecayTest, AgreesWithDoubleForUsualAndOddShapes) {
  ForEveryTarget([] {
    for (Shape shape : std::vector<Shape>{
             {.rows = 64, .heads = 2, .key_dim = 64, .value_dim = 64},
             {.rows = 64, .heads = 1, .key_dim = 128, .value_dim = 256},
             {.rows = 63,
             .heads = 6,
             .heads_per_kv = 3,
             .key_dim = 32,
             .value_dim = 48},
             {.rows = 40, .heads = 3, .key_dim = 1, .value_dim = 1},
             {.rows = 20, .heads = 1, .key_dim = kMaxKeyDim, .value_dim = 3}}) {
      for (const Decay decay : {Decay::kPerHead, Decay::kPerChannel}) {
        shape.decay = decay;
        CheckShape(shape);
      }
    }
    // Mamba-2: queries and keys of a group of heads.
    CheckShape({.rows = 64,
                .heads = 6,
                .heads_per_q = 3,
                .heads_per_kv = 3,
                .key_dim = 20,
                .value_dim = 33,
                .decay = Decay::kPerHead});
  });
}

TEST(DecayTest, AConstantDecayIsOneRowForAll) {
  ForEveryTarget([] {
    for (const Decay decay : {Decay::kPerHead, Decay::kPerChannel}) {
      for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
        Problem spread({.rows = 40,
                        .heads = 3,
                        .key_dim = 10,
                        .value_dim = 12,
                        .decay = decay});
        for (int64_t row = 1; row < 40; ++row) {
          std::copy_n(spread.w.begin(), spread.w_stride,
                      spread.w.begin() + row * spread.w_stride);
        }
        Problem constant = spread;
        constant.w_stride = 0;
        spread.Run(kernel);
        constant.Run(kernel);
        EXPECT_EQ(constant.o, spread.o);
        EXPECT_EQ(constant.s, spread.s);
      }
    }
  });
}

TEST(DecayTest, ScaledValuesAreWhatTheirProductsAre) {
  ForEveryTarget([] {
    for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
      const Problem start({.rows = 40,
                           .heads = 3,
                           .key_dim = 10,
                           .value_dim = 21,
                           .gap = 2,
                           .decay = Decay::kPerHead});
      Problem scaled = start;
      DecayArgs args = scaled.Args(0, 40);
      // Any numbers will do: those of the decays.
      args.v_scale = start.w.data();
      args.v_scale_stride = start.w_stride;
      kernel(args);
      Problem multiplied = start;
      for (int64_t row = 0; row < 40; ++row) {
        for (int64_t i = 0; i < 3 * 21; ++i) {
          multiplied.v[row * start.v_stride + i] *=
              start.w[row * start.w_stride + i / 21];
        }
      }
      kernel(multiplied.Args(0, 40));
      EXPECT_EQ(scaled.o, multiplied.o);
      EXPECT_EQ(scaled.s, multiplied.s);
    }
  });
}

// Runs `kernel` on each of the parts [cuts[i], cuts[i + 1]) of the heads.
void RunSplit(Problem& problem, Kernel kernel,
              const std::vector<int64_t>& cuts) {
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    DecayArgs args = problem.Args(0, problem.shape.rows);
    args.first_head = cuts[i];
    args.last_head = cuts[i + 1];
    kernel(args);
  }
}

void CheckSplits(Shape shape) {
  ForEveryTarget([&] {
    for (const int64_t rows : {1, 7, 64}) {
      shape.rows = rows;
      shape.heads = 6;
      shape.heads_per_kv = 2;
      shape.key_dim = 27;
      shape.value_dim = 45;
      const Problem start(shape);
      for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
        Problem whole = start;
        RunSplit(whole, kernel, {0, 6});
        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}, {0, 4, 6}}) {
          Problem split = start;
          RunSplit(split, kernel, cuts);
          EXPECT_EQ(split.o, whole.o);
          EXPECT_EQ(split.s, whole.s);
          EXPECT_EQ(split.z, whole.z);
        }
      }
    }
  });
}

TEST_P(LinearAttentionTest, HeadsHaveTheSameBitsHoweverTheyAreSplit) {
  CheckSplits({.normalize = GetParam()});
}

TEST(DecayTest, HeadsHaveTheSameBitsHoweverTheyAreSplit) {
  CheckSplits({.decay = Decay::kPerHead});
  CheckSplits({.heads_per_q = 2, .decay = Decay::kPerHead});
  CheckSplits({.decay = Decay::kPerChannel});
  CheckSplits({.decay = Decay::kPerChannel, .bonus = true});
}

// A head's bits depend neither on its place among others nor on strides.
TEST_P(LinearAttentionTest, HeadHasTheSameBitsInAnyLayout) {
  ForEveryTarget([] {
    const Shape shape = {.rows = 50,
                         .heads = 3,
                         .key_dim = 20,
                         .value_dim = 37,
                         .normalize = GetParam(),
                         .gap = 5};
    for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
      Problem all(shape);
      Shape one = shape;
      one.heads = 1;
      one.gap = 0;
      Problem alone(one);
      const auto copy = [&](const std::vector<float>& from, int64_t stride,
                            int64_t dim, std::vector<float>& to) {
        for (int64_t row = 0; row < shape.rows; ++row) {
          std::copy_n(from.begin() + row * stride + 2 * dim, dim,
                      to.begin() + row * dim);
        }
      };
      copy(all.q, all.q_stride, 20, alone.q);
      copy(all.k, all.k_stride, 20, alone.k);
      copy(all.v, all.v_stride, 37, alone.v);
      std::copy_n(all.s.begin() + 2 * 20 * 37, 20 * 37, alone.s.begin());
      std::copy_n(all.z.begin() + 2 * 20, 20, alone.z.begin());
      all.Run(kernel);
      alone.Run(kernel);
      std::vector<float> o(alone.o.size());
      copy(all.o, all.o_stride, 37, o);
      EXPECT_EQ(o, alone.o);
      EXPECT_TRUE(std::equal(alone.s.begin(), alone.s.end() - 1,
                             all.s.begin() + 2 * 20 * 37));
    }
  });
}

// The example of the idea: phi(x) = elu(x) + 1 of Q and K, by hand.
TEST(LinearAttentionExampleTest, GivesTheFractionsWorkedOutByHand) {
  ForEveryTarget([] {
    for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
      const std::vector<float> q = {2, 1, 1, 2, 2, 2, 3, 1};
      const std::vector<float> k = {1, 2, 2, 1, 2, 2, 1, 3};
      const std::vector<float> v = {1, 0, 0, 1, 1, 1, 2, 0};
      std::vector<float> o(8);
      std::vector<float> s(4, 0.0f);
      std::vector<float> z(2, 0.0f);
      DecayArgs args = {.q = q.data(),
                        .k = k.data(),
                        .v = v.data(),
                        .o = o.data(),
                        .q_stride = 2,
                        .k_stride = 2,
                        .v_stride = 2,
                        .o_stride = 2,
                        .rows = 4,
                        .last_head = 1,
                        .key_dim = 2,
                        .value_dim = 2,
                        .normalize = true,
                        .s = s.data(),
                        .z = z.data()};
      kernel(args);
      const std::vector<float> expected = {1,    0,    5 / 9.0f,   4 / 9.0f,
                                           0.7f, 0.7f, 25 / 26.0f, 15 / 26.0f};
      for (size_t i = 0; i < o.size(); ++i) {
        EXPECT_FLOAT_EQ(o[i], expected[i]) << i;
      }
      EXPECT_EQ(s, (std::vector<float>{5, 4, 10, 3}));
      EXPECT_EQ(z, (std::vector<float>{6, 8}));
      // Unmasked: the first query over all four rows, as a row that adds
      // nothing to the state.
      const std::vector<float> nothing = {0, 0};
      args.k = nothing.data();
      args.v = nothing.data();
      args.rows = 1;
      kernel(args);
      EXPECT_FLOAT_EQ(o[0], 1);
      EXPECT_FLOAT_EQ(o[1], 0.55f);
    }
  });
}

}  // namespace
}  // namespace reprise::decay_kernels_test
