#include "tests/engine/kernels/decay_problem.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace reprise {
namespace {

constexpr double kEpsilon = std::numeric_limits<float>::epsilon();
// What underflow can take away: decays of 1e-30 meet numbers below 1e5.
constexpr double kTiny = 1e-30;
constexpr float kUntouched = 12345.0f;

const char* DecayName(Decay decay) {
  return decay == Decay::kNone      ? "no decay"
         : decay == Decay::kPerHead ? "decay per head"
                                    : "decay per channel";
}

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

  // What is left of channel i after the row.
  static double DecayOf(const Problem& p, int64_t row, int64_t h, int64_t i) {
    const float* w = &p.w[row * p.w_stride];
    switch (p.shape.decay) {
      case Decay::kNone:
        return 1;
      case Decay::kPerHead:
        return w[h];
      case Decay::kPerChannel:
        return w[h / p.shape.heads_per_kv * p.shape.key_dim + i];
    }
    return 0;
  }

  void Step(const Problem& p, int64_t row, int64_t h) {
    const int64_t kd = p.shape.key_dim;
    const int64_t vd = p.shape.value_dim;
    const float* q = &p.q[row * p.q_stride + h / p.shape.heads_per_q * kd];
    const float* k = &p.k[row * p.k_stride + h / p.shape.heads_per_kv * kd];
    const float* v = &p.v[row * p.v_stride + h / p.shape.heads_per_v() * vd];
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
        const double left = DecayOf(p, row, h, i);
        const double bonus = p.bonus[h * kd + i];
        if (p.shape.bonus) {
          Exact read = sij;
          read.Add(k[i] * bonus, std::abs(k[i] * bonus), v[j]);
          sum.Add(read.value, read.magnitude, 0.25 * q[i]);
        }
        sij.value *= left;
        sij.magnitude *= left;
        sij.Add(k[i], std::abs(k[i]), v[j]);
        if (!p.shape.bonus) sum.Add(sij.value, sij.magnitude, 0.25 * q[i]);
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
// that many epsilons of its terms' magnitudes, and a few for scaling. A term is
// decayed up to `rows` times, half an epsilon each.
void ExpectClose(const Problem& p, const Reference& reference) {
  const Shape& shape = p.shape;
  const double bound =
      static_cast<double>(shape.rows + shape.key_dim + 6) * kEpsilon;
  for (size_t i = 0; i < reference.s.size(); ++i) {
    ASSERT_NEAR(p.s[i], reference.s[i].value,
                bound * reference.s[i].magnitude + kTiny)
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
                  bound * exact.magnitude + kTiny)
          << "row " << row << ", column " << i;
    }
    for (int64_t i = width; i < p.o_stride; ++i) {
      ASSERT_EQ(p.o[row * p.o_stride + i], kUntouched);
    }
  }
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.rows << " rows, " << shape.heads << " heads, "
             << shape.heads_per_kv << " per kv, " << shape.key_dim << "x"
             << shape.value_dim << (shape.normalize ? " normalised" : "")
             << ", gap " << shape.gap << ", " << DecayName(shape.decay)
             << (shape.bonus ? " with bonus" : "") << ", strength "
             << shape.strength;
}

Problem::Problem(const Shape& shape, uint32_t seed) : shape(shape) {
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
  q_stride = shape.heads / shape.heads_per_q * shape.key_dim + shape.gap;
  k_stride = kv_heads * shape.key_dim + shape.gap;
  v_stride = shape.heads / shape.heads_per_v() * shape.value_dim + shape.gap;
  w_stride = (shape.decay == Decay::kPerHead ? shape.heads
                                             : kv_heads * shape.key_dim) +
             shape.gap;
  o_stride = shape.heads * shape.value_dim + shape.gap;
  q = fill(shape.rows * q_stride, shape.normalize);
  k = fill(shape.rows * k_stride, shape.normalize);
  v = fill(shape.rows * v_stride, false);
  s = fill(shape.heads * shape.key_dim * shape.value_dim, false);
  z = fill(shape.heads * shape.key_dim, true);
  w = fill(shape.rows * w_stride, false);
  for (float& value : w) {
    // Some channels hardly decay, others forget at once.
    value =
        static_cast<float>(std::exp(-shape.strength * std::exp(3.0 * value)));
  }
  bonus = fill(shape.heads * shape.key_dim, false);
  o.assign(shape.rows * o_stride, kUntouched);
  s.push_back(kUntouched);
  z.push_back(kUntouched);
}

DecayArgs Problem::Args(int64_t first_row, int64_t rows) {
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
          .heads_per_q = shape.heads_per_q,
          .heads_per_k = shape.heads_per_kv,
          .heads_per_v = shape.heads_per_v(),
          .key_dim = shape.key_dim,
          .value_dim = shape.value_dim,
          .scale = 0.25f,
          .decay = shape.decay,
          .w = w.data() + first_row * w_stride,
          .w_stride = w_stride,
          .bonus = shape.bonus ? bonus.data() : nullptr,
          .normalize = shape.normalize,
          .epsilon = 1e-6f,
          .s = s.data(),
          .z = shape.normalize ? z.data() : nullptr};
}

void Problem::Run(Kernel kernel) {
  for (int64_t row = 0; row < shape.rows; row += kTileRows) {
    kernel(Args(row, std::min(kTileRows, shape.rows - row)));
  }
}

void CheckShape(const Shape& shape) {
  SCOPED_TRACE(testing::Message() << shape);
  const Problem start(shape);
  const Reference reference(start);
  for (const Kernel kernel : {DecayRecurrent, DecayChunk}) {
    SCOPED_TRACE(kernel == DecayChunk ? "chunk" : "recurrent");
    Problem problem = start;
    problem.Run(kernel);
    ExpectClose(problem, reference);
  }
}

}  // namespace reprise
