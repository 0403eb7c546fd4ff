#include "engine/model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/safetensors_writer.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

std::string Message(const absl::Status& status) {
  return std::string(status.message());
}

std::string SmallFile(const std::string& name = "t") {
  SafetensorsWriter writer;
  writer.AddF32(name, {2, 2}, {1, 2, 3, 4});
  return writer.File();
}

std::vector<float> MustReadF32(const Checkpoint& checkpoint,
                               std::string_view name) {
  const TensorInfo* tensor = checkpoint.Find(name);
  EXPECT_NE(tensor, nullptr) << name;
  if (tensor == nullptr) return {};
  std::vector<float> values(static_cast<size_t>(tensor->elements));
  const absl::Status status = checkpoint.ReadF32(name, values);
  EXPECT_TRUE(status.ok()) << status;
  return values;
}

TEST(CheckpointTest, ReadsASingleFile) {
  TempDir dir;
  dir.Write("model.safetensors", SmallFile());
  const auto checkpoint = Checkpoint::Open(dir.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Find("t")->shape, ElementsAre(2, 2));
  EXPECT_THAT(MustReadF32(*checkpoint, "t"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(checkpoint->Find("u"), nullptr);
}

TEST(CheckpointTest, ConvertsHalfTypesAtAnyAddress) {
  SafetensorsWriter writer;
  // One byte first, so that nothing after it is aligned.
  writer.Add("byte", "U8", {1}, "x");
  // Values and their bits by IEEE 754: 1, -2, 65504 (largest), 2^-24 (least).
  writer.Add("f16", "F16", {4},
             BytesOf<uint16_t>({0x3c00, 0xc000, 0x7bff, 0x0001}));
  writer.Add("bf16", "BF16", {3}, BytesOf<uint16_t>({0x3f80, 0xc000, 0x4049}));
  writer.AddF32("f32", {1}, {0.1F});
  TempDir dir;
  const auto checkpoint =
      Checkpoint::OpenFile(dir.Write("x.safetensors", writer.File()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(MustReadF32(*checkpoint, "f16"),
              ElementsAre(1.0F, -2.0F, 65504.0F, std::ldexp(1.0F, -24)));
  EXPECT_THAT(MustReadF32(*checkpoint, "bf16"),
              ElementsAre(1.0F, -2.0F, 3.140625F));
  EXPECT_THAT(MustReadF32(*checkpoint, "f32"), ElementsAre(0.1F));
}

TEST(CheckpointTest, ReadsTensorsLongerThanOnePiece) {
  std::vector<float> values(10'001);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  SafetensorsWriter writer;
  writer.AddF32("t", {10'001}, values);
  TempDir dir;
  const auto checkpoint =
      Checkpoint::OpenFile(dir.Write("x.safetensors", writer.File()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(MustReadF32(*checkpoint, "t"), values);
}

TEST(CheckpointTest, RefusesNumbersThatAreNotFinite) {
  const float kBad[] = {std::numeric_limits<float>::quiet_NaN(),
                        std::numeric_limits<float>::infinity(),
                        -std::numeric_limits<float>::infinity()};
  for (const float bad : kBad) {
    std::vector<float> values(5000, 1.0F);
    values[4999] = bad;
    SafetensorsWriter writer;
    writer.AddF32("t", {5000}, values);
    writer.Add("h", "F16", {1}, BytesOf<uint16_t>({0x7c00}));
    TempDir dir;
    const auto checkpoint =
        Checkpoint::OpenFile(dir.Write("x.safetensors", writer.File()));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    for (const char* name : {"t", "h"}) {
      std::vector<float> out(
          static_cast<size_t>(checkpoint->Find(name)->elements));
      const absl::Status status = checkpoint->ReadF32(name, out);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(Message(status), HasSubstr(std::string("tensor '") + name));
    }
  }
}

TEST(CheckpointTest, ListsOtherTypesButRefusesToReadThem) {
  SafetensorsWriter writer;
  writer.Add("d", "F64", {1}, std::string(8, '\0'));
  writer.Add("q", "F8_E4M3", {2}, std::string(2, '\0'));
  TempDir dir;
  const auto checkpoint =
      Checkpoint::OpenFile(dir.Write("x.safetensors", writer.File()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->tensors(), SizeIs(2));
  std::vector<float> one(1);
  EXPECT_THAT(Message(checkpoint->ReadF32("d", one)),
              HasSubstr("tensor 'd' has dtype F64"));
  EXPECT_THAT(Message(checkpoint->ReadI32("q").status()),
              HasSubstr("tensor 'q' has dtype F8_E4M3"));
  EXPECT_EQ(checkpoint->ReadI32("none").status().code(),
            absl::StatusCode::kNotFound);
}

TEST(CheckpointTest, ReadsIntegersThatFit32Bits) {
  SafetensorsWriter writer;
  writer.Add("i32", "I32", {2}, BytesOf<int32_t>({-1, 7}));
  writer.Add("i64", "I64", {1}, BytesOf<int64_t>({-2147483648}));
  writer.Add("big", "I64", {1}, BytesOf<int64_t>({2147483648}));
  TempDir dir;
  const auto checkpoint =
      Checkpoint::OpenFile(dir.Write("x.safetensors", writer.File()));
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(*checkpoint->ReadI32("i32"), ElementsAre(-1, 7));
  EXPECT_THAT(*checkpoint->ReadI32("i64"), ElementsAre(-2147483648));
  EXPECT_THAT(Message(checkpoint->ReadI32("big").status()),
              HasSubstr("2147483648"));
}

TEST(CheckpointTest, RefusesAFileCutAtAnyLength) {
  const std::string file = SmallFile();
  TempDir dir;
  for (size_t size = 0; size < file.size(); ++size) {
    const auto checkpoint =
        Checkpoint::OpenFile(dir.Write("x.safetensors", file.substr(0, size)));
    ASSERT_FALSE(checkpoint.ok()) << size;
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(checkpoint.status()), HasSubstr("x.safetensors: "));
  }
}

TEST(CheckpointTest, RefusesHeaderLengthsThatCannotBe) {
  const uint64_t kLengths[] = {3, 1000, 100'000'001, uint64_t{1} << 63,
                               ~uint64_t{0}};
  for (const uint64_t length : kLengths) {
    std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
    file += "{}";
    TempDir dir;
    const auto checkpoint =
        Checkpoint::OpenFile(dir.Write("x.safetensors", file));
    ASSERT_FALSE(checkpoint.ok()) << length;
    EXPECT_THAT(Message(checkpoint.status()),
                HasSubstr("the header claims " + std::to_string(length)));
  }
}

TEST(CheckpointTest, NamesFileAndTensorOfABadHeader) {
  TempDir dir;
  dir.Write(
      "model.safetensors",
      SafetensorsFile(
          R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", "1234"));
  const auto checkpoint = Checkpoint::Open(dir.path());
  EXPECT_THAT(Message(checkpoint.status()),
              HasSubstr("model.safetensors: tensor 'w': dtype F32"));
}

TEST(CheckpointTest, SaysWhatIsMissing) {
  TempDir dir;
  auto checkpoint = Checkpoint::Open(dir.path());
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(checkpoint.status()), HasSubstr("model.safetensors"));

  dir.Write("pytorch_model.bin", "PK");
  checkpoint = Checkpoint::Open(dir.path());
  EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(checkpoint.status()),
              HasSubstr("pytorch_model.bin looks like a pickle"));
}

TEST(CheckpointTest, SaysWhyAFolderCannotBeRead) {
  TempDir dir;
  EXPECT_THAT(Message(Checkpoint::Open(dir.path() + "/none").status()),
              HasSubstr("/none: No such file or directory"));
  dir.Write("file", "");
  EXPECT_THAT(Message(Checkpoint::Open(dir.path() + "/file").status()),
              HasSubstr("/file is not a folder"));
  fs::create_symlink("gone", dir.path() + "/model.safetensors");
  EXPECT_THAT(Message(Checkpoint::Open(dir.path()).status()),
              HasSubstr("model.safetensors: No such file or directory"));
  fs::create_directory(dir.path() + "/locked");
  fs::permissions(dir.path() + "/locked", fs::perms::none);
  // Nothing is locked for root, so that another user has to look.
  const bool root = geteuid() == 0;
  if (root) {
    fs::permissions(dir.path(), fs::perms::all);
    ASSERT_EQ(seteuid(65534), 0);
  }
  const absl::Status status = Checkpoint::Open(dir.path() + "/locked").status();
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Message(status),
              HasSubstr("/locked/model.safetensors: Permission denied"));
}

TEST(CheckpointTest, RefusesWhatIsNoFile) {
  TempDir dir;
  fs::create_directory(dir.path() + "/model.safetensors");
  EXPECT_EQ(Checkpoint::Open(dir.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
  // Opening a pipe must not wait for a writer.
  TempDir other;
  ASSERT_EQ(mkfifo((other.path() + "/model.safetensors").c_str(), 0600), 0);
  EXPECT_EQ(Checkpoint::Open(other.path()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Shards "1.safetensors" with tensor a and "2.safetensors" with tensor b.
class ShardsTest : public ::testing::Test {
 protected:
  ShardsTest() {
    dir_.Write("1.safetensors", SmallFile("a"));
    dir_.Write("2.safetensors", SmallFile("b"));
  }
  absl::Status OpenWith(const std::string& index) {
    dir_.Write("model.safetensors.index.json", index);
    return Checkpoint::Open(dir_.path()).status();
  }
  TempDir dir_;
};

TEST_F(ShardsTest, ReadsAllShardsAlsoThroughSymbolicLinks) {
  TempDir blobs;  // as Hugging Face's cache keeps them
  fs::rename(dir_.path() + "/2.safetensors", blobs.path() + "/blob");
  fs::create_symlink(blobs.path() + "/blob", dir_.path() + "/2.safetensors");
  const absl::Status status =
      OpenWith(R"({"metadata":{"total_size":32},)"
               R"("weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  ASSERT_TRUE(status.ok()) << status;
  const auto checkpoint = Checkpoint::Open(dir_.path());
  EXPECT_THAT(MustReadF32(*checkpoint, "a"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(MustReadF32(*checkpoint, "b"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(checkpoint->Find("b")->file, "2.safetensors");
}

TEST_F(ShardsTest, RefusesNamesThatLeaveTheFolder) {
  for (const char* name :
       {"../1.safetensors", "/etc/passwd", "x/1.safetensors", "..", ".", "",
        "a\\u0000b", "./1.safetensors", "a\\nb"}) {
    const absl::Status status =
        OpenWith(std::string(R"({"weight_map":{"a":")") + name + R"("}})");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(Message(status), HasSubstr("tensor 'a'")) << name;
    EXPECT_THAT(Message(status), HasSubstr("plain name")) << name;
  }
}

TEST_F(ShardsTest, RefusesAnIndexThatDoesNotMatchTheShards) {
  absl::Status status =
      OpenWith(R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("tensor 'a' into '2.safetensors'"));

  status = OpenWith(R"({"weight_map":{"c":"1.safetensors"}})");
  EXPECT_THAT(Message(status), HasSubstr("tensor 'c'"));

  status = OpenWith(R"({"weight_map":{"a":"3.safetensors"}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("3.safetensors"));
}

TEST_F(ShardsTest, RefusesATensorThatIsInTwoShards) {
  dir_.Write("2.safetensors", SmallFile("a"));
  const absl::Status status =
      OpenWith(R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("tensor 'a' is also in another"));
}

TEST_F(ShardsTest, RefusesMalformedIndexes) {
  const std::string deep(100'000, '[');
  for (const std::string& index :
       {std::string("{"), std::string("[]"), std::string("{}"),
        std::string(R"({"weight_map":[]})"),
        std::string(R"({"weight_map":{}})"),
        std::string(R"({"weight_map":{"a":1}})"),
        std::string(R"({"weight_map":{"a":"1.safetensors"},"weight_map":{}})"),
        std::string(R"({"weight_map":{"a":"1.safetensors"},"x":)") + deep}) {
    const absl::Status status = OpenWith(index);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << index;
    EXPECT_THAT(Message(status), HasSubstr("model.safetensors.index.json"));
  }
}

}  // namespace
}  // namespace reprise
