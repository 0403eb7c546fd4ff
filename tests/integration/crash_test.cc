// A server under traffic that is killed at random instants, started again on
// the same store, and compared with what its clients know:
//
//  * what was acknowledged is there, and at most one call more;
//  * every conversation goes on bit for bit as on a server that nobody killed;
//  * what was deleted stays deleted, and nothing else is listed;
//  * a request that is sent again is carried out once;
//  * no slot and no lease is left behind.
//
// REPRISE_CRASH_KILLS says how often (6), REPRISE_CRASH_SEED replays a run as
// far as threads and processes can be replayed.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/crash_client.h"
#include "tests/integration/crash_reference.h"
#include "tests/support/environment.h"
#include "tests/support/eventually.h"
#include "tests/support/scrape.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

constexpr int kCrashClients = 4;
// Fewer than sessions, so that some are put away.
constexpr int kCrashSlots = 6;

const std::vector<std::string> kCrashModel = {
    "--model=" REPRISE_SOURCE_DIR "/models/embedded",
    "--slots=" + std::to_string(kCrashSlots)};

class CrashTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    seed_ = FromEnvironment("REPRISE_CRASH_SEED", std::random_device()());
    random_.seed(seed_);
    std::printf("durability %s, REPRISE_CRASH_SEED=%llu\n", GetParam(),
                static_cast<unsigned long long>(seed_));
    ASSERT_TRUE(reference_.AwaitReady());
    for (const std::string& prompt : kCrashPrompts) {
      v1::TokenizeRequest request;
      request.set_text(prompt);
      grpc::ClientContext context;
      v1::TokenizeResponse response;
      ASSERT_TRUE(
          reference_.stub().Tokenize(&context, request, &response).ok());
      prompt_tokens_.push_back(static_cast<uint32_t>(response.ids_size()));
    }
    for (int i = 0; i < kCrashClients; ++i) {
      clients_.push_back(
          std::make_unique<CrashClient>(i, random_(), prompt_tokens_));
    }
  }

  std::unique_ptr<ServerProcess> Start() const {
    std::vector<std::string> arguments = kCrashModel;
    arguments.push_back("--store=rocksdb:" + dir_.Path("sessions"));
    arguments.push_back(std::string("--durability=") + GetParam());
    return std::make_unique<ServerProcess>(arguments);
  }

  std::chrono::microseconds DrawTime(uint64_t most_us) {
    return std::chrono::microseconds(random_() % most_us);
  }

  // Traffic, and a kill: half of them after a time, half just after some call
  // has come to a phase that is drawn.
  void KillUnderTraffic(ServerProcess& server) {
    CrashScene scene;
    std::vector<std::thread> threads;
    for (const auto& client : clients_) {
      threads.emplace_back([&] { client->MakeTraffic(server, scene); });
    }
    if (random_() % 2 == 0) {
      // A slow machine, too, has answered some calls by then.
      const auto& answered =
          scene.reached[static_cast<size_t>(CrashPhase::kBetweenCalls)];
      Eventually([&] { return answered >= 2 * kCrashClients; });
      std::this_thread::sleep_for(DrawTime(600'000));
    } else {
      const auto& reached =
          scene.reached[1 + random_() % (kNumCrashPhases - 1)];
      const int times = 1 + static_cast<int>(random_() % 40);
      Eventually([&] { return reached >= times; });
      std::this_thread::sleep_for(DrawTime(3'000));
    }
    for (const auto& client : clients_) {
      ++killed_in_[static_cast<size_t>(client->phase())];
    }
    scene.killed = true;
    server.Signal(SIGKILL);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(server.Wait(), 128 + SIGKILL) << server.Log();
  }

  // Killed before anybody can call it: while it opens the store, say.
  void KillWhileStarting() {
    const std::unique_ptr<ServerProcess> server = Start();
    std::this_thread::sleep_for(DrawTime(400'000));
    server->Signal(SIGKILL);
    EXPECT_EQ(server->Wait(), 128 + SIGKILL) << server->Log();
  }

  void Check(const ServerProcess& server) {
    for (const auto& client : clients_) client->Check(server, reference_);
    std::vector<std::string> known;
    for (const auto& client : clients_) {
      for (const std::string& id : client->Sessions()) known.push_back(id);
    }
    std::sort(known.begin(), known.end());
    v1::ListSessionsRequest request;
    request.set_page_size(1000);
    grpc::ClientContext context;
    v1::ListSessionsResponse page;
    const auto stub = server.NewSessionsStub();
    ASSERT_TRUE(stub->List(&context, request, &page).ok());
    std::vector<std::string> listed;
    for (const v1::Session& session : page.sessions()) {
      listed.push_back(session.id());
    }
    EXPECT_EQ(listed, known);
    EXPECT_TRUE(Eventually([&] {
      return IsAtRest(ScrapeMetrics(server.metrics_port()), kCrashSlots);
    })) << ScrapeMetrics(server.metrics_port());
  }

  uint64_t seed_ = 0;
  std::mt19937_64 random_;
  const TempDir dir_;
  CrashReference reference_{kCrashModel};
  std::vector<uint32_t> prompt_tokens_;
  std::vector<std::unique_ptr<CrashClient>> clients_;
  std::array<int, kNumCrashPhases> killed_in_{};
};

TEST_P(CrashTest, NothingAcknowledgedIsLost) {
  const auto kills =
      static_cast<int>(FromEnvironment("REPRISE_CRASH_KILLS", 6));
  const auto start = std::chrono::steady_clock::now();
  int starting = 0;
  for (int kill = 0; kill < kills && !HasFailure(); ++kill) {
    if (kill % 6 == 4) {
      KillWhileStarting();
      ++starting;
      continue;
    }
    const std::unique_ptr<ServerProcess> server = Start();
    ASSERT_TRUE(server->AwaitReady());
    Check(*server);
    KillUnderTraffic(*server);
  }
  const std::unique_ptr<ServerProcess> server = Start();
  ASSERT_TRUE(server->AwaitReady());
  Check(*server);
  server->Signal(SIGTERM);
  EXPECT_EQ(server->Wait(), 0) << server->Log();

  CrashCounts counts;
  for (const auto& client : clients_) counts.Add(client->counts());
  std::printf(
      "%d kills, %d of them while starting, in %.0f s\n", kills, starting,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count());
  std::printf(
      "acknowledged: %d turns, %d forks, %d imports, %d rewinds, %d deletes; "
      "%d turns cancelled\n",
      counts.turns, counts.forks, counts.imports, counts.rewinds,
      counts.deletes, counts.cancels);
  std::printf(
      "in flight at a kill: %d, of them carried out: %d; sent again "
      "and answered from the record: %d\n",
      counts.in_doubt, counts.committed, counts.repeated);
  std::printf("continuations compared: %d, with a reference of %zu turns\n",
              counts.compared, reference_.turns());
  std::printf("clients at the kills:");
  for (int i = 0; i < kNumCrashPhases; ++i) {
    std::printf(" %d %s%s", killed_in_[i], kCrashPhaseNames[i],
                i + 1 < kNumCrashPhases ? "," : "\n");
  }
  EXPECT_GT(counts.turns, kills);
  EXPECT_GT(counts.in_doubt, 0);
  EXPECT_GT(counts.compared, kills);
}

INSTANTIATE_TEST_SUITE_P(All, CrashTest, ::testing::Values("fsync", "async"),
                         [](const auto& info) {
                           return std::string(info.param);
                         });

}  // namespace
}  // namespace reprise
