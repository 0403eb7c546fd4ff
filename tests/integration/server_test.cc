// What is around the calls: health, reflection, limits, drain, metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "tests/support/narrow_stub.h"
#include "tests/support/raw_rpc.h"
#include "tests/support/scrape.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// The answer of grpc.health.v1: field 1, 1 = SERVING, 2 = NOT_SERVING.
const std::string kServing("\x08\x01", 2);
const std::string kNotServing("\x08\x02", 2);

RawAnswer CheckHealth(const TestServer& server, const std::string& service) {
  const std::string request =
      service.empty()
          ? ""
          : std::string("\x0A") + static_cast<char>(service.size()) + service;
  return RawCall(server.NewChannel(), "/grpc.health.v1.Health/Check", request);
}

TEST(ServerTest, HealthServesEveryServiceAndKnowsNoOther) {
  TestServer server;
  for (const char* service :
       {"", "reprise.v1.Inference", "reprise.v1.Sessions"}) {
    const RawAnswer answer = CheckHealth(server, service);
    EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.bytes, kServing) << service;
  }
  EXPECT_EQ(CheckHealth(server, "other").status.error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST(ServerTest, ReflectionListsTheServices) {
  TestServer server;
  // ServerReflectionRequest{list_services: "*"}: field 7, one byte.
  const RawAnswer answer =
      RawCall(server.channel(),
              "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
              std::string("\x3A\x01*", 3));
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  for (const char* service : {"reprise.v1.Inference", "reprise.v1.Sessions",
                              "reprise.v1.Admin", "grpc.health.v1.Health"}) {
    EXPECT_THAT(answer.bytes, HasSubstr(service));
  }
}

TEST(ServerTest, HealthAnswersWhileAStepIsComputed) {
  TestServer server;
  server.gate().Limit(0);
  grpc::ClientContext context;
  auto reader = server.inference().Generate(&context, TextRequest("abc", 5));
  server.gate().AwaitBlocked();
  EXPECT_EQ(CheckHealth(server, "").bytes, kServing);
  v1::Model model;
  grpc::ClientContext model_context;
  EXPECT_TRUE(server.inference().GetModel(&model_context, {}, &model).ok());
  server.gate().Open();
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST(ServerTest, FullQueueRefusesWithARetryDelay) {
  ServerOptions options = TestServer::SmallOptions();
  options.max_running = 2;
  options.max_queued = 2;
  TestServer server(options);
  server.gate().Limit(0);
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::GenerateResponse>>> open;
  const auto start = [&] {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    open.push_back(server.inference().Generate(contexts.back().get(),
                                               TextRequest("abc", 5)));
  };
  // One stands in a step, with the scheduler's thread; the others wait.
  start();
  server.gate().AwaitBlocked();
  start();
  start();
  // Their texts are read one after the other, ours after them.
  ASSERT_TRUE(Eventually([&] { return server.open_calls() == 3; }));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() +
                       std::chrono::minutes(1));
  const Completion refused =
      Generate(server.inference(), TextRequest("abc", 5), &context);
  EXPECT_EQ(context.GetServerTrailingMetadata().count("grpc-retry-pushback-ms"),
            1u);
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(refused.status.error_message(), HasSubstr("max_queued"));
  server.gate().Open();
  for (auto& reader : open) {
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
    }
    EXPECT_TRUE(reader->Finish().ok());
  }
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_EQ(
      MetricValue(server.metrics().Scrape(),
                  "reprise_requests_rejected_total{reason=\"queue_full\"}"),
      1);
}

TEST(OpenCallsTest, RefusesOverTheLimitAndNamesIt) {
  Metrics metrics("tiny");
  OpenCalls calls(/*limit=*/2, metrics);
  EXPECT_TRUE(calls.Enter().ok());
  EXPECT_TRUE(calls.Enter().ok());
  const absl::Status refused = calls.Enter();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("2"));
  calls.Leave();
  EXPECT_TRUE(calls.Enter().ok());
  EXPECT_EQ(calls.open(), 2);
}

TEST(ServerTest, DrainRefusesNewStreamsAndFinishesRunningOnes) {
  TestServer server;
  server.gate().Limit(3);
  grpc::ClientContext context;
  auto reader = server.inference().Generate(&context, TextRequest("abc", 100));
  v1::GenerateResponse message;
  Completion running;
  ASSERT_TRUE(reader->Read(&message));
  AddMessage(message, running);
  server.gate().AwaitBlocked();

  server.rpc().StopServing();
  EXPECT_EQ(CheckHealth(server, "").bytes, kNotServing);
  EXPECT_EQ(CheckHealth(server, "reprise.v1.Inference").bytes, kNotServing);
  server.scheduler().BeginDrain();
  const Completion refused =
      Generate(server.inference(), TextRequest("abc", 5));
  EXPECT_EQ(refused.status.error_code(), grpc::StatusCode::UNAVAILABLE);

  server.gate().Open();
  while (reader->Read(&message)) AddMessage(message, running);
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(running.token_ids.size(), 100u);
  EXPECT_TRUE(Eventually([&] { return server.scheduler().idle(); }));
}

TEST(ServerTest, StreamsThatOutlastTheDrainEndWithWhatTheyHave) {
  TestServer server;
  server.gate().Limit(5);
  grpc::ClientContext context;
  auto reader =
      server.inference().Generate(&context, SessionRequest("s", "abc", 2000));
  v1::GenerateResponse message;
  Completion running;
  ASSERT_TRUE(reader->Read(&message));
  AddMessage(message, running);
  server.gate().AwaitBlocked();
  server.rpc().CancelCalls();
  server.gate().Open();
  while (reader->Read(&message)) AddMessage(message, running);
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  ASSERT_EQ(running.finished.size(), 1u);
  EXPECT_EQ(running.finished[0].reason(), v1::FINISH_REASON_CANCELLED);
  EXPECT_EQ(running.finished[0].revision(), 1u);  // kept, and said so
  EXPECT_EQ(running.finished[0].usage().completion_tokens(),
            running.token_ids.size());
  EXPECT_EQ(MetricValue(server.metrics().Scrape(),
                        "reprise_cancellations_total{cause=\"shutdown\"}"),
            1);
}

TEST(ServerTest, ShutdownLeavesNoCallBehind) {
  TestServer server;
  server.gate().Limit(5);
  grpc::ClientContext context;
  auto reader = server.inference().Generate(&context, TextRequest("abc", 2000));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));
  server.gate().AwaitBlocked();
  std::thread opener([&] {
    // The call ends only once the scheduler has seen the cancel.
    server.gate().Open();
  });
  server.rpc().Shutdown(/*grace_ms=*/0);
  opener.join();
  while (reader->Read(&message)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
  EXPECT_EQ(server.open_calls(), 0);
}

// ---- Clients that do not read -----------------------------------------------

// About 250 KiB, if it is all written.
v1::GenerateRequest LongAnswer() {
  v1::GenerateRequest request = TextRequest("abc", 1000);
  request.mutable_output()->set_logprobs(20);
  return request;
}

TEST(ServerTest, CallOfASlowReaderEndsWithItsTurn) {
  ServerOptions options = TestServer::SmallOptions();
  options.slow_reader_timeout_ms = 100;
  TestServer server(options);
  grpc::ClientContext context;
  const auto stub = NarrowStub(server.rpc().port());
  auto unread = stub->Generate(&context, LongAnswer());
  v1::GenerateResponse message;
  ASSERT_TRUE(unread->Read(&message));  // Started; nothing after it
  const auto metric = [&](const char* series) {
    return MetricValue(server.metrics().Scrape(), series);
  };
  EXPECT_TRUE(Eventually([&] {
    return metric("reprise_cancellations_total{cause=\"slow_reader\"}") == 1;
  })) << server.metrics().Scrape();
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_EQ(metric("reprise_requests_total{finish_reason=\"cancelled\","
                   "grpc_code=\"ResourceExhausted\",method=\"Generate\"}"),
            1);
  // The turn waited all that time: no more was computed than what the client's
  // window, one write and the stream's buffer hold.
  EXPECT_LT(metric("reprise_generated_tokens_total{model=\"fake\"}"), 100);
}

TEST(ServerTest, OneMessageTakesNoMoreThanTheStreamHolds) {
  ServerOptions options = TestServer::SmallOptions();
  options.stream_buffer = 4;
  TestServer server(options);
  // As fast as they are taken from the stream, deltas come to it.
  const Completion answer =
      Generate(*NarrowStub(server.rpc().port()), LongAnswer());
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.token_ids.size(), 1000u);
  for (const v1::GenerateResponse& message : answer.messages) {
    // A delta has more than one token if a character is spread over them: of
    // the fake tokenizer's, at most four.
    EXPECT_LE(message.delta().token_ids_size(), 4 * options.stream_buffer);
  }
}

TEST(ServerTest, CallWhoseFinishedAnswerIsNotReadEnds) {
  ServerOptions options = TestServer::SmallOptions();
  options.slow_reader_timeout_ms = 100;
  options.stream_buffer = 4096;  // never full
  TestServer server(options);
  grpc::ClientContext context;
  const auto stub = NarrowStub(server.rpc().port());
  auto unread = stub->Generate(&context, LongAnswer());
  const auto tokens = [&] {
    return MetricValue(server.metrics().Scrape(),
                       "reprise_generated_tokens_total{model=\"fake\"}");
  };
  EXPECT_TRUE(Eventually([&] { return tokens() == 1000; }));
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
}

TEST(ServerTest, ShutdownDoesNotWaitForAClientThatDoesNotRead) {
  TestServer server;  // with a slow_reader_timeout_ms of a minute
  grpc::ClientContext context;
  const auto stub = NarrowStub(server.rpc().port());
  auto unread = stub->Generate(&context, LongAnswer());
  // Paused: the scheduler has nothing to do but to wait for the reader.
  const auto tokens = [&] {
    return MetricValue(server.metrics().Scrape(),
                       "reprise_generated_tokens_total{model=\"fake\"}");
  };
  EXPECT_TRUE(Eventually([&] { return tokens() > 32; }));
  const auto start = std::chrono::steady_clock::now();
  server.rpc().CancelCalls();
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

// The log's lines about turns, at level debug.
std::string LogOfTurns(const std::function<void(TestServer&)>& calls) {
  SetLogLevel(LogLevel::kDebug);
  ::testing::internal::CaptureStderr();
  {
    TestServer server;
    calls(server);
    EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  }
  std::istringstream log(::testing::internal::GetCapturedStderr());
  SetLogLevel(LogLevel::kInfo);
  std::string turns;
  for (std::string line; std::getline(log, line);) {
    if (line.find("turn ended") != std::string::npos) turns += line + "\n";
  }
  return turns;
}

TEST(ServerTest, EveryTurnIsNamedInTheLogAndItsTextIsNot) {
  const std::string log = LogOfTurns([](TestServer& server) {
    v1::GenerateRequest generate = SessionRequest("s1", "abc d", 7);
    generate.set_request_id("r1");
    Generate(server.inference(), generate);
    v1::AppendRequest append;
    append.set_session_id("s1");
    append.set_text("cc");
    v1::AppendResponse response;
    grpc::ClientContext context;
    (void)server.sessions().Append(&context, append, &response);
  });
  EXPECT_THAT(log, HasSubstr("method=Generate request_id=r1 session=s1 "
                             "revision=1 prompt_tokens=3 cached_tokens=0 "
                             "completion_tokens=7 finish_reason=length "
                             "code=OK seconds="));
  // All tokens before but the pending one: 3 + 7 - 1.
  EXPECT_THAT(log, HasSubstr("method=Append request_id=\"\" session=s1 "
                             "revision=2 prompt_tokens=1 cached_tokens=9 "
                             "completion_tokens=0 finish_reason=\"\" "
                             "code=OK seconds="));
  EXPECT_THAT(log, Not(HasSubstr("abc")));
}

TEST(ServerTest, RefusedTurnIsNamedInTheLogToo) {
  const std::string log = LogOfTurns([](TestServer& server) {
    v1::GenerateRequest request = TextRequest("", 7);
    request.set_request_id(std::string(10'000, 'r'));
    Generate(server.inference(), request);
  });
  EXPECT_THAT(log, HasSubstr("request_id=" + std::string(128, 'r') +
                             " session=\"\" revision=0 "));
  EXPECT_THAT(log, HasSubstr("code=InvalidArgument"));
}

TEST(ServerTest, EveryCallIsCounted) {
  TestServer server;
  Generate(server.inference(), TextRequest("abc", 5));
  Generate(server.inference(), TextRequest("", 5));
  v1::Model model;
  grpc::ClientContext context;
  ASSERT_TRUE(server.inference().GetModel(&context, {}, &model).ok());
  const std::string generate =
      "grpc_method=\"Generate\",grpc_service=\"reprise.v1.Inference\","
      "grpc_type=\"server_stream\"}";
  EXPECT_TRUE(Eventually([&] { return server.open_calls() == 0; }));
  const std::string scrape = server.metrics().Scrape();
  const std::string model_label = "model=\"fake\"";
  const std::pair<std::string, double> expected[] = {
      {"grpc_server_started_total{" + generate, 2},
      {"grpc_server_handled_total{grpc_code=\"OK\"," + generate, 1},
      {"grpc_server_handled_total{grpc_code=\"InvalidArgument\"," + generate,
       1},
      {"grpc_server_handling_seconds_count{" + generate, 2},
      {"reprise_requests_total{finish_reason=\"length\",grpc_code=\"OK\","
       "method=\"Generate\"}",
       1},
      {"reprise_requests_total{finish_reason=\"none\","
       "grpc_code=\"InvalidArgument\",method=\"Generate\"}",
       1},
      {"reprise_request_duration_seconds_count{" + model_label +
           ",method=\"Generate\",outcome=\"ok\"}",
       1},
      {"reprise_generated_tokens_total{" + model_label + "}", 5},
      {"reprise_time_to_first_token_seconds_count{" + model_label +
           ",source=\"cold\"}",
       1},
      {"grpc_server_started_total{grpc_method=\"GetModel\","
       "grpc_service=\"reprise.v1.Inference\",grpc_type=\"unary\"}",
       1},
  };
  for (const auto& [series, value] : expected) {
    EXPECT_EQ(MetricValue(scrape, series), value) << series;
  }
}

}  // namespace
}  // namespace reprise
