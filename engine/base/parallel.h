// The one team of threads that the engine computes with: OpenMP's, which
// oneDNN uses too, so that no two teams fight over the cores.
#ifndef ENGINE_BASE_PARALLEL_H_
#define ENGINE_BASE_PARALLEL_H_

#include <cstdint>

#include "absl/functional/function_ref.h"

namespace reprise {

// Threads of the team of the calling thread, and of ParallelFor. Call it once
// on the thread that will run the engine, before oneDNN is used. 1 or more.
void SetNumThreads(int threads);
int NumThreads();

// Runs body(i) for every i in [0, n), cut into NumThreads() runs of
// neighbours, one for each thread; a thread that is done helps with the runs of
// others, which may wait for a core. Returns when all are done. With one thread
// (or n < 2) it is a plain loop. `body` must not throw, and must not start
// another ParallelFor.
void ParallelFor(int64_t n, absl::FunctionRef<void(int64_t)> body);

// body(i) for every i in [0, n), as ParallelFor does if the work, about
// `floats_each` numbers read or written for each i, is worth
// waking the team.
void ForEach(int64_t n, int64_t floats_each,
             absl::FunctionRef<void(int64_t)> body);

// Starts the program again, once, with what libraries read from the environment
// before main, each unless the user has set it. Call it first in main. Where a
// restart is not possible it returns: slower, but right.
//
// GOMP_SPINCOUNT: a bounded spin of OpenMP's threads. The default is a busy
// wait that costs a whole slice of the system's scheduler at every barrier once
// anything else runs (180 ms at the 99th percentile of a step).
// GLIBC_TUNABLES: large blocks of the heap lie in huge pages. A snapshot of 20
// MB has five thousand small ones, and touching them for the first time took 52
// ms in a virtual machine (EPYC 9005) where copying it takes 0.6 ms.
void RestartWithEnvironment(char** argv);

}  // namespace reprise

#endif  // ENGINE_BASE_PARALLEL_H_
