// Calls that no well-behaved client makes: each is refused, and leaves nothing
// behind that others meet.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/integration/http2_call.h"
#include "tests/support/generate_call.h"
#include "tests/support/raw_rpc.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class HostileCallsTest : public ::testing::Test {
 protected:
  // What the server says of itself afterwards.
  std::string Scrape() { return server_.metrics().Scrape(); }
  void ExpectServes() {
    const Completion c =
        Generate(server_.inference(), TextRequest("a", /*max_tokens=*/3));
    EXPECT_TRUE(c.status.ok()) << c.status.error_message();
  }

  TestServer server_;
};

TEST_F(HostileCallsTest, PathsThatNameNoMethodAreRefused) {
  for (const std::string path :
       {"", "/", "//", "*", "x", "/reprise.v1.Inference", "/a\xff/\xfe",
        "/reprise.v1.Inference/Generate/", "/reprise.v1.Inference/"}) {
    Http2Call call(server_.rpc().port(), path, std::string(5, '\0'));
    call.Run();
    EXPECT_NE(call.grpc_status(), grpc::StatusCode::OK) << path;
  }
  ExpectServes();
}

// Else a client could make as many series as it likes, of any bytes.
TEST_F(HostileCallsTest, UnknownMethodsAreOneSeries) {
  const RawAnswer one = RawCall(server_.channel(), "/some.Service/Some", "");
  EXPECT_EQ(one.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  RawCall(server_.channel(), "/other.Service/Other", "");
  const std::string scrape = Scrape();
  EXPECT_THAT(scrape, HasSubstr("grpc_method=\"unknown\""));
  EXPECT_THAT(scrape, HasSubstr("grpc_service=\"unknown\""));
  EXPECT_THAT(scrape, Not(HasSubstr("some.Service")));
  EXPECT_THAT(scrape, Not(HasSubstr("Other")));
}

TEST_F(HostileCallsTest, RequestsAreNotUnpacked) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    const Completion c =
        Generate(server_.inference(), TextRequest(std::string(100'000, 'a'), 3),
                 &context);
    EXPECT_EQ(c.status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  }
  ExpectServes();
}

TEST_F(HostileCallsTest, AFieldThatWasRefusedIsNotAnotherCalls) {
  v1::SnapshotChunk chunk;
  chunk.set_session_id("\xff\xfe");
  const std::string bytes = chunk.SerializeAsString();
  for (int i = 0; i < 20; ++i) {
    const RawAnswer import =
        RawCall(server_.channel(), "/reprise.v1.Sessions/Import", bytes);
    EXPECT_EQ(import.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(import.status.error_message(),
                HasSubstr("SnapshotChunk.session_id: is not valid UTF-8"));
    const RawAnswer other = RawCall(
        server_.channel(), "/reprise.v1.Inference/Generate", "\xff\xff");
    EXPECT_EQ(other.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_EQ(other.status.error_message(),
              "the request is not a message of this method");
  }
}

}  // namespace
}  // namespace reprise
