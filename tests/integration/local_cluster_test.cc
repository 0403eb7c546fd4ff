// deploy/local-cluster as its users run it: it starts, survives the end of a
// server, stops, and leaves no process and all data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/client_resume.h"
#include "tests/support/eventually.h"
#include "tests/support/free_port.h"
#include "tests/support/generate_call.h"
#include "tests/support/scrape.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int kServers = 2;

struct Outcome {
  int exit_code = 0;
  std::string output;
};

bool Lives(pid_t pid) {
  // A process that ended and was not waited for is none.
  const std::string stat = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  return !stat.empty() && stat.find(") Z ") == std::string::npos;
}

class LocalClusterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    // 20 ports that nobody has now; somebody may take one.
    std::mt19937 random(std::random_device{}());
    for (int tries = 0; tries < 20; ++tries) {
      port_ = 20'000 + static_cast<int>(random() % 12'000);
      if (Run("start").exit_code == 0) return;
    }
    FAIL() << "it does not start: " << Run("start").output;
  }
  void TearDown() override { Run("stop"); }

  Outcome Run(const std::string& command, const std::string& more = "") const {
    const std::string out = dir_.Path("output");
    const std::string line =
        REPRISE_SOURCE_DIR "/deploy/local-cluster " + command +
        " --servers=" + std::to_string(kServers) +
        " --port=" + std::to_string(port_) + " --dir=" + dir_.Path("cluster") +
        " --bin=" REPRISE_BINARY_DIR " --model=" REPRISE_SOURCE_DIR
        "/models/embedded " +
        more + " >" + out + " 2>&1 </dev/null";
    const int status = std::system(line.c_str());
    return {WEXITSTATUS(status), ReadFile(out)};
  }

  // Those that the cluster names, its own first.
  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids = {
        std::atoi(ReadFile(dir_.Path("cluster/pid")).c_str())};
    std::istringstream log(ReadFile(dir_.Path("cluster/log")));
    std::string word;
    while (log >> word) {
      pid_t pid = 0;
      if (word == "process" && log >> pid) pids.push_back(pid);
    }
    return pids;
  }
  bool AllGone(const std::vector<pid_t>& pids) const {
    return Eventually([&] {
      for (const pid_t pid : pids) {
        if (Lives(pid)) return false;
      }
      return true;
    });
  }

  // The process of the server that is at work.
  pid_t BusyServer() const {
    for (int i = 1; i <= kServers; ++i) {
      const std::string scrape = ScrapeMetrics(port_ + 10 + i);
      if (MetricValue(scrape, "reprise_requests_running{model=\"embedded\"}") <
          1) {
        continue;
      }
      const std::string log = ReadFile(dir_.Path("cluster/log"));
      const std::string name = "server-" + std::to_string(i) + ": process ";
      return std::atoi(log.c_str() + log.rfind(name) + name.size());
    }
    return 0;
  }

  std::unique_ptr<Client> Connect(const std::string& address) const {
    auto client =
        Client::Connect({.address = address, .connect_timeout_ms = 60'000});
    EXPECT_TRUE(client.ok()) << client.status();
    return client.ok() ? *std::move(client) : nullptr;
  }
  std::string Address() const { return "127.0.0.1:" + std::to_string(port_); }

  // A turn of session `id`, in the middle of which something happens.
  Completion Turn(const std::string& address, const std::string& id,
                  const std::function<void()>& happens) {
    const auto client = Connect(address);
    Completion completion;
    if (client == nullptr) return completion;
    Cancellation cancellation;
    v1::GenerateRequest request = SessionRequest(id, "In the beginning", 2'000);
    request.mutable_stopping()->set_ignore_eos(true);
    int heard = 0;
    const absl::Status status = GenerateResuming(
        *client, request, {.timeout_ms = 60'000},
        [&](const v1::GenerateResponse& message) {
          AddMessage(message, completion);
          if (++heard == 10) happens();
          return true;
        },
        [&](const std::string& notice) { notices_.push_back(notice); },
        cancellation);
    EXPECT_TRUE(status.ok()) << status;
    return completion;
  }

  const TempDir dir_;
  int port_ = 0;
  std::vector<std::string> notices_;
};

TEST_F(LocalClusterTest, ServesSurvivesAndStops) {
  EXPECT_THAT(Run("start").output, HasSubstr("it runs already"));
  const Completion whole = Turn(Address(), "a", [] {});
  EXPECT_TRUE(notices_.empty());
  const Completion resumed = Turn(Address(), "b", [this] {
    const pid_t busy = BusyServer();
    ASSERT_GT(busy, 0);
    kill(busy, SIGKILL);
  });
  EXPECT_EQ(resumed.text, whole.text);
  EXPECT_EQ(resumed.token_ids, whole.token_ids);
  ASSERT_EQ(notices_.size(), 1u);
  EXPECT_THAT(notices_[0], AllOf(HasSubstr(Address() + " went away"),
                                 HasSubstr("over a new connection")));
  // It starts the server again.
  Outcome status;
  EXPECT_TRUE(Eventually([&] {
    status = Run("status");
    return status.output.find("no answer") == std::string::npos;
  })) << status.output;
  EXPECT_THAT(status.output, AllOf(HasSubstr("HAProxy"), HasSubstr("server-1"),
                                   HasSubstr("server-2"), HasSubstr("Redis")));
  EXPECT_THAT(status.output,
              MatchesRegex("([^ ]+ +127\\.0\\.0\\.1:[0-9]+ +serves +process "
                           "[0-9]+\n)+"));

  const std::vector<pid_t> pids = Pids();
  EXPECT_GE(pids.size(), 1u + 4u + 1u);  // with the one that was started anew
  const Outcome stopped = Run("stop");
  EXPECT_EQ(stopped.exit_code, 0) << stopped.output;
  EXPECT_TRUE(AllGone(pids));
  EXPECT_EQ(Run("status").exit_code, 1);
  EXPECT_THAT(Run("stop").output, HasSubstr("nothing runs"));

  // What was said is still there.
  ASSERT_EQ(Run("start").exit_code, 0);
  EXPECT_EQ(Connect(Address())->GetSession("b")->revision(), 1u);
}

// However the script ends, servers finish their turns, and Redis takes them.
TEST_F(LocalClusterTest, RedisOutlivesServersThatDrain) {
  for (const int signal : {SIGKILL, SIGTERM}) {
    const std::vector<pid_t> pids = Pids();
    ASSERT_GT(pids[0], 0);
    const std::string id = "s" + std::to_string(signal);
    // At a server: HAProxy ends at once.
    const std::string server = "127.0.0.1:" + std::to_string(port_ + 1);
    const Completion turn = Turn(server, id, [&] { kill(pids[0], signal); });
    EXPECT_TRUE(notices_.empty()) << notices_[0];
    ASSERT_EQ(turn.finished.size(), 1u);
    EXPECT_EQ(turn.finished.at(0).revision(), 1u);
    EXPECT_TRUE(AllGone(pids));
    EXPECT_TRUE(Eventually([&] {
      return Run("status").output.find("nothing runs") != std::string::npos;
    }));
    ASSERT_EQ(Run("start").exit_code, 0);
    EXPECT_EQ(Connect(Address())->GetSession(id)->revision(), 1u);
  }
}

TEST_F(LocalClusterTest, SaysWhatIsWrong) {
  const TempDir other;
  const std::string elsewhere = "--dir=" + other.Path("cluster");
  EXPECT_THAT(
      Run("run", elsewhere).output,
      AllOf(HasSubstr("port " + std::to_string(port_)), HasSubstr("is taken")));
  EXPECT_THAT(Run("run").output, HasSubstr("runs already"));
  EXPECT_THAT(Run("run", "--servers=0").output,
              HasSubstr("--servers: '0' is not a whole number from 1 to 9"));
  EXPECT_THAT(Run("run", "--bin=/nowhere").output,
              HasSubstr("/nowhere/reprise-server is missing"));
  EXPECT_THAT(Run("run", "--model=/nowhere").output,
              HasSubstr("no folder /nowhere"));
  EXPECT_THAT(Run("run", "--what").output, HasSubstr("unknown argument"));
}

}  // namespace
}  // namespace reprise
