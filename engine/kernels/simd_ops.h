// Row-wise and element-wise operations on f32, in Highway SIMD with run-time
// dispatch. All are free functions on pointers: they allocate nothing, keep
// nothing, and may be called from any thread. A row's result depends on that
// row alone.
#ifndef ENGINE_KERNELS_SIMD_OPS_H_
#define ENGINE_KERNELS_SIMD_OPS_H_

#include <cstdint>

namespace reprise {

// out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]. `weight` may be null
// (ones). out may be x. (Zhang and Sennrich 2019, equation 4.)
void RmsNorm(const float* x, const float* weight, int64_t n, float eps,
             float* out);

// out[i] = (x[i] - mean) / sqrt(var + eps) * weight[i] + bias[i]. `weight` and
// `bias` may be null (ones, zeros). out may be x. (Ba et al. 2016, equation 4.)
void LayerNorm(const float* x, const float* weight, const float* bias,
               int64_t n, float eps, float* out);

// y[i] += x[i].
void AddInto(const float* x, int64_t n, float* y);

// out[i] = a[i] * b[i]. out may be a or b.
void Multiply(const float* a, const float* b, int64_t n, float* out);

// Activations in place: relu; gelu in its exact form 0.5 x (1 + erf(x/sqrt 2));
// silu(x) = x * sigmoid(x); elu(x) + 1, that is x + 1 for x > 0, else exp(x).
void Relu(float* x, int64_t n);
void GeluExact(float* x, int64_t n);
void Silu(float* x, int64_t n);
void EluPlusOne(float* x, int64_t n);

// out[i] = silu(gate[i]) * up[i]. out may be gate or up. (Shazeer 2020,
// SwiGLU without its linear maps.)
void SiluMultiply(const float* gate, const float* up, int64_t n, float* out);

// x = softmax(x), in place, with the maximum subtracted first.
void Softmax(float* x, int64_t n);

float Sum(const float* x, int64_t n);
// The largest element; n >= 1.
float Max(const float* x, int64_t n);
// x[i] *= factor.
void Scale(float factor, int64_t n, float* x);

// Exact widening conversions from the types that checkpoints hold.
void Bf16ToF32(const uint16_t* x, int64_t n, float* out);
void F16ToF32(const uint16_t* x, int64_t n, float* out);
// Round to nearest, ties to even; NaN stays NaN.
void F32ToBf16(const float* x, int64_t n, uint16_t* out);
// Whether every element is finite.
bool AllFinite(const float* x, int64_t n);
// The highest of the finite ones, or minus infinity if there is none.
float HighestFinite(const float* x, int64_t n);
// out[i] = x[i], or minus infinity where x[i] is not finite. out may be x.
void KeepFinite(const float* x, int64_t n, float* out);

}  // namespace reprise

#endif  // ENGINE_KERNELS_SIMD_OPS_H_
