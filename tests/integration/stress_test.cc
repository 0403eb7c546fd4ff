// Many streams at once, with clients that behave and clients that do not: they
// cancel, run into deadlines, stop reading for a while or for good, or hang up.
// Whoever reads to the end must get what it gets alone, whoever does not the
// beginning of it, and nothing may be left behind.
//
// REPRISE_STRESS_SECONDS sets how long it goes on; the default suits a run of
// the whole test suite.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/narrow_stub.h"
#include "tests/support/scrape.h"
#include "tests/support/slowdown.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

// With a sanitizer 64 would be more than the server can serve in time.
constexpr int kStreams = kSlowdown > 1 ? 16 : 64;
// The first call of so many streams is not read.
constexpr int kStuck = kStreams / 8;
constexpr uint32_t kTokens = 300;
constexpr std::array<const char*, 6> kPrompts = {"a",  "abc",  "d a",
                                                 "cc", "ea b", "dabcd "};

std::chrono::milliseconds Duration() {
  const char* seconds = std::getenv("REPRISE_STRESS_SECONDS");
  return seconds == nullptr ? std::chrono::milliseconds(2000)
                            : std::chrono::seconds(std::atoi(seconds));
}

ServerOptions ManyStreams() {
  ServerOptions options = TestServer::SmallOptions();
  options.slots = 24;  // fewer than streams: some always wait
  options.max_running = 16;
  options.slow_reader_timeout_ms = 2000 * kSlowdown;
  return options;
}

// A turn of a session, and the tokens that came of it.
struct TurnTaken {
  size_t prompt = 0;
  std::vector<int32_t> token_ids;
};

// With log-probabilities: long, and with every bit of the arithmetic.
v1::GenerateRequest Request(size_t prompt) {
  v1::GenerateRequest request = TextRequest(kPrompts[prompt], kTokens);
  request.mutable_output()->set_logprobs(20);
  return request;
}

v1::GenerateRequest TurnRequestOf(const std::string& session, size_t prompt) {
  return SessionRequest(session, kPrompts[prompt], 20);
}

class StressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      alone_.push_back(Generate(server_.inference(), Request(i)));
      ASSERT_EQ(alone_.back().token_ids.size(), kTokens);
    }
  }

  // One client after the other, as the seed says.
  void Behave(int stream, std::chrono::steady_clock::time_point end) {
    std::mt19937 random(static_cast<unsigned>(stream));
    const auto wide = v1::Inference::NewStub(server_.NewChannel());
    const auto narrow = NarrowStub(server_.rpc().port());
    if (stream < kStuck) StopReading(*narrow, random() % kPrompts.size());
    while (std::chrono::steady_clock::now() < end) {
      const size_t prompt = random() % kPrompts.size();
      switch (random() % 7) {
        case 0:
          CancelAfter(*wide, prompt, random() % 5);
          break;
        case 1:
          HaveADeadline(*wide, prompt, 1 + random() % 20);
          break;
        case 2:  // a turn of a session, which must not disturb anyone either
          RunATurn(*wide, stream, prompt);
          break;
        case 3:
          Pause(*narrow, prompt, /*messages=*/1 + random() % 5,
                std::chrono::milliseconds(random() % 100));
          break;
        case 4:
          HangUp(*wide, prompt, random() % 3);
          break;
        default:
          ReadToTheEnd(*wide, prompt);
      }
    }
  }

  void ReadToTheEnd(v1::Inference::Stub& stub, size_t prompt) {
    const Completion c = Generate(stub, Request(prompt));
    EXPECT_TRUE(c.status.ok()) << c.status.error_message();
    EXPECT_EQ(c.token_ids, alone_[prompt].token_ids);
    EXPECT_TRUE(c.logprobs == alone_[prompt].logprobs);
    ++survivors_;
  }

  void CancelAfter(v1::Inference::Stub& stub, size_t prompt,
                   uint32_t messages) {
    grpc::ClientContext context;
    Completion c;
    auto reader = stub.Generate(&context, Request(prompt));
    v1::GenerateResponse message;
    while (messages-- > 0 && reader->Read(&message)) AddMessage(message, c);
    context.TryCancel();
    while (reader->Read(&message)) AddMessage(message, c);
    c.status = reader->Finish();
    ExpectTheBeginning(c, prompt, {grpc::StatusCode::CANCELLED});
  }

  void HaveADeadline(v1::Inference::Stub& stub, size_t prompt, uint32_t ms) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(ms));
    ExpectTheBeginning(Generate(stub, Request(prompt), &context), prompt,
                       {grpc::StatusCode::DEADLINE_EXCEEDED});
  }

  void RunATurn(v1::Inference::Stub& stub, int stream, size_t prompt) {
    const Completion c =
        Generate(stub, TurnRequestOf("s" + std::to_string(stream), prompt));
    EXPECT_TRUE(c.status.ok()) << c.status.error_message();
    turns_[static_cast<size_t>(stream)].push_back({prompt, c.token_ids});
  }

  // Reads on after a pause. The server waits meanwhile, or, if the machine is
  // so busy that the pause becomes a long one, gives up.
  void Pause(v1::Inference::Stub& narrow, size_t prompt, uint32_t messages,
             std::chrono::milliseconds pause) {
    ReadWith(narrow, prompt, messages,
             [pause] { std::this_thread::sleep_for(pause); });
  }

  // Until the server has given up.
  void StopReading(v1::Inference::Stub& narrow, size_t prompt) {
    const Completion c = ReadWith(narrow, prompt, /*messages=*/1, [this] {
      ++stuck_;
      read_on_.wait();
    });
    EXPECT_FALSE(c.status.ok());
    EXPECT_LT(c.token_ids.size(), kTokens);
  }

  // Reads to the end, with a wait after some messages.
  template <typename Wait>
  Completion ReadWith(v1::Inference::Stub& narrow, size_t prompt,
                      uint32_t messages, const Wait& wait) {
    grpc::ClientContext context;
    Completion c;
    auto reader = narrow.Generate(&context, Request(prompt));
    v1::GenerateResponse message;
    while (reader->Read(&message)) {
      AddMessage(message, c);
      if (--messages == 0) wait();
    }
    c.status = reader->Finish();
    if (!c.status.ok()) ++given_up_;
    // The status, or the reset that cut off what was still to be read.
    ExpectTheBeginning(
        c, prompt,
        {grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::CANCELLED});
    return c;
  }

  // Leaves without a word.
  void HangUp(v1::Inference::Stub& stub, size_t prompt, uint32_t messages) {
    grpc::ClientContext context;
    Completion c;
    auto reader = stub.Generate(&context, Request(prompt));
    v1::GenerateResponse message;
    while (messages-- > 0 && reader->Read(&message)) AddMessage(message, c);
    ExpectTheBeginning(c, prompt, {});
  }

  // All of it if the call ended well, which it may; else a part, and the call
  // ended with one of `codes`.
  void ExpectTheBeginning(const Completion& c, size_t prompt,
                          const std::vector<grpc::StatusCode>& codes) {
    const std::vector<int32_t>& whole = alone_[prompt].token_ids;
    ASSERT_LE(c.token_ids.size(), whole.size());
    EXPECT_TRUE(
        std::equal(c.token_ids.begin(), c.token_ids.end(), whole.begin()));
    EXPECT_TRUE(alone_[prompt].logprobs.starts_with(c.logprobs));
    if (codes.empty()) return;  // no end was read
    if (c.status.ok()) {
      EXPECT_EQ(c.token_ids.size(), whole.size());
    } else {
      EXPECT_EQ(std::count(codes.begin(), codes.end(), c.status.error_code()),
                1)
          << c.status.error_message();
    }
  }

  // The turns of each session again, alone.
  void ExpectTurnsAsAlone() {
    for (int stream = 0; stream < kStreams; ++stream) {
      const std::string session = "again" + std::to_string(stream);
      for (const TurnTaken& turn : turns_[static_cast<size_t>(stream)]) {
        const Completion c =
            Generate(server_.inference(), TurnRequestOf(session, turn.prompt));
        ASSERT_TRUE(c.status.ok()) << c.status.error_message();
        ASSERT_EQ(c.token_ids, turn.token_ids);
      }
    }
  }

  double Metric(const std::string& series) {
    return MetricValue(server_.metrics().Scrape(), series);
  }
  double SlowReaders() {
    return Metric("reprise_cancellations_total{cause=\"slow_reader\"}");
  }

  TestServer server_{ManyStreams()};
  std::vector<Completion> alone_;
  // Of each stream's session; each is written by its stream only.
  std::array<std::vector<TurnTaken>, kStreams> turns_;
  std::promise<void> may_read_on_;
  const std::shared_future<void> read_on_ = may_read_on_.get_future().share();
  std::atomic<int> survivors_ = 0;
  std::atomic<int> stuck_ = 0;
  std::atomic<int> given_up_ = 0;  // as clients saw it
};

TEST_F(StressTest, NoStreamDisturbsAnotherAndNothingIsLeft) {
  const auto end = std::chrono::steady_clock::now() + Duration();
  std::vector<std::thread> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back([this, i, end] { Behave(i, end); });
  }
  // Every client that does not read is noticed, while the others go on.
  EXPECT_TRUE(Eventually(
      [&] { return stuck_ == kStuck && SlowReaders() >= kStuck + given_up_; }));
  may_read_on_.set_value();
  for (std::thread& client : clients) client.join();
  EXPECT_GT(survivors_, 0);
  EXPECT_TRUE(Eventually(
      [&] { return server_.scheduler().idle() && server_.open_calls() == 0; }));
  // Nobody else was taken for slow, and their writes did wait.
  EXPECT_EQ(SlowReaders(), given_up_);
  EXPECT_GE(Metric("reprise_stream_send_stall_seconds_count") -
                Metric("reprise_stream_send_stall_seconds_bucket{le=\"1\"}"),
            given_up_);
  ExpectTurnsAsAlone();
  // The fixture's end checks that every slot came back.
}

}  // namespace
}  // namespace reprise
