#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/metric_names.h"
#include "tests/support/scrape.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

// Calls every observation once, so that every family has a child.
void ObserveEverything(Metrics& metrics) {
  metrics.ObserveFirstToken(ResumeSource::kStore, 0.03);
  metrics.ObserveInterToken(0.007, 3);
  metrics.ObserveStep(Phase::kMixed, 65, 0.02);
  metrics.AddPromptTokens(10, 20);
  metrics.AddGeneratedTokens(5);
  metrics.ObserveRequest({.queue_seconds = 0.1,
                          .prefill_seconds = 0.2,
                          .decode_seconds = 0.5,
                          .prompt_tokens = 10,
                          .generated_tokens = 5});
  metrics.ObserveTimePerOutputToken(0.1);
  metrics.CountRequest("Generate", absl::StatusCode::kOk, "length", 0.8);
  metrics.CountRequest("Generate", absl::StatusCode::kCancelled, "", 0.8);
  metrics.CountRejected(RejectReason::kQueueFull);
  metrics.CountCancellation(CancelCause::kDeadline);
  metrics.ObserveSendStall(0.001);
  metrics.SetRequests(2, 3, 400);
  metrics.RpcStarted("reprise.v1.Inference", "Generate", "server_stream");
  metrics.RpcHandled("reprise.v1.Inference", "Generate", "server_stream",
                     absl::StatusCode::kInvalidArgument, 0.01);
  metrics.SetSessions(1, 2, 3);
  metrics.CountSessionOp(SessionOp::kFork, false);
  metrics.ObserveResume(ResumeSource::kMemory, 0.0002);
  metrics.ObserveSnapshotWrite("store", 0.004, 1 << 20);
  metrics.CountSnapshotFailure(SnapshotOp::kRead, SnapshotFailure::kChecksum);
  metrics.SetSnapshotStore("store", 1e6, 0);
  metrics.SetStatePoolUsed(0.5);
  ModelInfo info;
  info.name = "tiny \"model\"\n";
  info.family = "linear_attn";
  info.cpu_isa = "avx512_core";
  info.fingerprints.model = 0xabc;
  metrics.SetModel(info, 0.25);
}

TEST(MetricsTest, PromtoolAcceptsAFreshScrape) {
  if (!HavePromtool()) GTEST_SKIP() << "promtool is not installed";
  ExpectPromtoolAccepts(Metrics("tiny").Scrape());
}

TEST(MetricsTest, PromtoolAcceptsAScrapeWithEveryMetric) {
  if (!HavePromtool()) GTEST_SKIP() << "promtool is not installed";
  Metrics metrics("tiny");
  ObserveEverything(metrics);
  ExpectPromtoolAccepts(metrics.Scrape());
}

TEST(MetricsTest, HasEveryNameOfTheInterface) {
  Metrics metrics("tiny");
  ObserveEverything(metrics);
  const std::string scrape = metrics.Scrape();
  for (const char* name : {"reprise_time_to_first_token_seconds",
                           "reprise_requests_total",
                           "reprise_inter_token_latency_seconds",
                           "reprise_prompt_tokens_total",
                           "reprise_time_per_output_token_seconds",
                           "reprise_prompt_tokens",
                           "reprise_request_duration_seconds",
                           "reprise_request_queue_seconds",
                           "reprise_request_prefill_seconds",
                           "reprise_request_decode_seconds",
                           "reprise_generation_tokens",
                           "reprise_generated_tokens_total",
                           "reprise_requests_rejected_total",
                           "reprise_requests_running",
                           "reprise_requests_waiting",
                           "reprise_waiting_prompt_tokens",
                           "reprise_batch_size",
                           "reprise_step_duration_seconds",
                           "reprise_sessions",
                           "reprise_session_operations_total",
                           "reprise_session_resume_seconds",
                           "reprise_snapshot_write_seconds",
                           "reprise_snapshot_size_bytes",
                           "reprise_snapshot_store_bytes",
                           "reprise_snapshot_store_capacity_bytes",
                           "reprise_state_pool_used_ratio",
                           "reprise_snapshot_failures_total",
                           "reprise_stream_send_stall_seconds",
                           "reprise_cancellations_total",
                           "grpc_server_started_total",
                           "grpc_server_handled_total",
                           "grpc_server_handling_seconds",
                           "reprise_build_info",
                           "reprise_model_info",
                           "reprise_model_load_seconds",
                           "process_cpu_seconds_total",
                           "process_resident_memory_bytes",
                           "process_open_fds",
                           "process_max_fds",
                           "process_start_time_seconds"}) {
    EXPECT_THAT(scrape, HasSubstr("# TYPE " + std::string(name) + " "));
  }
}

TEST(MetricsTest, CountsGapsOfOneStreamTogether) {
  Metrics metrics("tiny");
  metrics.ObserveInterToken(0.007, 3);  // in (.006, .008]
  metrics.ObserveInterToken(0.004, 1);  // bounds are inclusive
  metrics.ObserveInterToken(9, 2);      // beyond the last bucket
  metrics.ObserveInterToken(1, 0);
  const std::string scrape = metrics.Scrape();
  const std::string name = "reprise_inter_token_latency_seconds_";
  const std::string label = "{model=\"tiny\"";
  EXPECT_THAT(scrape,
              HasSubstr(name + "bucket" + label + ",le=\"0.002\"} 0\n"));
  EXPECT_THAT(scrape,
              HasSubstr(name + "bucket" + label + ",le=\"0.004\"} 1\n"));
  EXPECT_THAT(scrape,
              HasSubstr(name + "bucket" + label + ",le=\"0.006\"} 1\n"));
  EXPECT_THAT(scrape,
              HasSubstr(name + "bucket" + label + ",le=\"0.008\"} 4\n"));
  EXPECT_THAT(scrape, HasSubstr(name + "bucket" + label + ",le=\"2.5\"} 4\n"));
  EXPECT_THAT(scrape, HasSubstr(name + "count" + label + "} 6\n"));
}

TEST(MetricsTest, LabelsEachObservation) {
  Metrics metrics("tiny");
  ObserveEverything(metrics);
  const std::string scrape = metrics.Scrape();
  for (const char* line :
       {"reprise_time_to_first_token_seconds_count{model=\"tiny\","
        "source=\"store\"} 1\n",
        "reprise_time_to_first_token_seconds_count{model=\"tiny\","
        "source=\"cold\"} 0\n",
        "reprise_requests_total{finish_reason=\"length\",grpc_code=\"OK\","
        "method=\"Generate\"} 1\n",
        "reprise_requests_total{finish_reason=\"none\","
        "grpc_code=\"Canceled\",method=\"Generate\"} 1\n",
        "reprise_requests_rejected_total{reason=\"queue_full\"} 1\n",
        "reprise_cancellations_total{cause=\"deadline\"} 1\n",
        "reprise_session_operations_total{op=\"fork\",result=\"error\"} 1\n",
        "reprise_snapshot_failures_total{op=\"read\",reason=\"checksum\"} 1\n",
        "reprise_session_resume_seconds_count{tier=\"memory\"} 1\n",
        "reprise_snapshot_write_seconds_count{tier=\"store\"} 1\n",
        "reprise_sessions{model=\"tiny\",state=\"resident\"} 2\n",
        "reprise_state_pool_used_ratio{tier=\"slot\"} 0.5\n",
        "grpc_server_handled_total{grpc_code=\"InvalidArgument\","
        "grpc_method=\"Generate\",grpc_service=\"reprise.v1.Inference\","
        "grpc_type=\"server_stream\"} 1\n"}) {
    EXPECT_THAT(scrape, HasSubstr(line));
  }
}

TEST(MetricsTest, OnlyRequestsWithTokensHaveATimeOfDecoding) {
  Metrics metrics("tiny");
  metrics.ObserveRequest({.decode_seconds = 0.5, .generated_tokens = 5});
  metrics.ObserveRequest({.decode_seconds = 0.5, .generated_tokens = 0});
  EXPECT_THAT(metrics.Scrape(),
              HasSubstr("reprise_request_decode_seconds_count{"
                        "model=\"tiny\"} 1\n"));
}

TEST(MetricsTest, FreePortServesTheScrapeOverHttp) {
  Metrics metrics("tiny");
  int port = 0;
  const absl::Status status = metrics.Listen("127.0.0.1:0", &port);
  ASSERT_TRUE(status.ok()) << status;
  ASSERT_GT(port, 0);
  const std::string answer = HttpGetMetrics(port);
  EXPECT_THAT(answer, HasSubstr("200 OK"));
  EXPECT_THAT(answer, HasSubstr("reprise_requests_running{model=\"tiny\"} 0"));
  EXPECT_THAT(answer, HasSubstr("process_resident_memory_bytes "));
  if (!HavePromtool()) GTEST_SKIP() << "promtool is not installed";
  ExpectPromtoolAccepts(HttpBody(answer));
}

// Prometheus waits 10 s for a scrape.
TEST(MetricsTest, ConnectionsThatSayNothingDelayAScrapeByFewSeconds) {
  Metrics metrics("tiny");
  int port = 0;
  ASSERT_TRUE(metrics.Listen("127.0.0.1:0", &port).ok());
  std::vector<int> idle;
  for (int i = 0; i < 100; ++i) idle.push_back(ConnectToPort(port));
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(HttpGetMetrics(port), HasSubstr("200 OK"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(8));
  for (const int fd : idle) close(fd);
}

TEST(MetricsTest, TakenPortIsUnavailableAndNamed) {
  Metrics first("tiny");
  int port = 0;
  ASSERT_TRUE(first.Listen("127.0.0.1:0", &port).ok());
  Metrics second("tiny");
  int unused = 0;
  const std::string address = "127.0.0.1:" + std::to_string(port);
  const absl::Status status = second.Listen(address, &unused);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(address));
}

TEST(MetricsTest, ProcessFiguresAreThoseOfThisProcess) {
  const std::string scrape = Metrics("tiny").Scrape();
  const auto value = [&scrape](const std::string& name) {
    const size_t at = scrape.find("\n" + name + " ");
    return at == std::string::npos
               ? -1.0
               : std::strtod(scrape.c_str() + at + 2 + name.size(), nullptr);
  };
  EXPECT_GT(value("process_resident_memory_bytes"), 1e6);
  EXPECT_GE(value("process_open_fds"), 3);
  EXPECT_GE(value("process_max_fds"), value("process_open_fds"));
  EXPECT_GE(value("process_threads"), 1);
  const double now = static_cast<double>(time(nullptr));
  EXPECT_LE(value("process_start_time_seconds"), now + 2);
  EXPECT_GT(value("process_start_time_seconds"), now - 3600);
}

TEST(MetricNamesTest, FinishReasonsHaveTheirNames) {
  EXPECT_EQ(FinishReasonName(FinishReason::kStop), "stop");
  EXPECT_EQ(FinishReasonName(FinishReason::kTimeLimit), "time_limit");
  EXPECT_EQ(FinishReasonName(FinishReason::kCancelled), "cancelled");
}

TEST(MetricNamesTest, BucketsEndWhereTheInterfaceSays) {
  EXPECT_NEAR(RequestSeconds().back(), 327.68, 1e-9);  // sums of doubles
  EXPECT_EQ(TokenCounts().back(), 262144);
  EXPECT_EQ(BatchRows().back(), 128);
  EXPECT_EQ(SnapshotBytes().back(), 1 << 28);
}

}  // namespace
}  // namespace reprise
