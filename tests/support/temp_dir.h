// A folder that a test writes to, gone with the test.
#ifndef TESTS_SUPPORT_TEMP_DIR_H_
#define TESTS_SUPPORT_TEMP_DIR_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace reprise {

class TempDir {
 public:
  TempDir() : path_(::testing::TempDir() + "reprise.XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  // The last part of the path, another for every folder.
  std::string name() const { return path_.substr(path_.rfind('/') + 1); }
  std::string Path(const std::string& name) const { return path_ + "/" + name; }

  // Writes a file, over an old one if need be, and returns its path.
  std::string Write(const std::string& name, std::string_view bytes) const {
    const std::string path = Path(name);
    std::ofstream file(path, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    EXPECT_TRUE(file.good());
    return path;
  }

 private:
  std::string path_;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_TEMP_DIR_H_
