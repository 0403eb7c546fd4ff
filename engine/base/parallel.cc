#include "engine/base/parallel.h"

#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "engine/base/log.h"

namespace reprise {
namespace {

std::atomic<int> g_threads{1};

// Below this the team costs more than it brings: waking it takes about a
// microsecond, in which one core passes over some ten thousand floats in its
// cache.
constexpr int64_t kFloatsWorthATeam = 16384;

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

void ForEach(int64_t n, int64_t floats_each,
             absl::FunctionRef<void(int64_t)> body) {
  if (n * floats_each >= kFloatsWorthATeam) {
    ParallelFor(n, body);
    return;
  }
  for (int64_t i = 0; i < n; ++i) body(i);
}

void RestartWithEnvironment(char** argv) {
  constexpr const char* kGuard = "REPRISE_RESTARTED";
  if (std::getenv(kGuard) != nullptr) {
    unsetenv(kGuard);
    return;
  }
  bool changed = false;
  const auto set = [&changed](const char* name, const char* value) {
    if (std::getenv(name) != nullptr) return;
    setenv(name, value, /*overwrite=*/0);
    changed = true;
  };
  // The policy says how to wait, too.
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) set("GOMP_SPINCOUNT", "2000");
  set("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1");
  if (!changed) return;
  // Not argv[0], which may be a name to be found in PATH, nor /proc/self/exe,
  // which would be shown as the program's name.
  std::error_code error;
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe", error).string();
  setenv(kGuard, "1", /*overwrite=*/1);
  execv(path.c_str(), argv);
  unsetenv(kGuard);
}

}  // namespace reprise
