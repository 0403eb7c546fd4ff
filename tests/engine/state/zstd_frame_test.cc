#include "engine/state/zstd_frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

std::string Noise(size_t size) {
  std::mt19937 random(5);
  std::string noise(size, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  return noise;
}

// Reads `size` bytes in pieces of `step`, and the end.
absl::Status ReadAll(std::string_view frame, size_t size, size_t step,
                     std::string* out) {
  ZstdReader reader(frame);
  out->assign(size, '\0');
  for (size_t at = 0; at < size; at += step) {
    const absl::Status status =
        reader.Read(out->data() + at, std::min(step, size - at));
    if (!status.ok()) return status;
  }
  return reader.End();
}

TEST(ZstdFrameTest, ReadsInPiecesOfAnySize) {
  for (const std::string& bytes :
       {std::string(), std::string("a"), std::string(1'000'000, 'x'),
        Noise(300'000), Noise(3) + std::string(5000, '\0') + Noise(77)}) {
    const std::string frame = ZstdCompress(bytes);
    for (const size_t step : {size_t{1000}, size_t{48}, bytes.size() + 1}) {
      std::string out;
      EXPECT_TRUE(ReadAll(frame, bytes.size(), step, &out).ok());
      EXPECT_EQ(out, bytes);
    }
  }
}

TEST(ZstdFrameTest, AFrameOfAnotherLengthIsDamaged) {
  const std::string frame = ZstdCompress(std::string(1000, 'x'));
  std::string out;
  const absl::Status more = ReadAll(frame, 1001, 100, &out);
  EXPECT_EQ(more.code(), kDataLoss);
  EXPECT_THAT(std::string(more.message()), HasSubstr("too short"));
  const absl::Status less = ReadAll(frame, 999, 100, &out);
  EXPECT_EQ(less.code(), kDataLoss);
  EXPECT_THAT(std::string(less.message()), HasSubstr("longer than it says"));
  const absl::Status after = ReadAll(frame + "y", 1000, 100, &out);
  EXPECT_EQ(after.code(), kDataLoss);
  EXPECT_THAT(std::string(after.message()), HasSubstr("1 bytes after"));
  const absl::Status second = ReadAll(frame + frame, 2000, 100, &out);
  EXPECT_EQ(second.code(), kDataLoss);
}

TEST(ZstdFrameTest, EveryCutIsDamaged) {
  const std::string bytes = Noise(40) + std::string(400, 'x');
  const std::string frame = ZstdCompress(bytes);
  for (size_t size = 0; size < frame.size(); ++size) {
    std::string out;
    EXPECT_EQ(ReadAll(frame.substr(0, size), bytes.size(), 64, &out).code(),
              kDataLoss)
        << size;
  }
}

TEST(ZstdFrameTest, EveryFlippedBitGivesBytesOrAStatus) {
  const std::string bytes = Noise(40) + std::string(400, 'x');
  const std::string frame = ZstdCompress(bytes);
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    std::string damaged = frame;
    damaged[bit / 8] ^= static_cast<char>(1 << bit % 8);
    std::string out;
    const absl::Status status = ReadAll(damaged, bytes.size(), 64, &out);
    EXPECT_TRUE(status.ok() || status.code() == kDataLoss) << bit;
  }
}

// RFC 8878, 3.1.1.1.2: exponent 20 and mantissa 0 are a window of 2^30 bytes.
TEST(ZstdFrameTest, AWindowOfAGigabyteIsRefused) {
  const std::string frame = {'\x28', '\xb5', '\x2f', '\xfd',  // magic
                             '\x00', '\xa0',                  // window
                             '\x01', '\x00', '\x00'};         // empty, last
  std::string out;
  const absl::Status status = ReadAll(frame, 1, 1, &out);
  EXPECT_EQ(status.code(), kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("too much memory"));
}

}  // namespace
}  // namespace reprise
