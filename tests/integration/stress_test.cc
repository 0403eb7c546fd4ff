// Many streams at once, with clients that behave and clients that do not: they
// cancel, run into deadlines, read slowly, or hang up. Whoever reads to the end
// must get what it gets alone, and nothing may be left behind.
//
// REPRISE_STRESS_SECONDS sets how long it goes on; the default suits a run of
// the whole test suite.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/test_server.h"

namespace reprise {
namespace {

constexpr int kStreams = 64;
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
  return options;
}

class StressTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      alone_.push_back(Generate(server_.inference(), Request(i)).token_ids);
      ASSERT_EQ(alone_.back().size(), 300u);
    }
  }
  static v1::GenerateRequest Request(size_t prompt) {
    return TextRequest(kPrompts[prompt], 300);
  }

  // One client after the other, as the seed says.
  void Behave(int stream, std::chrono::steady_clock::time_point end) {
    std::mt19937 random(static_cast<unsigned>(stream));
    auto channel = server_.NewChannel();
    auto stub = v1::Inference::NewStub(channel);
    while (std::chrono::steady_clock::now() < end) {
      const size_t prompt = random() % kPrompts.size();
      switch (random() % 5) {
        case 0:
          CancelAfter(*stub, prompt, random() % 5);
          break;
        case 1:
          HaveADeadline(*stub, prompt, 1 + random() % 20);
          break;
        case 2:  // a turn of a session, which must not disturb anyone either
          RunATurn(*stub, stream, prompt);
          break;
        default:
          ReadToTheEnd(*stub, prompt);
      }
    }
  }

  void ReadToTheEnd(v1::Inference::Stub& stub, size_t prompt) {
    const Completion c = Generate(stub, Request(prompt));
    EXPECT_TRUE(c.status.ok()) << c.status.error_message();
    EXPECT_EQ(c.token_ids, alone_[prompt]);
    ++survivors_;
  }

  void CancelAfter(v1::Inference::Stub& stub, size_t prompt,
                   uint32_t messages) {
    grpc::ClientContext context;
    auto reader = stub.Generate(&context, Request(prompt));
    v1::GenerateResponse message;
    while (messages-- > 0 && reader->Read(&message)) {
    }
    context.TryCancel();
    while (reader->Read(&message)) {
    }
    (void)reader->Finish();
  }

  void HaveADeadline(v1::Inference::Stub& stub, size_t prompt, uint32_t ms) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(ms));
    const Completion c = Generate(stub, Request(prompt), &context);
    if (c.status.ok()) {
      EXPECT_EQ(c.token_ids, alone_[prompt]);
    }
  }

  void RunATurn(v1::Inference::Stub& stub, int stream, size_t prompt) {
    const Completion c = Generate(
        stub,
        SessionRequest("s" + std::to_string(stream), kPrompts[prompt], 20));
    EXPECT_TRUE(c.status.ok()) << c.status.error_message();
  }

  TestServer server_{ManyStreams()};
  std::vector<std::vector<int32_t>> alone_;
  std::atomic<int> survivors_ = 0;
};

TEST_F(StressTest, NoStreamDisturbsAnotherAndNothingIsLeft) {
  const auto end = std::chrono::steady_clock::now() + Duration();
  std::vector<std::thread> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.emplace_back([this, i, end] { Behave(i, end); });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_GT(survivors_, 0);
  EXPECT_TRUE(Eventually(
      [&] { return server_.scheduler().idle() && server_.open_calls() == 0; }));
  // The fixture's end checks that every slot came back.
}

}  // namespace
}  // namespace reprise
