// What a tenant may have in the store.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/session_fixture.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;
using enum absl::StatusCode;

class SessionQuotaTest : public SessionTest {
 protected:
  absl::StatusOr<SessionInfo> Create(const std::string& tenant,
                                     const std::string& id) {
    return manager_->CreateSession({tenant, id}, /*ttl_ms=*/0);
  }
  static void ExpectRefused(const absl::Status& status,
                            const std::string& text) {
    EXPECT_EQ(status.code(), kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(text));
    EXPECT_FALSE(IsOutOfSlots(status));  // waiting would not help
  }
};

TEST_F(SessionQuotaTest, SessionsAreCountedForEachTenant) {
  options_.max_tenant_sessions = 2;
  Restart();
  ASSERT_TRUE(Create("tenant", "a").ok());
  CommitTo("b", 1);  // made by a turn
  const std::string text =
      "tenant tenant has 2 sessions, max_tenant_sessions is 2";
  ExpectRefused(Create("tenant", "c").status(), text);
  ExpectRefused(Acquire("c", /*create=*/true).status(), text);
  ExpectRefused(manager_->Fork(Key("a"), Key("c"), std::nullopt).status(),
                text);
  // Those there are go on, and so do other tenants.
  CommitTo("a", 2);
  EXPECT_TRUE(Create("other", "c").ok());
  ASSERT_TRUE(manager_->Delete(Key("b")).ok());
  EXPECT_TRUE(Create("tenant", "c").ok());
}

TEST_F(SessionQuotaTest, BytesAreCountedWithCheckpoints) {
  CommitTo("a", 1);
  const uint64_t one = manager_->Get(Key("a"))->stored.snapshot_bytes;
  options_.max_tenant_bytes = static_cast<int64_t>(3 * one);
  Restart();
  CommitTo("a", 3);  // two of them are checkpoints
  const std::string text = "tenant tenant has " + std::to_string(3 * one) +
                           " bytes of snapshots, max_tenant_bytes is " +
                           std::to_string(3 * one);
  ExpectRefused(Acquire("a").status(), text);
  ExpectRefused(Create("tenant", "b").status(), text);
  ExpectRefused(Acquire("b", /*create=*/true).status(), text);
  ExpectRefused(manager_->Rewind(Key("a"), 1, std::nullopt).status(), text);
  EXPECT_EQ(Place("a"), SessionPlace::kResident);  // and stays so
  // What writes nothing is served.
  EXPECT_TRUE(manager_
                  ->Acquire(Key("a"), {.expected_revision = std::nullopt,
                                       .create = false,
                                       .commit = false})
                  .ok());
  EXPECT_TRUE(manager_->Suspend(Key("a")).ok());
  ExpectRefused(Acquire("a").status(), text);
  EXPECT_TRUE(
      manager_
          ->Acquire({"other", "a"}, {.expected_revision = 0, .create = true})
          .ok());
  ASSERT_TRUE(manager_->Delete(Key("a")).ok());
  EXPECT_TRUE(Create("tenant", "b").ok());
}

TEST_F(SessionQuotaTest, ARepeatedRequestIsStillAnswered) {
  options_.max_tenant_bytes = 1;
  Restart();
  const AcquireOptions ask = {.expected_revision = std::nullopt,
                              .create = true,
                              .commit = true,
                              .request = {"r", 1}};
  auto lease = manager_->Acquire(Key("s"), ask);
  ASSERT_TRUE(lease.ok()) << lease.status();
  RunTurn(*lease, 7);
  ASSERT_TRUE(manager_->Commit(*std::move(lease)).ok());
  EXPECT_EQ(Acquire("s").status().code(), kResourceExhausted);
  const auto again = manager_->Acquire(Key("s"), ask);
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_NE(again->repeated(), nullptr);
}

}  // namespace
}  // namespace reprise
