// What store_writer writes and rocksdb_store_test.cc expects.
#ifndef TESTS_SERVER_STORE_WRITER_PATTERN_H_
#define TESTS_SERVER_STORE_WRITER_PATTERN_H_

#include <cstdint>
#include <string>

namespace reprise {

inline constexpr uint64_t kWriterSessions = 7;
inline constexpr uint64_t kWriterCheckpointBytes = 65'000;  // three of them

inline std::string WriterSnapshot(uint64_t session, uint64_t revision) {
  return std::string(20'000 + session * 100 + revision % 100,
                     static_cast<char>(session * 31 + revision));
}

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_WRITER_PATTERN_H_
