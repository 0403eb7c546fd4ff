// What the scheduler measures, on a clock that steps and the store move.
#include <gtest/gtest.h>

#include <span>
#include <string>

#include "server/scheduler.h"
#include "tests/support/scheduler_rig.h"
#include "tests/support/scrape.h"

namespace reprise {
namespace {

class SchedulerMetricsTest : public ::testing::Test {
 protected:
  SchedulerMetricsTest() {
    rig_.engine.before_step = [this, before = rig_.engine.before_step](
                                  std::span<const StepSegment> segments) {
      before(segments);
      rig_.clock.AdvanceMs(10);
    };
    rig_.store.SetHook([this](StoreCall call) {
      if (call == StoreCall::kPut) rig_.clock.AdvanceMs(1000);
    });
  }

  double Value(const std::string& name) {
    return MetricValue(rig_.metrics.Scrape(), name + "{model=\"fake\"}");
  }

  SchedulerRig rig_;
};

TEST_F(SchedulerMetricsTest, DecodeTimeEndsWithTheLastTokenNotWithTheCommit) {
  rig_.Run(MakeTurn("s", rig_.Encode("ab cd"), /*max_new_tokens=*/5));
  EXPECT_NEAR(Value("reprise_request_prefill_seconds_sum"), 0.01, 1e-9);
  EXPECT_NEAR(Value("reprise_request_decode_seconds_sum"), 0.05, 1e-9);
  EXPECT_NEAR(Value("reprise_time_per_output_token_seconds_sum"), 0.01, 1e-9);
  EXPECT_EQ(Value("reprise_generation_tokens_sum"), 5);
}

TEST_F(SchedulerMetricsTest, TurnWithoutTokensHasNoDecodeTime) {
  rig_.Run(MakeTurn("s", rig_.Encode("ab cd"), /*max_new_tokens=*/0));
  EXPECT_EQ(Value("reprise_request_prefill_seconds_count"), 1);
  EXPECT_EQ(Value("reprise_request_decode_seconds_count"), 0);
  EXPECT_EQ(Value("reprise_time_per_output_token_seconds_count"), 0);
}

}  // namespace
}  // namespace reprise
