#include "tools/bench/limits.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/large_buffer.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"

namespace reprise::bench {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

namespace {

// How far ahead lines are fetched: on a Xeon of 2023 whose memory delivers 10
// to 30 GB/s, what the CPU fetches by itself is a fifth slower.
constexpr int64_t kAheadBytes = 8 << 10;
constexpr int64_t kLineBytes = 64;

// A byte of every line, so that nothing but memory takes time.
int64_t ReadLines(const std::byte* data, int64_t bytes) {
  int64_t sum = 0;
  for (int64_t i = 0; i < bytes; i += kLineBytes) {
    __builtin_prefetch(data + i + kAheadBytes);
    sum += static_cast<int64_t>(data[i]);
  }
  return sum;
}

}  // namespace

MemoryReader::MemoryReader(int64_t bytes)
    : buffer_(
          static_cast<size_t>(std::clamp<int64_t>(bytes, 4096, kMostBytes))),
      sums_(static_cast<size_t>(NumThreads()) * kSumsApart) {
  // Pages that nobody wrote to are one page of zeros, and in the cache.
  const int64_t size = buffer_bytes();
  const int64_t threads = NumThreads();
  ParallelFor(threads, [&](int64_t t) {
    const int64_t first = size * t / threads;
    std::memset(buffer_.data() + first, 1,
                static_cast<size_t>(size * (t + 1) / threads - first));
  });
}

double MemoryReader::Read() {
  constexpr int64_t kLeastBytes = 64 << 20;
  const int64_t size = buffer_bytes();
  const int64_t repeats = std::max<int64_t>(1, kLeastBytes / size);
  const int64_t threads = NumThreads();
  const double start = NowSeconds();
  ParallelFor(threads, [&](int64_t t) {
    const int64_t first = size * t / threads;
    const int64_t last = size * (t + 1) / threads;
    for (int64_t r = 0; r < repeats; ++r) {
      // Kept, so that nobody can leave out the reading.
      sums_[t * kSumsApart] += ReadLines(buffer_.data() + first, last - first);
    }
  });
  return static_cast<double>(size * repeats) / (NowSeconds() - start);
}

int64_t MemoryReader::buffer_bytes() const {
  return static_cast<int64_t>(buffer_.size());
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
