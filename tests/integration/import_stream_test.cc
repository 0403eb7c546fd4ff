// Every Import ends with a status, however much is sent in whatever pieces, and
// though the server refuses while the client still sends. Looked at on the
// wire: there, a stream that is reset before its trailers has no status.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/http2_call.h"
#include "tests/integration/sessions_fixture.h"
#include "tests/support/sealed_calls.h"

namespace reprise {
namespace {

using grpc::StatusCode;

constexpr size_t kMib = 1 << 20;

// As gRPC frames a message.
std::string Framed(const std::string& message) {
  std::string frame(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) {
    frame += static_cast<char>(message.size() >> shift);
  }
  return frame + message;
}

std::string BodyOf(const std::vector<v1::SnapshotChunk>& chunks) {
  std::string body;
  for (const v1::SnapshotChunk& chunk : chunks) {
    body += Framed(chunk.SerializeAsString());
  }
  return body;
}

// Begins as a seal does.
std::string Sealed(size_t bytes) {
  std::string seal("RPSE\x01\0\0\0", 8);
  seal.resize(bytes, 'x');
  return seal;
}

class ImportStreamTest : public ::testing::Test {
 protected:
  void ExpectStatus(const std::string& body, StatusCode code) {
    Http2Call call(server_.rpc().port(), "/reprise.v1.Sessions/Import", body);
    EXPECT_TRUE(call.Run()) << "no headers ended the stream";
    EXPECT_EQ(call.grpc_status(), code);
    cut_short_ += call.cut_short() ? 1 : 0;
  }

  TestServer server_;
  int cut_short_ = 0;  // calls that were refused before all was sent
};

TEST_F(ImportStreamTest, WhateverItsSizeAndItsChunks) {
  // A session has less than 10 MiB, and a message at most 64 KiB.
  constexpr size_t kBytes = 10 * kMib;
  for (const size_t chunk : {size_t{50}, size_t{1} << 10, kBytes / 160 - 16}) {
    ExpectStatus(BodyOf(Chunks(Sealed(kBytes), chunk)),
                 StatusCode::RESOURCE_EXHAUSTED);
  }
  ExpectStatus(BodyOf(Chunks(Sealed(kBytes), kBytes)),
               StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_GE(cut_short_, 1) << "none was refused while it came";
  for (const size_t bytes : {4, 100, 2000}) {
    for (const size_t chunk : {1, 7, 2000}) {
      ExpectStatus(BodyOf(Chunks(Sealed(bytes), chunk)), StatusCode::DATA_LOSS);
    }
  }
}

TEST_F(ImportStreamTest, WhateverIsWrongWithItAndWhatFollows) {
  const std::string rest = BodyOf(Chunks(Sealed(10 * kMib), 1 << 10));
  v1::SnapshotChunk first;
  first.set_data("RPSE");
  first.set_session_id("../x");
  ExpectStatus(BodyOf({first}) + rest, StatusCode::INVALID_ARGUMENT);
  first.set_session_id("x");
  first.set_crc32c(1);
  ExpectStatus(BodyOf({first}) + rest, StatusCode::INVALID_ARGUMENT);
  ExpectStatus(Framed("") + rest, StatusCode::INVALID_ARGUMENT);
  EXPECT_GE(cut_short_, 1) << "none was refused while it came";
  // No protobuf, and nothing.
  ExpectStatus(Framed("\xff\xff") + rest, StatusCode::INVALID_ARGUMENT);
  ExpectStatus(Framed("\xff\xff"), StatusCode::INVALID_ARGUMENT);
  ExpectStatus("", StatusCode::INVALID_ARGUMENT);
}

TEST_F(ImportStreamTest, WhenItIsGood) {
  Generate(server_.inference(), SessionRequest("s", "abc d", 3));
  std::vector<v1::SnapshotChunk> chunks =
      Chunks(Export(server_.sessions(), "s").bytes);
  chunks[0].set_session_id("new");
  ExpectStatus(BodyOf(chunks), StatusCode::OK);
}

}  // namespace
}  // namespace reprise
