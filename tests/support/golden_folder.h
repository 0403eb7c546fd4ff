// Golden data that are too large for the repository or other people's.
#ifndef TESTS_SUPPORT_GOLDEN_FOLDER_H_
#define TESTS_SUPPORT_GOLDEN_FOLDER_H_

#include <cstdlib>
#include <filesystem>

namespace reprise {

// What $REPRISE_GOLDEN names, or else a folder of golden data beside the
// repository. It need not exist: tests that miss their data are skipped.
inline std::filesystem::path GoldenFolder() {
  if (const char* folder = std::getenv("REPRISE_GOLDEN")) return folder;
  return std::filesystem::path(REPRISE_SOURCE_DIR) / ".." / "shared" / "golden";
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_GOLDEN_FOLDER_H_
