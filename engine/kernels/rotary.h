// Rotary positions (Su et al. 2021): pairs of a head's numbers turn by angles
// that grow with the position. The pairs are (i, i + half), "rotate-half".
#ifndef ENGINE_KERNELS_ROTARY_H_
#define ENGINE_KERNELS_ROTARY_H_

#include <cstdint>

namespace reprise {

// cos_sin[i] and cos_sin[half + i] become cosine and sine of the angle
// 2 pi position turns[i], for i < half: of pairs that make turns[i] turns per
// token. The angle is taken in double, so that it is good to 1e-7 at any
// position below 2^31.
void RotaryAngles(const double* turns, int64_t half, int64_t position,
                  float* cos_sin);

// (x[i], x[half + i]) turn by the i-th angle, for i < half.
void Rotate(const float* cos_sin, int64_t half, float* x);

}  // namespace reprise

#endif  // ENGINE_KERNELS_ROTARY_H_
