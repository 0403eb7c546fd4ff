#include "engine/kernels/attention_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <random>
#include <vector>

#include "engine/kernels/state_kernels.h"
#include "tests/engine/kernels/simd_targets.h"

namespace reprise::attention_kernels_test {
namespace {

using Floats = std::vector<float>;

constexpr float kUntouched = 12345.0f;

struct Shape {
  int64_t heads = 1;
  int64_t head_dim = 16;
  int64_t window = 0;
  int64_t tokens = 1;
};

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  return out << shape.heads << " heads of " << shape.head_dim << ", window "
             << shape.window << ", " << shape.tokens << " tokens";
}

// A session of one head of keys and values and some heads of queries, fed in
// pieces as a mixer does it.
class Session {
 public:
  explicit Session(const Shape& shape, uint32_t seed = 1)
      : shape_(shape),
        row_(shape.heads * shape.head_dim + kGap),
        generator_(seed),
        q_(Normal(shape.tokens * row_, 1.5f)),
        k_(Normal(shape.tokens * Stride(), 1)),
        v_(Normal(shape.tokens * Stride(), 1)) {}

  // The outputs of all tokens, [tokens, heads, head_dim], when the tokens come
  // in segments of the given lengths, each of which goes by tiles.
  Floats Run(const std::vector<int64_t>& segments) const {
    const int64_t capacity = shape_.window > 0 ? shape_.window : shape_.tokens;
    // Where nothing has been written yet, a read would show.
    Floats past_k(static_cast<size_t>(capacity * shape_.head_dim),
                  std::nanf(""));
    Floats past_v = past_k;
    Floats o(static_cast<size_t>(shape_.tokens * row_), kUntouched);
    int64_t begin = 0;
    for (const int64_t length : segments) {
      for (int64_t at = 0; at < length; at += kTileRows) {
        AttentionArgs args =
            Args(o, begin + at, std::min(kTileRows, length - at));
        args.past = {past_k.data(), past_v.data(), shape_.head_dim};
        args.past_rows = capacity;
        args.fresh = {&k_[static_cast<size_t>(begin * Stride())],
                      &v_[static_cast<size_t>(begin * Stride())], Stride()};
        args.fresh_position = begin;
        Attend(args);
      }
      for (int64_t token = begin; token < begin + length; ++token) {
        const int64_t to = token % capacity * shape_.head_dim;
        std::copy_n(&k_[static_cast<size_t>(token * Stride())], shape_.head_dim,
                    &past_k[static_cast<size_t>(to)]);
        std::copy_n(&v_[static_cast<size_t>(token * Stride())], shape_.head_dim,
                    &past_v[static_cast<size_t>(to)]);
      }
      begin += length;
    }
    return WithoutGaps(o);
  }

  // The same as plain loops in double.
  std::vector<double> Expected() const {
    std::vector<double> o;
    for (int64_t t = 0; t < shape_.tokens; ++t) {
      const int64_t first =
          shape_.window > 0 ? std::max<int64_t>(0, t - shape_.window + 1) : 0;
      for (int64_t h = 0; h < shape_.heads; ++h) {
        double sum = 0;
        std::vector<double> out(static_cast<size_t>(shape_.head_dim));
        for (int64_t s = first; s <= t; ++s) {
          double score = 0;
          for (int64_t i = 0; i < shape_.head_dim; ++i) {
            score += static_cast<double>(Q(t, h, i)) *
                     k_[static_cast<size_t>(s * Stride() + i)];
          }
          const double weight = std::exp(score);
          sum += weight;
          for (int64_t i = 0; i < shape_.head_dim; ++i) {
            out[static_cast<size_t>(i)] +=
                weight * v_[static_cast<size_t>(s * Stride() + i)];
          }
        }
        for (const double value : out) o.push_back(value / sum);
      }
    }
    return o;
  }

  Floats& q() { return q_; }

 private:
  static constexpr int64_t kGap = 3;
  int64_t Stride() const { return shape_.head_dim + 5; }

  float Q(int64_t token, int64_t head, int64_t i) const {
    return q_[static_cast<size_t>(token * row_ + head * shape_.head_dim + i)];
  }
  // Small enough for exp(score) to stay in range of double.
  Floats Normal(int64_t n, float length) {
    const float deviation =
        length / std::sqrt(std::sqrt(static_cast<float>(shape_.head_dim)));
    std::normal_distribution<float> normal(0, deviation);
    Floats values(static_cast<size_t>(n));
    for (float& value : values) value = normal(generator_);
    return values;
  }
  AttentionArgs Args(Floats& o, int64_t position, int64_t rows) const {
    AttentionArgs args;
    args.q = &q_[static_cast<size_t>(position * row_)];
    args.o = &o[static_cast<size_t>(position * row_)];
    args.q_stride = args.o_stride = row_;
    args.q_head_stride = args.o_head_stride = shape_.head_dim;
    args.heads = shape_.heads;
    args.head_dim = shape_.head_dim;
    args.rows = rows;
    args.position = position;
    args.window = shape_.window;
    return args;
  }
  Floats WithoutGaps(const Floats& o) const {
    Floats result;
    for (int64_t row = 0; row < shape_.tokens; ++row) {
      const auto first = o.begin() + row * row_;
      result.insert(result.end(), first, first + row_ - kGap);
      EXPECT_TRUE(std::all_of(first + row_ - kGap, first + row_,
                              [](float x) { return x == kUntouched; }));
    }
    return result;
  }

  const Shape shape_;
  const int64_t row_;
  std::mt19937 generator_;
  Floats q_;  // [tokens, row_]
  Floats k_;  // [tokens, Stride()]
  Floats v_;
};

const Shape kShapes[] = {
    {1, 16, 0, 1},    {1, 16, 0, 2},    {4, 16, 0, 63},     {3, 32, 24, 150},
    {8, 64, 0, 200},  {2, 128, 0, 130}, {1, 7, 0, 190},     {5, 12, 1, 70},
    {2, 20, 64, 200}, {2, 20, 65, 200}, {1, 256, 100, 260}, {1, 512, 0, 65},
};

TEST(AttendTest, AgreesWithPlainLoopsInDouble) {
  ForEveryTarget([] {
    for (const Shape& shape : kShapes) {
      const Session session(shape);
      const Floats actual = session.Run({shape.tokens});
      const std::vector<double> expected = session.Expected();
      ASSERT_EQ(actual.size(), expected.size());
      double worst = 0;
      for (size_t i = 0; i < actual.size(); ++i) {
        worst = std::max(worst, std::abs(actual[i] - expected[i]));
        if (std::isnan(actual[i])) worst = INFINITY;
      }
      // A score of about 2, summed from head_dim products, is off by some
      // 1e-7 times the root of their number, and so is its exponential; the
      // outputs are means of values of about 1.
      EXPECT_LE(worst, 4e-6) << shape;
    }
  });
}

TEST(AttendTest, NoSplitChangesABit) {
  ForEveryTarget([] {
    for (const Shape& shape : kShapes) {
      const Session session(shape);
      const Floats whole = session.Run({shape.tokens});
      for (const int64_t piece : {1, 3, 40, 64, 100}) {
        std::vector<int64_t> segments;
        for (int64_t left = shape.tokens; left > 0; left -= piece) {
          segments.push_back(std::min(left, piece));
        }
        const Floats split = session.Run(segments);
        EXPECT_EQ(std::memcmp(split.data(), whole.data(), whole.size() * 4), 0)
            << shape << " by " << piece;
      }
    }
  });
}

TEST(AttendTest, LargeScoresDoNotOverflow) {
  const Shape shape = {2, 16, 0, 100};
  Session session(shape);
  for (float& q : session.q()) q *= 1000;
  for (const float value : session.Run({shape.tokens})) {
    EXPECT_LT(std::abs(value), 10);
  }
}

TEST(AttendTest, NotANumberStaysOne) {
  const Shape shape = {1, 16, 0, 70};
  Session session(shape);
  session.q()[0] = std::nanf("");
  const Floats o = session.Run({shape.tokens});
  EXPECT_TRUE(std::isnan(o[0]));
  EXPECT_FALSE(std::isnan(o[16]));
}

TEST(GateBySigmoidTest, MultipliesBySigmoid) {
  ForEveryTarget([] {
    Floats gate = {-1000, -90, -20, -3, -0.5f, 0, 0.5f, 3, 20, 90, 1000};
    for (int i = 0; i < 40; ++i) gate.push_back(static_cast<float>(i) / 8);
    Floats x(gate.size(), 2);
    GateBySigmoid(gate.data(), std::ssize(gate), x.data());
    for (size_t i = 0; i < x.size(); ++i) {
      const double expected = 2 / (1 + std::exp(-static_cast<double>(gate[i])));
      EXPECT_NEAR(x[i], expected, 3e-7 * expected + 1e-37) << gate[i];
    }
  });
}

}  // namespace
}  // namespace reprise::attention_kernels_test
