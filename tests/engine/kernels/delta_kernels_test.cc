#include "engine/kernels/delta_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <random>
#include <vector>

#include "tests/engine/kernels/simd_targets.h"

namespace reprise::delta_kernels_test {
namespace {

using Kernel = void (*)(const DeltaArgs&);
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

constexpr float kUntouched = 12345.0f;

enum class Rule { kDelta, kGated, kLowRank };

struct Shape {
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t heads_per_key = 1;
  int64_t key_dim = 8;
  int64_t value_dim = 8;
  int64_t gap = 0;  // floats between the heads of one row and the next
  // The mean logarithm of a decay: from almost none to everything.
  float log_decay = -0.1f;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << " rows, " << shape.heads << " heads, "
             << shape.heads_per_key << " per key, " << shape.key_dim << "x"
             << shape.value_dim << ", gap " << shape.gap << ", log decay "
             << shape.log_decay;
}

// Rows and a state of random numbers, with keys of length 1, as mixers make
// them: longer ones would make the recurrence itself grow without bound.
struct Problem {
  Problem(Rule rule, const Shape& shape, uint32_t seed = 1)
      : rule(rule), shape(shape), generator(seed) {
    const int64_t key_heads = shape.heads / shape.heads_per_key;
    q = Rows(key_heads, shape.key_dim);
    k = Unit(Rows(key_heads, shape.key_dim), shape.key_dim);
    v = Rows(shape.heads, shape.value_dim);
    const int64_t decays = rule == Rule::kLowRank ? shape.key_dim : 1;
    decay = Rows(shape.heads, decays);
    for (float& x : decay) x = std::exp(shape.log_decay * std::abs(x));
    beta = Rows(shape.heads, 1);
    for (float& x : beta) x = 2 / (1 + std::exp(-x));  // 0..2
    // RWKV-7's: b = -a * rate, 0 <= rate <= 1.
    a = Unit(Rows(shape.heads, shape.key_dim), shape.key_dim);
    b = Rows(shape.heads, shape.key_dim);
    for (size_t i = 0; i < b.size(); ++i) {
      b[i] = -a[i] / (1 + std::exp(-b[i]));
    }
    o.assign(static_cast<size_t>(shape.rows *
                                 (shape.heads * shape.value_dim + shape.gap)),
             kUntouched);
    s = Normal(shape.heads * shape.key_dim * shape.value_dim);
    s.push_back(kUntouched);
  }

  Floats Normal(int64_t n) {
    std::normal_distribution<float> normal;
    Floats values(static_cast<size_t>(n));
    for (float& value : values) value = normal(generator);
    return values;
  }
  Floats Rows(int64_t heads, int64_t dim) {
    return Normal(shape.rows * (heads * dim + shape.gap));
  }
  // Runs of `dim` numbers, whatever head they belong to, of length 1 at most.
  Floats Unit(Floats x, int64_t dim) const {
    const int64_t stride = std::ssize(x) / shape.rows;
    for (int64_t row = 0; row < shape.rows; ++row) {
      for (int64_t i = 0; i + dim <= stride; i += dim) {
        float* head = &x[static_cast<size_t>(row * stride + i)];
        float squares = 0;
        for (int64_t j = 0; j < dim; ++j) squares += head[j] * head[j];
        for (int64_t j = 0; j < dim; ++j) head[j] /= std::sqrt(squares);
      }
    }
    return x;
  }

  HeadRows From(const Floats& x, int64_t first_row) const {
    const int64_t stride = std::ssize(x) / shape.rows;
    return {x.data() + first_row * stride, stride};
  }

  DeltaArgs Args(int64_t first_row, int64_t rows) {
    const int64_t o_stride = std::ssize(o) / shape.rows;
    DeltaArgs args;
    args.q = From(q, first_row);
    args.k = From(k, first_row);
    args.v = From(v, first_row);
    if (rule != Rule::kDelta) args.decay = From(decay, first_row);
    if (rule == Rule::kLowRank) {
      args.a = From(a, first_row);
      args.b = From(b, first_row);
    } else {
      args.beta = From(beta, first_row);
    }
    args.o = o.data() + first_row * o_stride;
    args.o_stride = o_stride;
    args.rows = rows;
    args.last_head = shape.heads;
    args.heads_per_key = shape.heads_per_key;
    args.key_dim = shape.key_dim;
    args.value_dim = shape.value_dim;
    args.scale = 0.25f;
    args.s = s.data();
    return args;
  }

  // All rows, by tiles.
  void Run(Kernel kernel) {
    for (int64_t row = 0; row < shape.rows; row += kTileRows) {
      kernel(Args(row, std::min(kTileRows, shape.rows - row)));
    }
  }

  Rule rule;
  Shape shape;
  std::mt19937 generator;
  Floats q, k, v, decay, beta, a, b, o;
  Floats s;  // [heads, key_dim, value_dim], and a guard
};

// The recurrences of the header, row after row, in double.
struct Reference {
  explicit Reference(Problem& p) : s(p.s.begin(), p.s.end() - 1) {
    for (int64_t row = 0; row < p.shape.rows; ++row) {
      for (int64_t head = 0; head < p.shape.heads; ++head) Step(p, row, head);
    }
  }

  void Step(Problem& p, int64_t row, int64_t head) {
    const DeltaArgs args = p.Args(row, 1);
    const int64_t keys = p.shape.key_dim, values = p.shape.value_dim;
    const int64_t key_head = head / p.shape.heads_per_key;
    const float* q = args.q.At(0, key_head, keys);
    const float* k = args.k.At(0, key_head, keys);
    const float* v = args.v.At(0, head, values);
    const bool low_rank = p.rule == Rule::kLowRank;
    for (int64_t j = 0; j < values; ++j) {
      const auto cell = [&](int64_t i) -> double& {
        return s[static_cast<size_t>((head * keys + i) * values + j)];
      };
      double u = 0;
      for (int64_t i = 0; i < keys && low_rank; ++i) {
        u += args.a.At(0, head, keys)[i] * cell(i);
      }
      for (int64_t i = 0; i < keys; ++i) {
        if (low_rank) cell(i) *= args.decay.At(0, head, keys)[i];
        if (p.rule == Rule::kGated) cell(i) *= *args.decay.At(0, head, 1);
      }
      if (!low_rank) {
        u = v[j];
        for (int64_t i = 0; i < keys; ++i) u -= cell(i) * k[i];
        u *= *args.beta.At(0, head, 1);
      }
      double sum = 0;
      for (int64_t i = 0; i < keys; ++i) {
        cell(i) += low_rank
                       ? args.b.At(0, head, keys)[i] * u + double{k[i]} * v[j]
                       : k[i] * u;
        sum += 0.25 * q[i] * cell(i);
      }
      o.push_back(sum);
    }
  }

  Doubles s;
  Doubles o;  // [rows, heads, value_dim]
};

double Largest(const Doubles& x) {
  double largest = 0;
  for (const double value : x) largest = std::max(largest, std::abs(value));
  return largest;
}

// Errors of a row's u reach all later rows, but the recurrence does not let
// them grow: keys have length 1 and 0 <= beta <= 2. So a number errs by some
// 2^-24 of the largest numbers, times the root of how many roundings it has
// seen (rows x 3, key_dim x 3); measured: 0.6 of this bound at most.
void ExpectClose(const Problem& p, const Reference& reference) {
  const Shape& shape = p.shape;
  const double rounding =
      std::ldexp(1, -24) *
      std::sqrt(3.0 * static_cast<double>(shape.rows + shape.key_dim));
  const double s_bound = 2 * rounding * std::max(1.0, Largest(reference.s));
  for (size_t i = 0; i < reference.s.size(); ++i) {
    ASSERT_NEAR(p.s[i], reference.s[i], s_bound) << "s " << i;
  }
  ASSERT_EQ(p.s.back(), kUntouched);
  const double o_bound = 2 * rounding * std::max(1.0, Largest(reference.o));
  const int64_t width = shape.heads * shape.value_dim;
  const int64_t stride = width + shape.gap;
  for (int64_t row = 0; row < shape.rows; ++row) {
    for (int64_t i = 0; i < width; ++i) {
      ASSERT_NEAR(p.o[static_cast<size_t>(row * stride + i)],
                  reference.o[static_cast<size_t>(row * width + i)], o_bound)
          << "row " << row << ", column " << i;
    }
    for (int64_t i = width; i < stride; ++i) {
      ASSERT_EQ(p.o[static_cast<size_t>(row * stride + i)], kUntouched);
    }
  }
}

class DeltaKernelsTest : public testing::TestWithParam<Rule> {
 protected:
  // Low rank has a key of its own for every head.
  void CheckShape(Shape shape) {
    if (GetParam() == Rule::kLowRank) shape.heads_per_key = 1;
    SCOPED_TRACE(testing::Message() << shape);
    Problem start(GetParam(), shape);
    const Reference reference(start);
    for (const Kernel kernel : {DeltaRecurrent, DeltaChunk}) {
      SCOPED_TRACE(kernel == DeltaChunk ? "chunk" : "recurrent");
      Problem problem = start;
      problem.Run(kernel);
      ExpectClose(problem, reference);
    }
  }
};

INSTANTIATE_TEST_SUITE_P(, DeltaKernelsTest,
                         testing::Values(Rule::kDelta, Rule::kGated,
                                         Rule::kLowRank),
                         [](const testing::TestParamInfo<Rule>& info) {
                           switch (info.param) {
                             case Rule::kDelta:
                               return "delta";
                             case Rule::kGated:
                               return "gated";
                             case Rule::kLowRank:
                               return "low_rank";
                           }
                           return "";
                         });

TEST_P(DeltaKernelsTest, AgreesWithDoubleForEveryRowCount) {
  ForEveryTarget([&] {
    for (int64_t rows = 1; rows <= kTileRows; ++rows) {
      CheckShape({.rows = rows,
                  .heads = 2,
                  .heads_per_key = 2,
                  .key_dim = 16,
                  .value_dim = 20,
                  .gap = 3});
    }
  });
}

TEST_P(DeltaKernelsTest, AgreesWithDoubleForEverySmallDimension) {
  ForEveryTarget([&] {
    for (int64_t dim = 1; dim <= 70; ++dim) {
      CheckShape({.rows = 9, .key_dim = dim, .value_dim = 71 - dim});
    }
  });
}

TEST_P(DeltaKernelsTest, AgreesWithDoubleForUsualAndOddShapes) {
  ForEveryTarget([&] {
    for (const Shape& shape : std::vector<Shape>{
             {.rows = 64, .heads = 2, .key_dim = 64, .value_dim = 64},
             {.rows = 64, .key_dim = kMaxDeltaKeyDim, .value_dim = 128},
             {.rows = 63,
             .heads = 6,
             .heads_per_key = 3,
             .key_dim = 32,
             .value_dim = 48},
             {.rows = 17,
             .heads = 4,
             .heads_per_key = 4,
             .key_dim = 33,
             .value_dim = 65,
             .gap = 1},
             {.rows = 64, .key_dim = 1, .value_dim = 1}}) {
      CheckShape(shape);
    }
  });
}

TEST_P(DeltaKernelsTest, TilesContinueFromTheState) {
  ForEveryTarget([&] {
    for (const int64_t rows : {65, 200}) {
      CheckShape({.rows = rows, .heads = 2, .key_dim = 24, .value_dim = 40});
    }
  });
}

// From no decay at all to a row that keeps nothing of the one before: no
// overflow, no NaN, no loss of the terms that remain.
TEST_P(DeltaKernelsTest, AgreesWithDoubleForEveryStrengthOfDecay) {
  ForEveryTarget([&] {
    for (const float log_decay :
         {0.0f, -1e-4f, -0.01f, -1.0f, -5.0f, -30.0f, -1000.0f}) {
      CheckShape(
          {.rows = 64, .key_dim = 32, .value_dim = 32, .log_decay = log_decay});
    }
  });
}

TEST_P(DeltaKernelsTest, HeadsHaveTheSameBitsHoweverTheyAreSplit) {
  ForEveryTarget([&] {
    for (const int64_t rows : {1, 7, 64}) {
      const Problem start(
          GetParam(),
          {.rows = rows, .heads = 6, .key_dim = 27, .value_dim = 45});
      for (const Kernel kernel : {DeltaRecurrent, DeltaChunk}) {
        Problem whole = start;
        whole.Run(kernel);
        for (const std::vector<int64_t>& cuts :
             {std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6}, {0, 4, 6}}) {
          Problem split = start;
          for (size_t i = 0; i + 1 < cuts.size(); ++i) {
            DeltaArgs args = split.Args(0, rows);
            args.first_head = cuts[i];
            args.last_head = cuts[i + 1];
            kernel(args);
          }
          EXPECT_EQ(split.o, whole.o);
          EXPECT_EQ(split.s, whole.s);
        }
      }
    }
  });
}

// Worked out by hand: what is under a key is replaced, not added to.
TEST(DeltaKernelsExampleTest, ASecondValueReplacesTheFirst) {
  ForEveryTarget([] {
    for (const Kernel kernel : {DeltaRecurrent, DeltaChunk}) {
      const Floats k = {1, 0, 0, 1, 1, 0};
      const Floats v = {5, 7, 11};
      const Floats beta = {1, 1, 0.5f};
      Floats s = {0, 0};
      Floats o(3);
      DeltaArgs args;
      args.q = args.k = {k.data(), 2};
      args.v = {v.data(), 1};
      args.beta = {beta.data(), 1};
      args.o = o.data();
      args.o_stride = 1;
      args.rows = 3;
      args.last_head = 1;
      args.key_dim = 2;
      args.value_dim = 1;
      args.s = s.data();
      kernel(args);
      EXPECT_EQ(o, (Floats{5, 7, 8}));  // half way from 5 to 11
      EXPECT_EQ(s, (Floats{8, 7}));
    }
  });
}

}  // namespace
}  // namespace reprise::delta_kernels_test
