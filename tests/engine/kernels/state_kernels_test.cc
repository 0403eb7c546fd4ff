#include "engine/kernels/state_kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <ostream>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise {
namespace {

using Kernel = void (*)(const LinearAttentionArgs&);

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
constexpr float kUntouched = 12345.0f;

struct Shape {
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t heads_per_kv = 1;
  int64_t key_dim = 8;
  int64_t value_dim = 8;
  bool normalize = false;
  int64_t gap = 0;  // floats between the heads of one row and the next
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << " rows, " << shape.heads << " heads, "
             << shape.heads_per_kv << " per kv, " << shape.key_dim << "x"
             << shape.value_dim << (shape.normalize ? " normalised" : "")
             << ", gap " << shape.gap;
}

// Rows and a state of random numbers. With a normaliser q, k and z are
// positive, as behind a feature map, so that no division is by almost nothing.
struct Problem {
  explicit Problem(const Shape& shape, uint32_t seed = 1) : shape(shape) {
    std::mt19937 generator(seed);
    std::normal_distribution<float> normal;
    const auto fill = [&](int64_t n, bool positive) {
      std::vector<float> values(n);
      for (float& value : values) {
        value = normal(generator);
        if (positive) value = std::abs(value) + 0.1f;
      }
      return values;
    };
    const int64_t kv_heads = shape.heads / shape.heads_per_kv;
    q_stride = shape.heads * shape.key_dim + shape.gap;
    k_stride = kv_heads * shape.key_dim + shape.gap;
    v_stride = kv_heads * shape.value_dim + shape.gap;
    o_stride = shape.heads * shape.value_dim + shape.gap;
    q = fill(shape.rows * q_stride, shape.normalize);
    k = fill(shape.rows * k_stride, shape.normalize);
    v = fill(shape.rows * v_stride, false);
    s = fill(shape.heads * shape.key_dim * shape.value_dim, false);
    z = fill(shape.heads * shape.key_dim, true);
    o.assign(shape.rows * o_stride, kUntouched);
    s.push_back(kUntouched);
    z.push_back(kUntouched);
  }

  LinearAttentionArgs Args(int64_t first_row, int64_t rows) {
    return {.q = q.data() + first_row * q_stride,
            .k = k.data() + first_row * k_stride,
            .v = v.data() + first_row * v_stride,
            .o = o.data() + first_row * o_stride,
            .q_stride = q_stride,
            .k_stride = k_stride,
            .v_stride = v_stride,
            .o_stride = o_stride,
            .rows = rows,
            .first_head = 0,
            .last_head = shape.heads,
            .heads_per_kv = shape.heads_per_kv,
            .key_dim = shape.key_dim,
            .value_dim = shape.value_dim,
            .scale = 0.25f,
            .normalize = shape.normalize,
            .epsilon = 1e-6f,
            .s = s.data(),
            .z = shape.normalize ? z.data() : nullptr};
  }

  // All rows, by tiles.
  void Run(Kernel kernel) {
    for (int64_t row = 0; row < shape.rows; row += kTileRows) {
      kernel(Args(row, std::min(kTileRows, shape.rows - row)));
    }
  }

  Shape shape;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;
  int64_t o_stride;
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> o;
  std::vector<float> s;  // [heads, key_dim, value_dim], and a guard
  std::vector<float> z;  // [heads, key_dim], and a guard
};

// A number and the sum of the magnitudes of the terms that it is a sum of.
struct Exact {
  double value = 0;
  double magnitude = 0;
  void Add(double a, double a_magnitude, double b) {
    value += a * b;
    magnitude += a_magnitude * std::abs(b);
  }
};

// The recurrence of the header, row after row, in double.
struct Reference {
  explicit Reference(const Problem& p)
      : o(p.shape.rows * p.shape.heads * p.shape.value_dim) {
    for (size_t i = 0; i + 1 < p.s.size(); ++i) {
      s.push_back({p.s[i], std::abs(p.s[i])});
    }
    for (size_t i = 0; i + 1 < p.z.size(); ++i) z.push_back({p.z[i], p.z[i]});
    for (int64_t row = 0; row < p.shape.rows; ++row) {
      for (int64_t h = 0; h < p.shape.heads; ++h) Step(p, row, h);
    }
  }

  void Step(const Problem& p, int64_t row, int64_t h) {
    const int64_t kd = p.shape.key_dim;
    const int64_t vd = p.shape.value_dim;
    const int64_t kv = h / p.shape.heads_per_kv;
    const float* q = &p.q[row * p.q_stride + h * kd];
    const float* k = &p.k[row * p.k_stride + kv * kd];
    const float* v = &p.v[row * p.v_stride + kv * vd];
    Exact divisor;
    for (int64_t i = 0; i < kd; ++i) {
      Exact& zi = z[h * kd + i];
      zi.Add(k[i], std::abs(k[i]), 1);
      divisor.Add(zi.value, zi.magnitude, 0.25 * q[i]);
    }
    divisor.Add(1e-6f, 1e-6f, 1);
    for (int64_t j = 0; j < vd; ++j) {
      Exact sum;
      for (int64_t i = 0; i < kd; ++i) {
        Exact& sij = s[(h * kd + i) * vd + j];
        sij.Add(k[i], std::abs(k[i]), v[j]);
        sum.Add(sij.value, sij.magnitude, 0.25 * q[i]);
      }
      Exact& out = o[(row * p.shape.heads + h) * vd + j];
      out = sum;
      if (!p.shape.normalize) continue;
      // All terms of the divisor are positive: its own relative error is that
      // of its terms, and adds |value| once.
      out.value = sum.value / divisor.value;
      out.magnitude = sum.magnitude / divisor.value + std::abs(out.value);
    }
  }

  std::vector<Exact> s;
  std::vector<Exact> z;
  std::vector<Exact> o;  // [rows, heads, value_dim]
};

// Whether what `p` computed is `reference` to rounding: each number is a sum of
// at most rows + key_dim products (of products), so it errs by no more than
// that many epsilons of its terms' magnitudes, and a few for scaling.
void ExpectClose(const Problem& p, const Reference& reference) {
  const Shape& shape = p.shape;
  const double bound =
      static_cast<double>(shape.rows + shape.key_dim + 6) * kEpsilon;
  for (size_t i = 0; i < reference.s.size(); ++i) {
    ASSERT_NEAR(p.s[i], reference.s[i].value, bound * reference.s[i].magnitude)
        << "s " << i;
  }
  ASSERT_EQ(p.s.back(), kUntouched);
  ASSERT_EQ(p.z.back(), kUntouched);
  for (size_t i = 0; shape.normalize && i < reference.z.size(); ++i) {
    ASSERT_NEAR(p.z[i], reference.z[i].value, bound * reference.z[i].magnitude)
        << "z " << i;
  }
  const int64_t width = shape.heads * shape.value_dim;
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      const Exact& exact = reference.o[row * width + i];
      ASSERT_NEAR(p.o[row * p.o_stride + i], exact.value,
                  bound * exact.magnitude)
          << "row " << row << ", column " << i;
    }
    for (int64_t i = width; i < p.o_stride; ++i) {
      ASSERT_EQ(p.o[row * p.o_stride + i], kUntouched);
    }
  }
}

void CheckShape(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape);
  const Problem start(shape);
  const Reference reference(start);
  for (const Kernel kernel : {LinearAttentionRecurrent, LinearAttentionChunk}) {
    SCOPED_TRACE(kernel == LinearAttentionChunk ? "chunk" : "recurrent");
    Problem problem = start;
    problem.Run(kernel);
    ExpectClose(problem, reference);
  }
}

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

// Runs `kernel` on each of the parts [cuts[i], cuts[i + 1]) of the heads.
void RunSplit(Problem& problem, Kernel kernel,
              const std::vector<int64_t>& cuts) {
  for (size_t i = 0; i + 1 < cuts.size(); ++i) {
    LinearAttentionArgs args = problem.Args(0, problem.shape.rows);
    args.first_head = cuts[i];
    args.last_head = cuts[i + 1];
    kernel(args);
  }
}

TEST_P(LinearAttentionTest, HeadsHaveTheSameBitsHoweverTheyAreSplit) {
  ForEveryTarget([] {
    for (const int64_t rows : {1, 7, 64}) {
      const Problem start({.rows = rows,
                           .heads = 6,
                           .heads_per_kv = 2,
                           .key_dim = 27,
                           .value_dim = 45,
                           .normalize = GetParam()});
      for (const Kernel kernel :
           {LinearAttentionRecurrent, LinearAttentionChunk}) {
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

// A head's bits depend neither on its place among others nor on strides.
TEST_P(LinearAttentionTest, HeadHasTheSameBitsInAnyLayout) {
  ForEveryTarget([] {
    const Shape shape = {.rows = 50,
                         .heads = 3,
                         .key_dim = 20,
                         .value_dim = 37,
                         .normalize = GetParam(),
                         .gap = 5};
    for (const Kernel kernel :
         {LinearAttentionRecurrent, LinearAttentionChunk}) {
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
    for (const Kernel kernel :
         {LinearAttentionRecurrent, LinearAttentionChunk}) {
      const std::vector<float> q = {2, 1, 1, 2, 2, 2, 3, 1};
      const std::vector<float> k = {1, 2, 2, 1, 2, 2, 1, 3};
      const std::vector<float> v = {1, 0, 0, 1, 1, 1, 2, 0};
      std::vector<float> o(8);
      std::vector<float> s(4, 0.0f);
      std::vector<float> z(2, 0.0f);
      LinearAttentionArgs args = {.q = q.data(),
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
}  // namespace reprise
