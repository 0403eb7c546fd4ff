#include "engine/model/packed_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/parallel.h"
#include "engine/model/packed_file_writer.h"
#include "tests/support/teams.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

const PackedIdentity kIdentity = {{"cpu", "some"}, {"a.bin", "12 bytes"}};

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

class PackedFileTest : public ::testing::Test {
 protected:
  PackedFileTest() { SetNumThreads(TeamOf(2)); }

  std::unique_ptr<PackedFileWriter> Writer() {
    auto writer = PackedFileWriter::Create(path_, kIdentity, 100, 0644);
    EXPECT_TRUE(writer.ok()) << writer.status();
    return *std::move(writer);
  }
  void WriteExample() {
    const auto writer = Writer();
    writer->Add("small", "row", AsBytes("weights"), "bias");
    writer->Add("large", "blocks", AsBytes(large_), "");
    EXPECT_TRUE(writer->Finish(digests_).ok());
  }
  absl::StatusOr<PackedFile> Open(const PackedIdentity& identity = kIdentity) {
    return PackedFile::Open(path_, identity, owners_);
  }
  // Everything in the file, as status.
  absl::Status ReadAll() {
    const auto file = Open();
    if (!file.ok()) return file.status();
    for (const char* key : {"small", "large"}) {
      const PackedBlock* block = file->Find(key);
      if (block == nullptr) return absl::InternalError("no block");
      std::vector<std::byte> weights(block->weight_bytes);
      if (auto s = file->ReadWeights(*block, weights); !s.ok()) return s;
      if (auto s = file->ReadOthers(*block).status(); !s.ok()) return s;
    }
    return absl::OkStatus();
  }
  std::string FileBytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  const TempDir dir_;
  const std::string path_ = dir_.Path("packed.bin");
  const std::string draft_ = path_ + ".new";
  const std::vector<uint32_t> owners_ = {geteuid()};
  // Three pieces, the last of one byte.
  const std::string large_ = std::string(2 * kPackedPieceBytes + 1, 'x');
  const Fingerprint::Digests digests_ = {{"a", Fingerprint::Digest{1, 2}}};
};

TEST_F(PackedFileTest, HoldsWhatWasWritten) {
  WriteExample();
  const auto file = Open();
  ASSERT_TRUE(file.ok()) << file.status();
  const PackedBlock* small = file->Find("small");
  const PackedBlock* large = file->Find("large");
  ASSERT_TRUE(small != nullptr && large != nullptr);
  EXPECT_EQ(small->layout, "row");
  std::string weights(small->weight_bytes, '\0');
  EXPECT_TRUE(
      file->ReadWeights(*small, std::as_writable_bytes(std::span(weights)))
          .ok());
  EXPECT_EQ(weights, "weights");
  EXPECT_EQ(*file->ReadOthers(*small), "bias");
  weights.assign(large->weight_bytes, '\0');
  EXPECT_TRUE(
      file->ReadWeights(*large, std::as_writable_bytes(std::span(weights)))
          .ok());
  EXPECT_EQ(weights, large_);
  EXPECT_EQ(*file->ReadOthers(*large), "");
  EXPECT_EQ(file->Find("other"), nullptr);
  EXPECT_EQ(*file->FindDigest("a"), digests_.at("a"));
  EXPECT_EQ(file->FindDigest("b"), nullptr);
  EXPECT_FALSE(fs::exists(draft_));
}

TEST_F(PackedFileTest, NoticesAnyByteThatChanged) {
  WriteExample();
  const std::string whole = FileBytes();
  const auto expect_noticed = [&](size_t at) {
    std::string damaged = whole;
    damaged[at] ^= 0x10;
    dir_.Write("packed.bin", damaged);
    EXPECT_FALSE(ReadAll().ok()) << at;
  };
  for (size_t at = 0; at < 64; ++at) expect_noticed(at);
  const size_t small = 64, large = 128;
  for (size_t at = small; at < small + 11; ++at) expect_noticed(at);
  for (const size_t at :
       {large, large + kPackedPieceBytes - 1, large + kPackedPieceBytes,
        large + 2 * kPackedPieceBytes}) {
    expect_noticed(at);
  }
  for (size_t at = large + large_.size(); at < whole.size(); ++at) {
    expect_noticed(at);
  }
  dir_.Write("packed.bin", whole);
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(PackedFileTest, NoticesThatItWasCut) {
  WriteExample();
  const std::string whole = FileBytes();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{63}, size_t{64},
                            size_t{100}, whole.size() / 2, whole.size() - 1}) {
    dir_.Write("packed.bin", whole.substr(0, size));
    EXPECT_EQ(ReadAll().code(), absl::StatusCode::kDataLoss) << size;
  }
  dir_.Write("packed.bin", whole + "x");
  EXPECT_EQ(ReadAll().code(), absl::StatusCode::kDataLoss);
}

TEST_F(PackedFileTest, NoticesThatItIsCutWhileItIsOpen) {
  WriteExample();
  const auto file = Open();
  ASSERT_TRUE(file.ok());
  fs::resize_file(path_, kPackedPieceBytes);
  const PackedBlock* large = file->Find("large");
  std::vector<std::byte> weights(large->weight_bytes);
  EXPECT_EQ(file->ReadWeights(*large, weights).code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(PackedFileTest, NamesWhatDiffers) {
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
  WriteExample();
  const auto refusal = [&](const PackedIdentity& identity) {
    const absl::Status status = Open(identity).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_EQ(refusal({{"cpu", "other"}, {"a.bin", "12 bytes"}}),
            "cpu was 'some' and is now 'other'");
  EXPECT_EQ(refusal({{"cpu", "some"}, {"b.bin", "12 bytes"}}),
            "it says nothing of 'b.bin'");
  EXPECT_EQ(refusal({{"cpu", "some"}}), "it was also made of 'a.bin'");
}

TEST_F(PackedFileTest, IsNotTakenFromAnybody) {
  WriteExample();
  const std::vector<uint32_t> others = {geteuid() + 1};
  EXPECT_EQ(PackedFile::Open(path_, kIdentity, others).status().code(),
            absl::StatusCode::kPermissionDenied);
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr("everybody may write it"));
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_TRUE(Open().ok());
}

TEST_F(PackedFileTest, IsAFileOfItsOwnAndNothingElse) {
  WriteExample();
  fs::rename(path_, dir_.Path("elsewhere"));
  fs::create_symlink(dir_.Path("elsewhere"), path_);
  EXPECT_FALSE(Open().ok());
  fs::remove(path_);
  fs::create_directory(path_);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kPermissionDenied);
  fs::remove(path_);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(PackedFileTest, AWriterThatDoesNotFinishLeavesTheOldFile) {
  WriteExample();
  const std::string before = FileBytes();
  {
    const auto writer = Writer();
    writer->Add("other", "row", AsBytes("weights"), "");
    EXPECT_TRUE(fs::exists(draft_));
  }
  EXPECT_FALSE(fs::exists(draft_));
  EXPECT_EQ(FileBytes(), before);
}

TEST_F(PackedFileTest, ADraftThatWasLeftBehindIsWrittenOver) {
  dir_.Write("packed.bin.new", std::string(5'000'000, 'z'));
  WriteExample();
  EXPECT_TRUE(ReadAll().ok());
  EXPECT_FALSE(fs::exists(draft_));
}

TEST_F(PackedFileTest, OneProcessWritesAtATime) {
  const int fd = open(draft_.c_str(), O_WRONLY | O_CREAT, 0644);
  ASSERT_EQ(flock(fd, LOCK_EX), 0);
  const auto second = PackedFileWriter::Create(path_, kIdentity, 100, 0644);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("another process is writing it"));
  EXPECT_TRUE(fs::exists(draft_)) << "it is the other process's";
  close(fd);
  WriteExample();
  EXPECT_TRUE(ReadAll().ok());
}

TEST_F(PackedFileTest, IsNotBegunWithoutRoom) {
  const auto writer =
      PackedFileWriter::Create(path_, kIdentity, int64_t{1} << 60, 0644);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(fs::exists(draft_));
  const auto nowhere = PackedFileWriter::Create(dir_.Path("no/packed.bin"),
                                                kIdentity, 100, 0644);
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kNotFound);
}

TEST_F(PackedFileTest, MayBeReadByWhomItIsMeantFor) {
  const auto writer = PackedFileWriter::Create(path_, kIdentity, 100, 0640);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->Finish({}).ok());
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms{0640});
}

TEST(FileHandleTest, TellsWhenTheDiskIsFull) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full";
  const FileHandle handle(full);
  EXPECT_EQ(handle.WriteAt(0, "x").code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace reprise
