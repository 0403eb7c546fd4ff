// Many streams at once, with clients that cancel, read slowly and run out of
// time: nobody disturbs anybody, and nothing is lost.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/generate_call.h"
#include "tests/support/scrape.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

constexpr int kStreams = 64;
constexpr uint32_t kTokens = 96;

// Seconds of traffic; the test labelled `long` sets 60.
int SoakSeconds() {
  const char* text = std::getenv("REPRISE_SOAK_SECONDS");
  return text == nullptr ? 5 : std::atoi(text);
}

// Of different lengths: some are decoding before others are prefilled.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  std::string prompt = "In the beginning";
  for (int i = 0; i < 8; ++i) {
    requests.push_back(TextRequest(prompt, kTokens));
    requests.back().mutable_sampling()->set_seed(1000 + i);
    prompt +=
        " God created the heaven and the earth. And the earth was "
        "without form, and void; and darkness was upon the face of";
  }
  return requests;
}

bool IsPrefix(const std::vector<int32_t>& some,
              const std::vector<int32_t>& whole) {
  return some.size() <= whole.size() &&
         std::equal(some.begin(), some.end(), whole.begin());
}

// Bytes of memory that the process holds.
int64_t ResidentBytes(pid_t pid) {
  std::istringstream statm(ReadFile("/proc/" + std::to_string(pid) + "/statm"));
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

enum class Manner { kWhole, kSession, kSlow, kCancel, kDeadline };

struct Counts {
  std::atomic<int> whole{0};
  std::atomic<int> cut{0};
  std::atomic<int> wrong{0};
};

// One client: calls until `end`, each time in another manner.
class SoakClient {
 public:
  SoakClient(const ServerProcess& server, int number,
             const std::vector<v1::GenerateRequest>& requests,
             const std::vector<Completion>& solo, Counts& counts)
      : number_(number),
        requests_(requests),
        solo_(solo),
        counts_(counts),
        random_(static_cast<uint64_t>(number)),
        stub_(server.NewStub()) {}

  void RunUntil(std::chrono::steady_clock::time_point end) {
    while (std::chrono::steady_clock::now() < end) {
      Call(static_cast<Manner>(random_() % 5), random_() % requests_.size());
    }
  }

 private:
  void Call(Manner manner, size_t which) {
    v1::GenerateRequest request = requests_[which];
    if (manner == Manner::kSession) {
      // A new session each time, so that its text is the solo one's.
      request.set_session_id("soak-" + std::to_string(number_) + "-" +
                             std::to_string(calls_++));
      request.set_create_session(true);
    }
    grpc::ClientContext context;
    if (manner == Manner::kDeadline) {
      context.set_deadline(std::chrono::system_clock::now() +
                           std::chrono::milliseconds(1 + random_() % 400));
    }
    const uint64_t cut_after = random_() % 40;  // messages
    Completion completion;
    {
      auto reader = stub_->Generate(&context, request);
      v1::GenerateResponse message;
      uint64_t messages = 0;
      while (reader->Read(&message)) {
        AddMessage(message, completion);
        completion.messages.clear();
        if (manner == Manner::kSlow) usleep(2000);
        if (++messages != cut_after) continue;
        if (manner == Manner::kCancel) context.TryCancel();
      }
      completion.status = reader->Finish();
    }
    Check(completion, solo_[which]);
  }

  void Check(const Completion& completion, const Completion& alone) {
    if (completion.status.ok()) {
      ++counts_.whole;
      if (completion.token_ids != alone.token_ids ||
          completion.text != alone.text) {
        ++counts_.wrong;
        ADD_FAILURE() << "a stream differs from what it is alone:\n"
                      << completion.text << "\nalone:\n"
                      << alone.text;
      }
      return;
    }
    ++counts_.cut;
    const grpc::StatusCode code = completion.status.error_code();
    if ((code != grpc::CANCELLED && code != grpc::DEADLINE_EXCEEDED) ||
        !IsPrefix(completion.token_ids, alone.token_ids)) {
      ++counts_.wrong;
      ADD_FAILURE() << "code " << code << ", "
                    << completion.status.error_message() << ", "
                    << completion.token_ids.size() << " tokens";
    }
  }

  const int number_;
  const std::vector<v1::GenerateRequest>& requests_;
  const std::vector<Completion>& solo_;
  Counts& counts_;
  std::mt19937_64 random_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  int calls_ = 0;
};

double Gauge(const ServerProcess& server, const std::string& series) {
  return MetricValue(HttpBody(HttpGetMetrics(server.metrics_port())), series);
}

TEST(SoakTest, StreamsDoNotDisturbEachOther) {
  const TempDir dir;
  ServerProcess server({"--model=" REPRISE_SOURCE_DIR "/models/embedded",
                        "--store=rocksdb:" + dir.path() + "/sessions"});
  ASSERT_TRUE(server.AwaitReady());
  const std::vector<v1::GenerateRequest> requests = Requests();
  std::vector<Completion> solo;
  for (const v1::GenerateRequest& request : requests) {
    solo.push_back(Generate(*server.NewStub(), request));
    ASSERT_TRUE(solo.back().status.ok());
    ASSERT_EQ(solo.back().token_ids.size(), kTokens);
  }

  Counts counts;
  const auto start = std::chrono::steady_clock::now();
  const auto seconds = std::chrono::seconds(SoakSeconds());
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      SoakClient(server, i, requests, solo, counts).RunUntil(start + seconds);
    });
  }
  std::this_thread::sleep_until(start + seconds / 2);
  const int64_t bytes_at_half = ResidentBytes(server.pid());
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counts.wrong, 0);
  EXPECT_GT(counts.whole, 0);
  EXPECT_GT(counts.cut, 0);

  // No slot is lost: nothing runs, and nothing is leased, soon after.
  const std::string labels = "{model=\"embedded\",state=\"active\"}";
  EXPECT_TRUE(Eventually([&] {
    return Gauge(server, "reprise_requests_running{model=\"embedded\"}") == 0 &&
           Gauge(server, "reprise_sessions" + labels) == 0;
  })) << HttpBody(HttpGetMetrics(server.metrics_port()));

  // Memory is flat: the second half of the traffic adds nothing but what the
  // store still fills: a write buffer and its cache, 48 MB of budget.
  const int64_t grown = ResidentBytes(server.pid()) - bytes_at_half;
  EXPECT_LT(grown, 48 << 20);
  RecordProperty("whole_streams", counts.whole);
  RecordProperty("cut_streams", counts.cut);
  std::printf(
      "%d whole streams, %d cut ones; %.1f MB resident, %+.1f MB in "
      "the second half\n",
      counts.whole.load(), counts.cut.load(),
      1e-6 * static_cast<double>(bytes_at_half),
      1e-6 * static_cast<double>(grown));

  // Every slot can be had again, all at once.
  threads.clear();
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      const size_t which = static_cast<size_t>(i) % requests.size();
      const Completion last = Generate(*server.NewStub(), requests[which]);
      EXPECT_TRUE(last.status.ok()) << last.status.error_message();
      EXPECT_EQ(last.token_ids, solo[which].token_ids);
    });
  }
  for (std::thread& thread : threads) thread.join();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.Log();
}

}  // namespace
}  // namespace reprise
