// Runs a test on every SIMD target that this CPU has.
#ifndef TESTS_ENGINE_KERNELS_SIMD_TARGETS_H_
#define TESTS_ENGINE_KERNELS_SIMD_TARGETS_H_

#include <gtest/gtest.h>

#include <functional>

#include "hwy/targets.h"

namespace reprise {

// Calls body() once per target that Highway compiled and the CPU supports.
// Not thread-safe: the choice of target belongs to the process.
inline void ForEveryTarget(const std::function<void()>& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    body();
    if (testing::Test::HasFailure()) break;
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
}

}  // namespace reprise

#endif  // TESTS_ENGINE_KERNELS_SIMD_TARGETS_H_
