// Sessions that leave one server and come to another, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "tests/support/eventually.h"
#include "tests/support/fake_clock.h"
#include "tests/support/narrow_stub.h"
#include "tests/support/scrape.h"
#include "tests/support/sealed_calls.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using grpc::StatusCode;
using ::testing::HasSubstr;

class ExportTest : public ::testing::Test {
 protected:
  ServerOptions WithKeys(const std::string& lines) {
    ServerOptions options = TestServer::SmallOptions();
    options.seal_keys =
        WriteKeys(dir_, "keys" + std::to_string(files_++), lines);
    return options;
  }

  static Completion Turn(TestServer& server, const std::string& session,
                         const std::string& text, uint64_t seed) {
    v1::GenerateRequest request = SessionRequest(session, text, 20);
    request.mutable_sampling()->set_seed(seed);
    request.mutable_sampling()->set_presence_penalty(0.5);
    request.mutable_output()->set_logprobs(3);
    return Generate(server.inference(), request);
  }

  static v1::ExportSessionRequest Request(const std::string& id,
                                          v1::StateElements elements,
                                          bool zstd) {
    v1::ExportSessionRequest request;
    request.set_id(id);
    request.mutable_seal()->set_elements(elements);
    request.mutable_seal()->set_zstd(zstd);
    return request;
  }

  static void ExpectMetric(TestServer& server, const std::string& line) {
    const std::string scrape = server.metrics().Scrape();
    EXPECT_NE(scrape.find(line), std::string::npos) << line;
  }

  TempDir dir_;
  int files_ = 0;
};

TEST_F(ExportTest, ASessionGoesOnOnAnotherServerBitForBit) {
  const ServerOptions options = WithKeys(KeyLine("k", 'a'));
  TestServer from(options), to(options);
  Turn(from, "s", "abc d", 1);
  Turn(from, "s", "cc", 2);
  const Exported exported = Export(from.sessions(), "s");
  ASSERT_TRUE(exported.status.ok()) << exported.status.error_message();
  EXPECT_EQ(exported.info.session_id(), "s");
  EXPECT_EQ(exported.info.revision(), 2u);
  EXPECT_EQ(exported.info.tokens(), 44u);
  EXPECT_FALSE(exported.info.has_expires_unix_ms());
  EXPECT_EQ(exported.info.elements(), v1::STATE_ELEMENTS_F32);
  const Imported imported = Import(to.sessions(), exported.bytes);
  ASSERT_TRUE(imported.status.ok()) << imported.status.error_message();
  EXPECT_EQ(imported.session.id(), "s");
  EXPECT_EQ(imported.session.revision(), 2u);
  EXPECT_EQ(imported.session.tokens(), 44u);
  EXPECT_EQ(imported.session.forked_from(), "");
  EXPECT_EQ(imported.session.place(), v1::SESSION_PLACE_SUSPENDED);
  const Completion there = Turn(to, "s", "d", 3);
  ExpectSame(there, Turn(from, "s", "d", 3));
  EXPECT_EQ(there.started.resumed_from(), v1::RESUME_SOURCE_STORE);
  EXPECT_EQ(there.started.resume_reason(), "first turn since its import");
  EXPECT_EQ(there.finished.at(0).revision(), 3u);
  ExpectMetric(from,
               "reprise_session_operations_total{op=\"export\",result=\"ok\"} "
               "1");
  ExpectMetric(to,
               "reprise_session_operations_total{op=\"import\",result=\"ok\"} "
               "1");
}

TEST_F(ExportTest, EveryEncodingComesBackAndF32IsExact) {
  TestServer server;
  Turn(server, "s", "abc d", 1);
  Turn(server, "s", "cc", 2);
  const Exported plain = Export(server.sessions(), "s");
  const v1::StateElements kF32 = v1::STATE_ELEMENTS_F32;
  const v1::StateElements kBf16 = v1::STATE_ELEMENTS_BF16;
  int number = 0;
  for (const v1::StateElements elements : {kF32, kBf16}) {
    for (const bool zstd : {false, true}) {
      const std::string id = "copy" + std::to_string(number++);
      const Exported exported =
          Export(server.sessions(), Request("s", elements, zstd));
      ASSERT_TRUE(exported.status.ok()) << exported.status.error_message();
      EXPECT_EQ(exported.info.elements(), elements);
      EXPECT_EQ(exported.info.zstd(), zstd);
      const Imported imported = Import(server.sessions(), exported.bytes, id);
      ASSERT_TRUE(imported.status.ok()) << imported.status.error_message();
      EXPECT_EQ(imported.session.forked_from(), "s");
      // Whatever it came as, it lies in the store as all others do.
      const Exported again = Export(server.sessions(), id);
      EXPECT_EQ(again.info.tokens(), 44u);
      EXPECT_EQ(again.bytes.size(), plain.bytes.size() + id.size() - 1);
      const bool rounded = elements == kBf16;
      EXPECT_EQ(Turn(server, id, "d", 3).status.error_code(), StatusCode::OK);
      if (!rounded) {
        const Imported twin =
            Import(server.sessions(), exported.bytes, id + "-twin");
        ExpectSame(Turn(server, twin.session.id(), "d", 9),
                   Turn(server,
                        Import(server.sessions(), plain.bytes, id + "-plain")
                            .session.id(),
                        "d", 9));
      }
    }
  }
  for (const char* encoding : {"f32_zstd", "bf16", "bf16_zstd"}) {
    ExpectMetric(server,
                 "reprise_snapshot_size_bytes_count{model=\"fake\","
                 "encoding=\"" +
                     std::string(encoding) + "\"} 1");
  }
}

TEST_F(ExportTest, WhatIsExportedWasCommitted) {
  TestServer server;
  Turn(server, "s", "abc", 1);
  server.gate().Limit(3);
  grpc::ClientContext context;
  auto reader =
      server.inference().Generate(&context, SessionRequest("s", "cc", 50));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server.gate().AwaitBlocked();
  const Exported exported = Export(server.sessions(), "s");
  EXPECT_EQ(exported.info.revision(), 1u);
  server.gate().Open();
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  v1::ExportSessionRequest request;
  request.set_id("s");
  request.set_expected_revision(1);
  EXPECT_EQ(Export(server.sessions(), request).status.error_code(),
            StatusCode::ABORTED);
  request.set_expected_revision(2);
  EXPECT_EQ(Export(server.sessions(), request).info.revision(), 2u);
}

TEST_F(ExportTest, AnEmptySessionTravelsToo) {
  TestServer server;
  grpc::ClientContext context;
  v1::CreateSessionRequest create;
  create.set_id("empty");
  v1::Session session;
  ASSERT_TRUE(server.sessions().Create(&context, create, &session).ok());
  const Exported exported = Export(server.sessions(), "empty");
  const Imported imported = Import(server.sessions(), exported.bytes, "copy");
  ASSERT_TRUE(imported.status.ok()) << imported.status.error_message();
  EXPECT_EQ(imported.session.revision(), 0u);
  EXPECT_EQ(imported.session.tokens(), 0u);
  EXPECT_EQ(Turn(server, "copy", "abc", 1).token_ids,
            Turn(server, "fresh", "abc", 1).token_ids);
}

TEST_F(ExportTest, WrongRequestsAreRefusedByName) {
  TestServer server;
  Turn(server, "s", "abc", 1);
  EXPECT_EQ(Export(server.sessions(), "nobody").status.error_code(),
            StatusCode::NOT_FOUND);
  const Exported path = Export(server.sessions(), "../s");
  EXPECT_EQ(path.status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(path.status.error_message(), HasSubstr("id: "));
  const Exported elements = Export(
      server.sessions(), Request("s", static_cast<v1::StateElements>(7), true));
  EXPECT_EQ(elements.status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(elements.status.error_message(), HasSubstr("seal.elements: 7"));
  v1::ExportSessionRequest request;
  request.set_id("s");
  request.mutable_seal()->set_ttl_ms(0);
  EXPECT_THAT(Export(server.sessions(), request).status.error_message(),
              HasSubstr("seal.ttl_ms: 0 is not in [1, "));
  ExpectMetric(server,
               "reprise_session_operations_total{op=\"export\",result="
               "\"error\"} 1");
}

// ---- Keys -------------------------------------------------------------------

TEST_F(ExportTest, AnOldKeyOpensUntilItIsTakenOut) {
  const std::string old_key = KeyLine("old", 'a');
  const std::string new_key = KeyLine("new", 'b', "hmac-sha-256");
  TestServer before(WithKeys(old_key));
  TestServer during(WithKeys(new_key + old_key));
  TestServer after(WithKeys(new_key));
  Turn(before, "s", "abc", 1);
  const std::string by_old = Export(before.sessions(), "s").bytes;
  EXPECT_TRUE(Import(during.sessions(), by_old).status.ok());
  const Imported refused = Import(after.sessions(), by_old);
  EXPECT_EQ(refused.status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.status.error_message(),
              HasSubstr("key \"old\", which is not in the file"));
  const std::string by_new = Export(during.sessions(), "s").bytes;
  EXPECT_TRUE(Import(after.sessions(), by_new).status.ok());
  EXPECT_EQ(Import(before.sessions(), by_new).status.error_code(),
            StatusCode::PERMISSION_DENIED);
}

TEST_F(ExportTest, AnotherKeyOfThatNameDoesNotOpen) {
  TestServer from(WithKeys(KeyLine("k", 'a')));
  TestServer to(WithKeys(KeyLine("k", 'b')));
  Turn(from, "s", "abc", 1);
  const Imported imported =
      Import(to.sessions(), Export(from.sessions(), "s").bytes);
  EXPECT_EQ(imported.status.error_code(), StatusCode::DATA_LOSS);
  ExpectMetric(to,
               "reprise_snapshot_failures_total{op=\"open\",reason=\"seal\"} "
               "1");
}

TEST_F(ExportTest, WithoutAKeyFileBytesOpenWhereTheyWereSealed) {
  TestServer from, to;
  Turn(from, "s", "abc", 1);
  const std::string bytes = Export(from.sessions(), "s").bytes;
  EXPECT_TRUE(Import(from.sessions(), bytes, "copy").status.ok());
  const Imported imported = Import(to.sessions(), bytes);
  EXPECT_EQ(imported.status.error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(imported.status.error_message(), HasSubstr("--seal-keys"));
}

TEST_F(ExportTest, SealsExpireAsTheClientAsksAndNoLaterThanTheServerSays) {
  FakeClock clock;
  ServerOptions options = TestServer::SmallOptions();
  options.seal_ttl_ms = 5000;
  TestServer server(options, clock);
  Turn(server, "s", "abc", 1);
  const int64_t now = clock.UnixMs();
  v1::ExportSessionRequest request;
  request.set_id("s");
  EXPECT_EQ(Export(server.sessions(), request).info.expires_unix_ms(),
            now + 5000);
  request.mutable_seal()->set_ttl_ms(9000);
  EXPECT_EQ(Export(server.sessions(), request).info.expires_unix_ms(),
            now + 5000);
  request.mutable_seal()->set_ttl_ms(2000);
  const Exported exported = Export(server.sessions(), request);
  EXPECT_EQ(exported.info.expires_unix_ms(), now + 2000);
  clock.AdvanceMs(1999);
  EXPECT_TRUE(Import(server.sessions(), exported.bytes, "in-time").status.ok());
  clock.AdvanceMs(1);
  const Imported late = Import(server.sessions(), exported.bytes, "late");
  EXPECT_EQ(late.status.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(late.status.error_message(), HasSubstr("expired"));
}

// ---- Limits -----------------------------------------------------------------

TEST_F(ExportTest, BytesOnTheWayAreLimitedAndGivenBack) {
  ServerOptions options = TestServer::SmallOptions();
  options.sealed_memory_bytes = 100;
  TestServer server(options);
  Turn(server, "s", "abc", 1);
  const Exported exported = Export(server.sessions(), "s");
  EXPECT_EQ(exported.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(exported.status.error_message(),
              HasSubstr("100 (sealed_memory)"));
  const Imported imported =
      Import(server.sessions(), std::string(51, 'x'), "i");
  EXPECT_EQ(imported.status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(imported.status.error_message(), HasSubstr("(sealed_memory)"));
  // They are held twice, as they came and opened: 45 at a time fit for ever.
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(
        Import(server.sessions(), std::string(45, 'x')).status.error_code(),
        StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(ExportTest, AClientThatDoesNotGoOnIsCancelled) {
  ServerOptions options = TestServer::SmallOptions();
  options.slow_reader_timeout_ms = 100;
  TestServer server(options);
  IdleImport idle(server.sessions());
  // It never ends its stream, and hears of it all the same.
  EXPECT_EQ(idle.writer->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  ExpectMetric(server, "reprise_cancellations_total{cause=\"slow_reader\"} 1");
}

TEST_F(ExportTest, AClientThatDoesNotReadIsCancelled) {
  ServerOptions options = TestServer::SmallOptions();
  options.slow_reader_timeout_ms = 100;
  TestServer server(options);
  // More than the client's side of the connection takes for it.
  v1::GenerateRequest turn = SessionRequest("s", "abc", 1500);
  turn.mutable_sampling()->set_presence_penalty(0.5);
  turn.mutable_sampling()->set_penalty_last_n(2000);  // kept with the state
  ASSERT_TRUE(Generate(server.inference(), turn).status.ok());
  ASSERT_GT(Export(server.sessions(), "s").bytes.size(), 4096u);
  const auto stub = v1::Sessions::NewStub(NarrowChannel(server.rpc().port()));
  grpc::ClientContext context;
  v1::ExportSessionRequest request;
  request.set_id("s");
  auto reader = stub->Export(&context, request);
  EXPECT_TRUE(Eventually([&] {
    return MetricValue(server.metrics().Scrape(),
                       "reprise_cancellations_total{cause=\"slow_reader\"}") ==
           1;
  }));
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  v1::SnapshotChunk chunk;
  while (reader->Read(&chunk)) EXPECT_FALSE(chunk.has_crc32c());
  EXPECT_EQ(reader->Finish().error_code(), StatusCode::CANCELLED);
}

TEST_F(ExportTest, ChunksWithoutBytesDoNotKeepAnImportOpen) {
  TestServer server;
  grpc::ClientContext context;
  v1::Session session;
  auto writer = server.sessions().Import(&context, &session);
  v1::SnapshotChunk chunk;
  chunk.set_session_id("s");
  ASSERT_TRUE(writer->Write(chunk));
  const grpc::Status status = writer->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("data: has 0 bytes"));
}

TEST_F(ExportTest, AnImportThatTricklesEnds) {
  ServerOptions options = TestServer::SmallOptions();
  options.slow_reader_timeout_ms = 100;
  TestServer server(options);
  grpc::ClientContext context;
  v1::Session session;
  auto writer = server.sessions().Import(&context, &session);
  v1::SnapshotChunk chunk;
  chunk.set_data("R");
  // Always in time, and for ever.
  EXPECT_TRUE(Eventually([&] { return !writer->Write(chunk); }));
  EXPECT_EQ(writer->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
}

// ---- Shutting down ----------------------------------------------------------

TEST_F(ExportTest, ADrainRefusesTransfersAndDoesNotWaitForIdleOnes) {
  TestServer server;  // with a slow_reader_timeout_ms of a minute
  Turn(server, "s", "abc", 1);
  const std::string bytes = Export(server.sessions(), "s").bytes;
  ASSERT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  IdleImport idle(server.sessions());
  ASSERT_TRUE(Eventually([&] { return server.open_calls() == 1; }));
  const auto start = std::chrono::steady_clock::now();
  server.rpc().StopServing();
  const Exported exported = Export(server.sessions(), "s");
  EXPECT_EQ(exported.status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(exported.status.error_message(), "the server is shutting down");
  EXPECT_EQ(Import(server.sessions(), bytes, "copy").status.error_code(),
            StatusCode::UNAVAILABLE);
  ExpectMetric(server,
               "reprise_requests_rejected_total{reason=\"draining\"} 2");
  EXPECT_EQ(idle.writer->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  ExpectMetric(server, "reprise_cancellations_total{cause=\"shutdown\"} 1");
}

TEST_F(ExportTest, ATransferThatOutlastsTheDrainIsCancelled) {
  TestServer server;
  IdleImport idle(server.sessions());
  ASSERT_TRUE(Eventually([&] { return server.open_calls() == 1; }));
  const auto start = std::chrono::steady_clock::now();
  server.rpc().CancelCalls();
  EXPECT_EQ(idle.writer->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  ExpectMetric(server, "reprise_cancellations_total{cause=\"shutdown\"} 1");
}

TEST_F(ExportTest, AClientThatGoesAwayLeavesNothing) {
  TestServer server;
  {
    IdleImport idle(server.sessions());
    idle.context.TryCancel();
    EXPECT_EQ(idle.writer->Finish().error_code(), StatusCode::CANCELLED);
  }
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
}

}  // namespace
}  // namespace reprise
