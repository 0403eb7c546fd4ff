// How far loading a model has come, told to whoever waits for it, and what else
// goes along with loading.
#ifndef ENGINE_MODEL_LOAD_PROGRESS_H_
#define ENGINE_MODEL_LOAD_PROGRESS_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "engine/base/clock.h"

namespace reprise {

struct LoadProgress {
  int64_t done_bytes = 0;   // of the tensors that the model uses, as in the
  int64_t total_bytes = 0;  // files; a tensor used twice counts twice
  double seconds = 0;       // since loading began
  int percent() const {
    return total_bytes == 0
               ? 100
               : static_cast<int>(100.0 * static_cast<double>(done_bytes) /
                                  static_cast<double>(total_bytes));
  }
};

// Called on the thread that loads; must not throw.
using LoadProgressCallback = std::function<void(const LoadProgress&)>;

// Counts bytes, and calls back when loading has taken two seconds, and then at
// most once a second: never for a model that is there at once. Used by one
// thread.
class LoadMeter {
 public:
  // `clock` must outlive the meter; `callback` may be empty.
  LoadMeter(LoadProgressCallback callback, const Clock& clock)
      : callback_(std::move(callback)),
        clock_(clock),
        start_ns_(clock.MonotonicNs()),
        next_ns_(start_ns_ + kFirstNs) {}

  // Begins to count, again if need be.
  void Start(int64_t total_bytes) {
    done_bytes_ = 0;
    total_bytes_ = total_bytes;
  }
  void Add(int64_t bytes) {
    done_bytes_ += bytes;
    if (!callback_) return;
    const int64_t now_ns = clock_.MonotonicNs();
    if (now_ns < next_ns_) return;
    next_ns_ = now_ns + kIntervalNs;
    callback_({.done_bytes = done_bytes_,
               .total_bytes = total_bytes_,
               .seconds = 1e-9 * static_cast<double>(now_ns - start_ns_)});
  }

 private:
  static constexpr int64_t kFirstNs = 2'000'000'000;
  static constexpr int64_t kIntervalNs = 1'000'000'000;

  const LoadProgressCallback callback_;
  const Clock& clock_;
  const int64_t start_ns_;
  int64_t next_ns_;
  int64_t done_bytes_ = 0;
  int64_t total_bytes_ = 0;
};

class PackedCache;

// What loading may do beside making weights; null: nothing.
struct LoadAids {
  PackedCache* cache = nullptr;
  LoadMeter* meter = nullptr;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_LOAD_PROGRESS_H_
