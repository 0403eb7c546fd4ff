// RocksDB's warnings and errors among our own. For rocksdb_database.cc alone.
#ifndef SERVER_STORE_ROCKSDB_LOG_H_
#define SERVER_STORE_ROCKSDB_LOG_H_

#include <rocksdb/env.h>

#include <cstdarg>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "engine/base/clock.h"
#include "engine/base/mutex.h"

namespace reprise {

// Not in RocksDB's own LOG file: Debian's build has assertions, and one of them
// ends the process when that file is written to again after the disk was full.
//
// At most kLinesPerMinute lines a minute: when descriptors or the disk run out,
// RocksDB says so several times for every call. Thread-safe.
class RocksDbLog : public rocksdb::Logger {
 public:
  static constexpr int64_t kLinesPerMinute = 10;

  // `clock` must outlive the log.
  explicit RocksDbLog(const Clock& clock);

  void Logv(const char* format, va_list arguments) override;
  using Logger::Logv;

 private:
  const Clock& clock_;
  Mutex mu_;
  int64_t minute_start_ns_ ABSL_GUARDED_BY(mu_);
  int64_t lines_ ABSL_GUARDED_BY(mu_) = 0;  // since then, logged or not
};

}  // namespace reprise

#endif  // SERVER_STORE_ROCKSDB_LOG_H_
