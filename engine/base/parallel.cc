#include "engine/base/parallel.h"

#include <omp.h>

#include <atomic>

#include "engine/base/log.h"

namespace reprise {
namespace {

std::atomic<int> g_threads{1};

}  // namespace

void SetNumThreads(int threads) {
  CHECK(threads >= 1);
  g_threads = threads;
  omp_set_num_threads(threads);
}

int NumThreads() { return g_threads; }

void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> body) {
  const int threads = NumThreads();
  if (threads == 1 || n < 2) {
    for (int64_t i = 0; i < n; ++i) body(i);
    return;
  }
#pragma omp parallel for schedule(static) num_threads(threads)
  for (int64_t i = 0; i < n; ++i) body(i);
}

}  // namespace reprise
