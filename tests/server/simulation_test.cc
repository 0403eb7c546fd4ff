// The scheduler and the session manager, in random schedules (simulation.h).
//
//   REPRISE_SIMULATION_SEED=123      that run alone
//   REPRISE_SIMULATION_SEEDS=100000  more than the usual number of runs
#include "tests/server/simulation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>

#include "tests/support/environment.h"

namespace reprise {
namespace {

// How to run the seed at hand again; told also when a CHECK ends the process.
std::string replay;  // NOLINT: a signal handler reads it

void TellReplay(int /*signal*/) {
  static_cast<void>(!write(STDOUT_FILENO, replay.data(), replay.size()));
}

uint64_t RunSeed(uint64_t seed, SimulationTally& tally) {
  replay = "replay with REPRISE_SIMULATION_SEED=" + std::to_string(seed) + "\n";
  SCOPED_TRACE(replay);
  Simulation simulation(seed, tally);
  simulation.Run();
  return simulation.trace();
}

// The log is full of faults that are made up: it is only shown of a seed that
// is run alone.
class SimulationTest : public testing::Test {
 protected:
  SimulationTest() {
    std::signal(SIGABRT, TellReplay);
    if (std::getenv("REPRISE_SIMULATION_SEED") != nullptr) return;
    stderr_ = dup(STDERR_FILENO);
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, STDERR_FILENO);
    close(null);
  }
  ~SimulationTest() override {
    std::signal(SIGABRT, SIG_DFL);
    if (stderr_ < 0) return;
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
  }

 private:
  int stderr_ = -1;
};

TEST_F(SimulationTest, EveryScheduleKeepsThePromises) {
  uint64_t first = 0;
  uint64_t count = FromEnvironment("REPRISE_SIMULATION_SEEDS", 10'000);
  if (std::getenv("REPRISE_SIMULATION_SEED") != nullptr) {
    first = FromEnvironment("REPRISE_SIMULATION_SEED", 0);
    count = 1;
  }
  SimulationTally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    RunSeed(seed, tally);
    if (HasFailure()) return;
  }
  if (count < 10'000) return;
  for (const char* what : {"ABORTED",
                           "CANCELLED",
                           "DEADLINE_EXCEEDED",
                           "INVALID_ARGUMENT",
                           "NOT_FOUND",
                           "OK",
                           "RESOURCE_EXHAUSTED",
                           "UNAVAILABLE",
                           "cancelled",
                           "cancelled kept",
                           "crash",
                           "create ALREADY_EXISTS",
                           "create OK",
                           "create UNAVAILABLE",
                           "delete ABORTED",
                           "delete OK",
                           "delete UNAVAILABLE",
                           "fork ABORTED",
                           "fork ALREADY_EXISTS",
                           "fork OK",
                           "fork UNAVAILABLE",
                           "get OK",
                           "length",
                           "length kept",
                           "list OK",
                           "list UNAVAILABLE",
                           "prefix",
                           "repeated",
                           "restart",
                           "resumed from memory",
                           "resumed from slot",
                           "resumed from store",
                           "revisions",
                           "rewind ABORTED",
                           "rewind OK",
                           "rewind OUT_OF_RANGE",
                           "rewind RESOURCE_EXHAUSTED",
                           "rewind UNAVAILABLE",
                           "stop kept",
                           "stop_string kept",
                           "stop_token kept",
                           "stored without an answer",
                           "suspend ABORTED",
                           "suspend OK",
                           "sweep",
                           "time_limit kept",
                           "touch ABORTED",
                           "touch OK",
                           "touch UNAVAILABLE"}) {
    EXPECT_GT(tally[what], 100) << what;
  }
}

TEST_F(SimulationTest, ASeedIsTheSameScheduleEveryTime) {
  SimulationTally tally;
  uint64_t before = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const uint64_t trace = RunSeed(seed, tally);
    EXPECT_EQ(RunSeed(seed, tally), trace);
    EXPECT_NE(trace, before);
    before = trace;
  }
}

}  // namespace
}  // namespace reprise
