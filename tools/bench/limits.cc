#include "tools/bench/limits.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/large_buffer.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"

namespace reprise::bench {
namespace {

double MeasureReadSpeed(int64_t bytes) {
  constexpr int64_t kMinBytesPerPass = 64 << 20;
  constexpr double kSeconds = 0.3;
  const int64_t floats = std::max<int64_t>(bytes / 4, 1024);
  const int threads = NumThreads();
  const int64_t repeats = std::max<int64_t>(1, kMinBytesPerPass / (floats * 4));
  // In huge pages, as weights are.
  const LargeBuffer buffer(static_cast<size_t>(floats) * sizeof(float));
  float* const data = reinterpret_cast<float*>(buffer.data());
  std::vector<float> sums(threads * 16);  // a cache line each
  const auto for_shares = [&](auto body) {
    ParallelFor(threads, [&](int64_t t) {
      const int64_t first = floats * t / threads;
      const int64_t last = floats * (t + 1) / threads;
      body(t, std::span(data + first, static_cast<size_t>(last - first)));
    });
  };
  for_shares([](int64_t, std::span<float> share) {
    std::fill(share.begin(), share.end(), 1.0f);
  });
  const auto pass = [&] {
    for_shares([&](int64_t t, std::span<float> share) {
      for (int64_t r = 0; r < repeats; ++r) {
        sums[t * 16] += Sum(share.data(), std::ssize(share));
      }
    });
  };
  pass();
  double best = 0;
  const double end = NowSeconds() + kSeconds;
  do {
    const double start = NowSeconds();
    pass();
    best = std::max(best, 4.0 * floats * repeats / (NowSeconds() - start));
  } while (NowSeconds() < end);
  // The sums are used, so the loads cannot be optimised away.
  return sums[0] == 0 ? 0 : best;
}

absl::StatusOr<double> MeasureMatmulRate(WeightType type, int64_t rows) {
  // (in, out): what layers of 0.1 to 1 billion parameters are made of.
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {768, 2304}, {768, 3072}, {1024, 4096}, {2048, 2048}};
  constexpr double kSecondsPerShape = 0.25;
  double best = 0;
  LinearScratch scratch;
  for (const auto& shape : kShapes) {
    const int64_t in = shape.first;
    const int64_t out = shape.second;
    std::vector<float> weight(in * out, 0.01f);
    ASSIGN_OR_RETURN(const Linear linear,
                     Linear::Create({weight.data(), out, in}, {},
                                    {.type = type, .max_rows = rows}));
    std::vector<float> x(PaddedRows(rows) * in, 1.0f);
    std::vector<float> y(PaddedRows(rows) * out);
    const auto apply = [&] {
      linear.Apply({x.data(), rows, in}, {y.data(), rows, out}, scratch);
    };
    apply();
    const double end = NowSeconds() + kSecondsPerShape;
    do {
      const double start = NowSeconds();
      apply();
      best = std::max(best, 2.0 * rows * in * out / (NowSeconds() - start));
    } while (NowSeconds() < end);
  }
  return best;
}

}  // namespace

int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  int64_t kilobytes = 0;
  for (std::string unit; file >> name >> kilobytes;) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

int64_t ResidentMemory() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

absl::StatusOr<MachineLimits> MachineLimits::Measure(WeightType type) {
  MachineLimits limits;
  limits.ReadSpeed(kMostBytes);
  ASSIGN_OR_RETURN(limits.matmul_rate_, MeasureMatmulRate(type, kMatmulRows));
  return limits;
}

double MachineLimits::ReadSpeed(int64_t bytes) {
  bytes = std::min(bytes, kMostBytes);
  const auto [place, is_new] = read_speeds_.try_emplace(bytes);
  if (is_new) place->second = MeasureReadSpeed(bytes);
  // A larger array is not read faster: where it was, the smaller one had bad
  // luck.
  double best = 0;
  for (auto it = place; it != read_speeds_.end(); ++it) {
    best = std::max(best, it->second);
  }
  return best;
}

}  // namespace reprise::bench
