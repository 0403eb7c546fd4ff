// The functions that turn projections into gates and decays, element by
// element, in Highway SIMD. NaN stays NaN where nothing else is
// said. Free functions as in simd_ops.h.
#ifndef ENGINE_KERNELS_GATE_OPS_H_
#define ENGINE_KERNELS_GATE_OPS_H_

#include <cstdint>

namespace reprise {

// In place: exp(x); 1 / (1 + exp(-x)); log(1 + exp(x)); tanh(x); max(x, 0)^2;
// exp(-exp(x)).
void Exp(float* x, int64_t n);
void Sigmoid(float* x, int64_t n);
void Softplus(float* x, int64_t n);
void Tanh(float* x, int64_t n);
void SquaredRelu(float* x, int64_t n);
void ExpMinusExp(float* x, int64_t n);

// exp(x), in place, for x of at most 0 (or minus infinity, but not NaN): what
// probabilities are made of. Right to one unit in the last place.
void ExpOfNonPositive(double* x, int64_t n);

// terms[i] = exp((x[i] - highest) / temperature), or 0 where x[i] is not
// finite, and their sum: softmax before the division. No finite x[i] is above
// `highest`; temperature > 0 (below 2^-128 it counts as that). A term is right
// to two units in the last place, and what three roundings of its exponent make
// of it; below 2^-126 it is 0. For some hundred numbers: the sum is f32's.
double SoftmaxTerms(const float* x, int64_t n, float highest, float temperature,
                    float* terms);

// exp(max(factor log(sigmoid(x)), min_log)), in place.
struct SigmoidPower {
  float factor = 1;
  float min_log = 0;
};
void PowerOfSigmoid(const SigmoidPower& power, int64_t n, float* x);

// out[i] = exp(a[i] b[i]).
void ExpOfProduct(const float* a, const float* b, int64_t n, float* out);

// out[i] = a[i] + (b[i] - a[i]) t[i], between a (t = 0) and b (t = 1). out may
// be a, b or t.
void Interpolate(const float* a, const float* b, const float* t, int64_t n,
                 float* out);

// o[i] = (o[i] + d[i] x[i]) silu(z[i]).
void SkipAndGate(const float* d, const float* x, const float* z, int64_t n,
                 float* o);

// out[i] = a[i] x[i] + y[i]. out may be a, x or y.
void MultiplyAdd(const float* a, const float* x, const float* y, int64_t n,
                 float* out);

// out[i] = a[i] - b[i].
void Subtract(const float* a, const float* b, int64_t n, float* out);

// RWKV-7's key and what it removes, of a key k, its unit vector kk, the rate a
// and the weight k_a: k[i] *= 1 + (a[i] - 1) k_a[i], then a[i] *= -kk[i].
void ScaleKey(const float* kk, const float* k_a, int64_t n, float* k, float* a);

// o[i] = (o[i] + bonus v[i]) g[i].
void AddAndGate(float bonus, const float* v, const float* g, int64_t n,
                float* o);

}  // namespace reprise

#endif  // ENGINE_KERNELS_GATE_OPS_H_
