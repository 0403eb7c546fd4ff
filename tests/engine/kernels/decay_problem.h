// Random problems for the decay kernels, and the recurrence in double.
#ifndef TESTS_ENGINE_KERNELS_DECAY_PROBLEM_H_
#define TESTS_ENGINE_KERNELS_DECAY_PROBLEM_H_

#include <cstdint>
#include <ostream>
#include <vector>

#include "engine/kernels/decay_kernels.h"

namespace reprise {

using Kernel = void (*)(const DecayArgs&);

struct Shape {
  int64_t rows = 1;
  int64_t heads = 1;
  int64_t heads_per_q = 1;
  int64_t heads_per_kv = 1;  // of v only if queries are not shared
  int64_t key_dim = 8;
  int64_t value_dim = 8;
  bool normalize = false;
  int64_t gap = 0;  // floats between the heads of one row and the next
  Decay decay = Decay::kNone;
  bool bonus = false;
  // Logarithms of the decays: minus this to the power of a normal number.
  double strength = 0.1;

  int64_t heads_per_v() const { return heads_per_q > 1 ? 1 : heads_per_kv; }
};

std::ostream& operator<<(std::ostream& out, const Shape& shape);

// Rows and a state of random numbers. With a normaliser q, k and z are
// positive, as behind a feature map, so that no division is by almost nothing.
struct Problem {
  explicit Problem(const Shape& shape, uint32_t seed = 1);

  DecayArgs Args(int64_t first_row, int64_t rows);
  // All rows, by tiles.
  void Run(Kernel kernel);

  Shape shape;
  int64_t q_stride;
  int64_t k_stride;
  int64_t v_stride;
  int64_t o_stride;
  int64_t w_stride;
  std::vector<float> w;
  std::vector<float> bonus;  // [heads, key_dim]
  std::vector<float> q;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<float> o;
  std::vector<float> s;  // [heads, key_dim, value_dim], and a guard
  std::vector<float> z;  // [heads, key_dim], and a guard
};

// Runs both forms on a problem of the shape and expects what the recurrence in
// double gives, to rounding.
void CheckShape(const Shape& shape);

}  // namespace reprise

#endif  // TESTS_ENGINE_KERNELS_DECAY_PROBLEM_H_
