#include "server/store/rocksdb_log.h"

#include <algorithm>
#include <cstdio>

#include "engine/base/log.h"

namespace reprise {

RocksDbLog::RocksDbLog(const Clock& clock)
    : Logger(rocksdb::InfoLogLevel::WARN_LEVEL),
      clock_(clock),
      minute_start_ns_(clock.MonotonicNs()) {}

void RocksDbLog::Logv(const char* format, va_list arguments) {
  constexpr int64_t kMinuteNs = 60'000'000'000;
  int64_t left_out = 0;
  {
    const int64_t now_ns = clock_.MonotonicNs();
    MutexLock lock(mu_);
    if (now_ns - minute_start_ns_ >= kMinuteNs) {
      left_out = std::max<int64_t>(0, lines_ - kLinesPerMinute);
      minute_start_ns_ = now_ns;
      lines_ = 0;
    }
    if (++lines_ > kLinesPerMinute) return;
  }
  if (left_out > 0) {
    LogWarning("rocksdb: lines were left out", {{"lines", left_out}});
  }
  char line[512];
  std::vsnprintf(line, sizeof(line), format, arguments);
  LogWarning("rocksdb", {{"message", line}});
}

}  // namespace reprise
