// A disk that can be full: a tmpfs, which only this process sees.
#ifndef TESTS_SUPPORT_SMALL_DISK_H_
#define TESTS_SUPPORT_SMALL_DISK_H_

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

#include <string>

namespace reprise {

// Gives the process mounts of its own before any thread: each keeps those that
// it began with, and RocksDB's stay for the life of the process.
class OwnMounts : public ::testing::Environment {
 public:
  void SetUp() override {
    granted = unshare(CLONE_NEWNS) == 0 &&
              mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
  }
  inline static bool granted = false;
};
inline const auto* const kOwnMounts =
    ::testing::AddGlobalTestEnvironment(new OwnMounts);

// Over the folder; `size` is the tmpfs's. False without the right to mount
// (CAP_SYS_ADMIN).
inline bool MountSmallDisk(const std::string& folder, const std::string& size) {
  return OwnMounts::granted && mount("tmpfs", folder.c_str(), "tmpfs", 0,
                                     ("size=" + size).c_str()) == 0;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_SMALL_DISK_H_
