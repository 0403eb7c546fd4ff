#include "engine/base/parallel.h"

#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

// Larger teams have several threads begin with one share.
constexpr int64_t kMostShares = 64;
// Pieces of a share: what is left to one thread at the end is at most one.
constexpr int64_t kPieces = 8;

// Neighbouring indices, of which any thread takes the next few.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
  int64_t piece = 1;
};

void RunShare(Share& share, absl::FunctionRef<void(int64_t)> body) {
  while (true) {
    const int64_t first = share.next.fetch_add(share.piece);
    if (first >= share.end) return;
    const int64_t last = std::min(first + share.piece, share.end);
    for (int64_t i = first; i < last; ++i) body(i);
  }
}

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
  const int64_t count = std::min<int64_t>({threads, n, kMostShares});
  std::array<Share, kMostShares> shares;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t first = n * i / count;
    const int64_t end = n * (i + 1) / count;
    shares[i].next = first;
    shares[i].end = end;
    shares[i].piece = std::max<int64_t>(1, (end - first) / kPieces);
  }
#pragma omp parallel num_threads(threads)
  {
    const int64_t own = omp_get_thread_num();
    for (int64_t i = 0; i < count; ++i) {
      RunShare(shares[(own + i) % count], body);
    }
  }
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
