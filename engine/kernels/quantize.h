// Rows of f32 as 8-bit integers with one scale, and integer sums back to f32,
// in Highway SIMD with run-time dispatch. Free functions on pointers, from any
// thread; a row's result depends on that row alone.
//
// Symmetric: with s = max |x| / 127, q[i] is x[i] / s rounded to the nearest
// integer, ties to even, so in [-127, 127], and x[i] = s (q[i] + e), |e| <= 1/2
// but for the rounding of the division. The range leaves out -128, so that a
// row and its negative have the same numbers.
//
// A row that holds NaN or infinity has the scale NaN, and zeros: whatever is
// computed from it becomes NaN, and never a number.
#ifndef ENGINE_KERNELS_QUANTIZE_H_
#define ENGINE_KERNELS_QUANTIZE_H_

#include <cstdint>

namespace reprise {

// All return the scale, which is above 0 or NaN. Numbers below 2^-119 may
// become zero.
float QuantizeSigned(const float* x, int64_t n, int8_t* q);
// q[i] + 128.
float QuantizeShifted(const float* x, int64_t n, uint8_t* q);

// The scales that turn sums of products back into numbers.
struct Dequantizer {
  const float* column_scales;  // [n]
  const float* bias;           // [n], or null: zeros
  const int32_t* offsets;      // [n], or null: zeros
  float row_scale;
};

// y[i] = float(sums[i] - offsets[i]) * column_scales[i] * row_scale + bias[i],
// rounded after each multiplication, the second one together with the addition
// where the CPU has fused ones (from AVX2 on). y may be where sums are.
void Dequantize(const Dequantizer& scales, const int32_t* sums, int64_t n,
                float* y);

}  // namespace reprise

#endif  // ENGINE_KERNELS_QUANTIZE_H_
