// How far a write is on its way to the disk when it is acknowledged. Of stores
// that write to a disk themselves.
#ifndef SERVER_DURABILITY_H_
#define SERVER_DURABILITY_H_

#include <array>
#include <cstdint>

namespace reprise {

enum class Durability {
  // On the disk.
  kFsync,
  // With the operating system: the end of the process cannot take it back. On
  // the disk within kAsyncSyncMs and the time that takes.
  kAsync,
  // In the process's memory. On the disk within kNoneFlushMs and the time that
  // takes, sooner if there is much of it, and when the store is closed.
  kNone,
};

inline constexpr int64_t kAsyncSyncMs = 100;
inline constexpr int64_t kNoneFlushMs = 10'000;

inline constexpr std::array<Durability, 3> kDurabilities = {
    Durability::kFsync, Durability::kAsync, Durability::kNone};

constexpr const char* DurabilityName(Durability durability) {
  switch (durability) {
    case Durability::kFsync:
      return "fsync";
    case Durability::kAsync:
      return "async";
    case Durability::kNone:
      break;
  }
  return "none";
}

}  // namespace reprise

#endif  // SERVER_DURABILITY_H_
