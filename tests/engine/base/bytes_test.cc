#include "engine/base/bytes.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace reprise {
namespace {

TEST(ByteReaderTest, ReadsWhatTheWriterWrote) {
  ByteWriter writer;
  writer.Put<uint32_t>(7);
  writer.Put<double>(0.5);
  writer.PutSized("abc");
  writer.PutBytes("xy");
  ByteReader reader(writer.data());
  EXPECT_EQ(*reader.Get<uint32_t>(), 7u);
  EXPECT_EQ(*reader.Get<double>(), 0.5);
  EXPECT_EQ(*reader.GetSized(), "abc");
  EXPECT_EQ(*reader.GetBytes(2), "xy");
  EXPECT_EQ(reader.remaining(), 0u);
}

TEST(ByteReaderTest, RefusesToReadPastTheEndAndReadsNothing) {
  ByteWriter writer;
  writer.PutSized("abcdef");
  for (size_t size = 0; size < writer.data().size(); ++size) {
    ByteReader reader(std::string_view(writer.data()).substr(0, size));
    EXPECT_EQ(reader.GetSized().status().code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(reader.remaining(), size);
  }
  ByteReader reader("abc");
  EXPECT_FALSE(reader.GetBytes(~uint64_t{0}).ok());
  EXPECT_EQ(reader.remaining(), 3u);
}

}  // namespace
}  // namespace reprise
