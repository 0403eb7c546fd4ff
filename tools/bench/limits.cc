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

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

MemoryReader::MemoryReader(int64_t bytes)
    : floats_(std::clamp<int64_t>(bytes, 4096, kMostBytes) / 4),
      buffer_(static_cast<size_t>(floats_) * sizeof(float)),
      sums_(static_cast<size_t>(NumThreads()) * 16) {
  // Pages that nobody wrote to are one page of zeros, and in the cache.
  auto* const data = reinterpret_cast<float*>(buffer_.data());
  const int64_t threads = NumThreads();
  ParallelFor(threads, [&](int64_t t) {
    std::fill(data + floats_ * t / threads, data + floats_ * (t + 1) / threads,
              1.0f);
  });
}

double MemoryReader::Read() {
  constexpr int64_t kLeastFloats = 16 << 20;
  const int64_t repeats = std::max<int64_t>(1, kLeastFloats / floats_);
  const int threads = NumThreads();
  const auto* const data = reinterpret_cast<const float*>(buffer_.data());
  const double start = NowSeconds();
  ParallelFor(threads, [&](int64_t t) {
    const int64_t first = floats_ * t / threads;
    const int64_t last = floats_ * (t + 1) / threads;
    for (int64_t r = 0; r < repeats; ++r) {
      // Kept, so that nobody can leave out the reading.
      sums_[t * 16] += Sum(data + first, last - first);
    }
  });
  return 4.0 * floats_ * repeats / (NowSeconds() - start);
}

namespace {

// The median of a third of a second.
double ReadSpeed(int64_t bytes) {
  constexpr double kSeconds = 0.3;
  MemoryReader reader(bytes);
  std::vector<double> speeds;
  const double end = NowSeconds() + kSeconds;
  do {
    speeds.push_back(reader.Read());
  } while (NowSeconds() < end);
  return Median(std::move(speeds));
}

absl::StatusOr<double> MeasureMatmulRate(WeightType type) {
  // (in, out): what layers of 0.1 to 1 billion parameters are made of.
  constexpr std::pair<int64_t, int64_t> kShapes[] = {
      {768, 2304}, {768, 3072}, {1024, 4096}, {2048, 2048}};
  constexpr double kSecondsPerShape = 0.25;
  constexpr int64_t kRows = MachineLimits::kMatmulRows;
  double best = 0;
  LinearScratch scratch;
  for (const auto& shape : kShapes) {
    const int64_t in = shape.first;
    const int64_t out = shape.second;
    std::vector<float> weight(in * out, 0.01f);
    ASSIGN_OR_RETURN(const Linear linear,
                     Linear::Create({weight.data(), out, in}, {},
                                    {.type = type, .max_rows = kRows}));
    std::vector<float> x(PaddedRows(kRows) * in, 1.0f);
    std::vector<float> y(PaddedRows(kRows) * out);
    const auto apply = [&] {
      linear.Apply({x.data(), kRows, in}, {y.data(), kRows, out}, scratch);
    };
    apply();
    const double end = NowSeconds() + kSecondsPerShape;
    do {
      const double start = NowSeconds();
      apply();
      best = std::max(best, 2.0 * kRows * in * out / (NowSeconds() - start));
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

absl::StatusOr<MachineLimits> MachineLimits::Measure(WeightType type,
                                                     int64_t weight_bytes) {
  MachineLimits limits;
  limits.memory_speed = ReadSpeed(MemoryReader::kMostBytes);
  limits.weights_speed = ReadSpeed(weight_bytes);
  ASSIGN_OR_RETURN(limits.matmul_rate, MeasureMatmulRate(type));
  return limits;
}

}  // namespace reprise::bench
