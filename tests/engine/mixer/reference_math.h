// What the references of several mixers have in common.
#ifndef TESTS_ENGINE_MIXER_REFERENCE_MATH_H_
#define TESTS_ENGINE_MIXER_REFERENCE_MATH_H_

#include <cstdint>

#include "engine/model/activation.h"
#include "engine/model/block_description.h"
#include "engine/model/short_conv_description.h"
#include "tests/engine/mixer/reference.h"

namespace reprise {

// y = W x + b, W is [out, in].
Doubles Apply(const LinearRef& ref, const Doubles& x,
              const ReferenceTensors& tensors, ReferenceRounding rounding);

double Sigmoid(double x);

Doubles Normalized(const NormDescription& norm, const Doubles& x,
                   const ReferenceTensors& tensors);

// The numbers of one head.
Doubles HeadOf(const Doubles& x, int64_t head, int64_t dim);

double Silu(double x);
double Softplus(double x);
double Activated(Activation activation, double x);

// The convolution of x and the inputs in `state`, [channels, taps], which x
// enters; empty is a new session.
Doubles Convolved(const ShortConvDescription& conv, const Doubles& x,
                  const ReferenceTensors& tensors, Doubles& state);

}  // namespace reprise

#endif  // TESTS_ENGINE_MIXER_REFERENCE_MATH_H_
