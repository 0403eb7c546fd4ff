// Many streams at once, with clients that cancel, stop reading and run out of
// time: nobody disturbs anybody, and nothing is lost.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/environment.h"
#include "tests/support/eventually.h"
#include "tests/support/generate_call.h"
#include "tests/support/narrow_stub.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/scrape.h"
#include "tests/support/server_process.h"
#include "tests/support/slowdown.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

// With a sanitizer 64 would be more than the server can serve in time.
constexpr int kStreams = kSlowdown > 1 ? 16 : 64;
constexpr uint32_t kTokens = 96;
// More than run at once, and soon fewer than there are sessions.
constexpr int kSoakSlots = 96;
// Clients whose first call is not read. What a stream takes by itself (1 KiB,
// one write of up to 33 tokens, and 32 that wait) is less than kTokens.
constexpr int kStuck = kStreams / 4;
constexpr int64_t kSlowReaderMs = 2000 * kSlowdown;

// Of different lengths: some are decoding before others are prefilled. With
// log-probabilities, which differ where the arithmetic does, and are long.
std::vector<v1::GenerateRequest> Requests() {
  std::vector<v1::GenerateRequest> requests;
  std::string prompt = "In the beginning";
  for (int i = 0; i < 8; ++i) {
    requests.push_back(TextRequest(prompt, kTokens));
    requests.back().mutable_sampling()->set_seed(1000 + i);
    requests.back().mutable_output()->set_logprobs(20);
    prompt +=
        " God created the heaven and the earth. And the earth was "
        "without form, and void; and darkness was upon the face of";
  }
  return requests;
}

// What the clients share.
struct Scenario {
  std::vector<v1::GenerateRequest> requests;
  std::vector<Completion> solo;      // what each request gives alone
  std::shared_future<void> read_on;  // stuck calls wait for it
};

bool IsPrefix(const Completion& some, const Completion& whole) {
  return some.token_ids.size() <= whole.token_ids.size() &&
         std::equal(some.token_ids.begin(), some.token_ids.end(),
                    whole.token_ids.begin()) &&
         whole.text.starts_with(some.text) &&
         whole.logprobs.starts_with(some.logprobs);
}

enum class Manner { kWhole, kSession, kCancel, kDeadline, kPause, kStuck };

// How a call of that manner may end, but for OK.
bool MayEndWith(Manner manner, grpc::StatusCode code) {
  switch (manner) {
    case Manner::kWhole:
    case Manner::kSession:
      return false;
    case Manner::kCancel:
      return code == grpc::CANCELLED;
    case Manner::kDeadline:
      return code == grpc::DEADLINE_EXCEEDED;
    case Manner::kPause:
    case Manner::kStuck:
      // The status, or the reset that cut off what was still to be read.
      return code == grpc::RESOURCE_EXHAUSTED || code == grpc::CANCELLED;
  }
  return false;
}

struct Counts {
  std::atomic<int> whole{0};
  std::atomic<int> cut{0};
  std::atomic<int> paused{0};
  std::atomic<int> slow{0};  // of those that were cut
  std::atomic<int> stuck{0};
};

// One client: calls until `end`, each time in another manner.
class SoakClient {
 public:
  SoakClient(const ServerProcess& server, int number, const Scenario& scenario,
             Counts& counts)
      : number_(number),
        scenario_(scenario),
        counts_(counts),
        random_(static_cast<uint64_t>(number)),
        stub_(server.NewStub()),
        narrow_stub_(NarrowStub(server.grpc_port())) {}

  void RunUntil(std::chrono::steady_clock::time_point end) {
    const size_t requests = scenario_.requests.size();
    if (number_ < kStuck) Call(Manner::kStuck, random_() % requests);
    while (std::chrono::steady_clock::now() < end) {
      Call(static_cast<Manner>(random_() % 5), random_() % requests);
    }
  }

 private:
  void Call(Manner manner, size_t which) {
    v1::GenerateRequest request = scenario_.requests[which];
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
    const bool narrow = manner == Manner::kPause || manner == Manner::kStuck;
    v1::Inference::Stub& stub = narrow ? *narrow_stub_ : *stub_;
    // Messages; a stuck call gets no farther than the first, Started.
    const uint64_t act_after = manner == Manner::kStuck ? 1 : random_() % 40;
    Completion completion;
    {
      auto reader = stub.Generate(&context, request);
      v1::GenerateResponse message;
      uint64_t messages = 0;
      while (reader->Read(&message)) {
        AddMessage(message, completion);
        completion.messages.clear();
        if (++messages == act_after) Act(manner, context);
      }
      completion.status = reader->Finish();
    }
    Check(manner, completion, scenario_.solo[which]);
  }

  void Act(Manner manner, grpc::ClientContext& context) {
    if (manner == Manner::kCancel) context.TryCancel();
    if (manner == Manner::kPause) {
      ++counts_.paused;
      std::this_thread::sleep_for(
          std::chrono::milliseconds((100 + random_() % 300) * kSlowdown));
    }
    if (manner == Manner::kStuck) {
      ++counts_.stuck;
      scenario_.read_on.wait();
    }
  }

  void Check(Manner manner, const Completion& completion,
             const Completion& alone) {
    const grpc::Status& status = completion.status;
    const size_t tokens = completion.token_ids.size();
    EXPECT_TRUE(IsPrefix(completion, alone))
        << "a stream differs from what it is alone: " << tokens << " tokens\n"
        << completion.text << "\nalone:\n"
        << alone.text;
    if (manner == Manner::kStuck) {
      EXPECT_FALSE(status.ok());
      EXPECT_LT(tokens, kTokens);
    }
    if (status.ok()) {
      ++counts_.whole;
      EXPECT_EQ(tokens, kTokens);
      EXPECT_EQ(completion.text.size(), alone.text.size());
      EXPECT_EQ(completion.logprobs.size(), alone.logprobs.size());
      return;
    }
    ++counts_.cut;
    if (manner == Manner::kPause || manner == Manner::kStuck) ++counts_.slow;
    EXPECT_TRUE(MayEndWith(manner, status.error_code()))
        << "manner " << static_cast<int>(manner) << ", code "
        << status.error_code() << ", " << status.error_message() << ", "
        << tokens << " tokens";
  }

  const int number_;
  const Scenario& scenario_;
  Counts& counts_;
  std::mt19937_64 random_;
  const std::unique_ptr<v1::Inference::Stub> stub_;
  const std::unique_ptr<v1::Inference::Stub> narrow_stub_;
  int calls_ = 0;
};

std::string Scrape(const ServerProcess& server) {
  return ScrapeMetrics(server.metrics_port());
}

double SlowReaders(const ServerProcess& server) {
  return MetricValue(Scrape(server),
                     "reprise_cancellations_total{cause=\"slow_reader\"}");
}

// Writes that took longer than `seconds`, a bound of the histogram.
double StallsBeyond(const ServerProcess& server, const std::string& seconds) {
  const std::string scrape = Scrape(server);
  const std::string name = "reprise_stream_send_stall_seconds_";
  return MetricValue(scrape, name + "count") -
         MetricValue(scrape, name + "bucket{le=\"" + seconds + "\"}");
}

class SoakTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(server_.AwaitReady());
    const auto stub = server_.NewStub();
    scenario_.requests = Requests();
    for (const v1::GenerateRequest& request : scenario_.requests) {
      const Completion alone = Generate(*stub, request);
      ASSERT_TRUE(alone.status.ok()) << alone.status.error_message();
      ASSERT_EQ(alone.token_ids.size(), kTokens);
      ASSERT_GT(alone.logprobs.size(), kTokens * 200);
      scenario_.solo.push_back(alone);
    }
    scenario_.read_on = read_on_.get_future().share();
  }

  // All streams at once, to the end.
  void RunAllOnce() {
    std::vector<std::thread> threads;
    for (int i = 0; i < kStreams; ++i) {
      threads.emplace_back([&, i] {
        const size_t which = static_cast<size_t>(i) % scenario_.requests.size();
        const Completion last =
            Generate(*server_.NewStub(), scenario_.requests[which]);
        EXPECT_TRUE(last.status.ok()) << last.status.error_message();
        EXPECT_EQ(last.token_ids, scenario_.solo[which].token_ids);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  const TempDir dir_;
  ServerProcess server_{
      {"--model=" REPRISE_SOURCE_DIR "/models/embedded",
       "--store=rocksdb:" + dir_.path() + "/sessions",
       "--slots=" + std::to_string(kSoakSlots),
       // Filled soon, so that memory can settle.
       "--prefix-cache=8MiB", "--memory-tier=8MiB",
       "--slow-reader-timeout=" + std::to_string(kSlowReaderMs) + "ms"}};
  Scenario scenario_;
  std::promise<void> read_on_;
};

TEST_F(SoakTest, StreamsDoNotDisturbEachOther) {
  Counts counts;
  const auto start = std::chrono::steady_clock::now();
  // The test labelled `long` sets 60.
  const std::chrono::seconds seconds(
      FromEnvironment("REPRISE_SOAK_SECONDS", 5));
  std::vector<std::thread> threads;
  for (int i = 0; i < kStreams; ++i) {
    threads.emplace_back([&, i] {
      SoakClient(server_, i, scenario_, counts).RunUntil(start + seconds);
    });
  }
  // Every client that does not read is noticed, while the others go on.
  EXPECT_TRUE(Eventually([&] {
    return counts.stuck == kStuck &&
           SlowReaders(server_) >= kStuck + counts.slow;
  })) << Scrape(server_);
  read_on_.set_value();
  std::this_thread::sleep_until(start + seconds / 2);
  const int64_t bytes_at_half = ResidentBytes(server_.pid());
  for (std::thread& thread : threads) thread.join();
  const double seconds_in_all =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  EXPECT_TRUE(Eventually([&] { return IsAtRest(Scrape(server_), kSoakSlots); }))
      << Scrape(server_);
  EXPECT_GT(counts.whole, 0);
  EXPECT_GT(counts.cut, counts.slow);
  EXPECT_GT(counts.paused, 0);

  // Writes waited for readers: of those that were given up, for as long as the
  // time-out says; of those that paused, for a part of the pause. And nobody
  // else was taken for slow.
  EXPECT_EQ(SlowReaders(server_), counts.slow);
  const double given_up = StallsBeyond(server_, "1");
  const double waited = StallsBeyond(server_, "0.05");
  EXPECT_GE(given_up, counts.slow);
  EXPECT_GT(waited, given_up);

  // Memory is flat: the second half of the traffic adds nothing but what the
  // store still fills: a write buffer and its cache, 48 MB of budget.
  const int64_t grown = ResidentBytes(server_.pid()) - bytes_at_half;
  EXPECT_LT(grown, 48 << 20);
  std::printf(
      "%.1f s: %d whole streams, %d cut ones, of them %d slow; "
      "%d paused; "
      "%.0f writes over 0.05 s, %.0f over 1 s; %.1f MB resident, %+.1f MB in "
      "the second half\n",
      seconds_in_all, counts.whole.load(), counts.cut.load(),
      counts.slow.load(), counts.paused.load(), waited, given_up,
      1e-6 * static_cast<double>(bytes_at_half),
      1e-6 * static_cast<double>(grown));

  RunAllOnce();  // every slot can be had again
  server_.Signal(SIGTERM);
  EXPECT_EQ(server_.Wait(), 0) << server_.Log();
}

}  // namespace
}  // namespace reprise
