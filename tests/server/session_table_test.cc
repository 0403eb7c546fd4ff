#include "server/session_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace reprise {
namespace {

class SessionTableTest : public ::testing::Test {
 protected:
  SessionTableTest() {
    layout_.Add("0.kv", {4});
    auto pool = StatePool::Create(layout_, /*num_slots=*/2);
    EXPECT_TRUE(pool.ok()) << pool.status();
    pool_ = *std::move(pool);
  }

  SessionClaim Claim(const SessionKey& key, ClaimFor purpose) {
    auto claim = table_->Claim(key, purpose);
    EXPECT_TRUE(claim.ok()) << claim.status();
    return *std::move(claim);
  }
  SessionClaim ClaimWithSlot(const SessionKey& key) {
    SessionClaim claim = Claim(key, ClaimFor::kTurn);
    claim.slot = *pool_->Acquire();
    claim.stored = StoredSession();
    return claim;
  }
  void ExpectCounts(int64_t active, int64_t resident) {
    EXPECT_EQ(table_->counts().active, active);
    EXPECT_EQ(table_->counts().resident, resident);
  }

  const SessionKey a_{"tenant", "a"};
  const SessionKey b_{"tenant", "b"};
  StateLayout layout_;
  std::unique_ptr<StatePool> pool_;  // outlives the table's slots
  std::unique_ptr<SessionTable> table_ = std::make_unique<SessionTable>();
};

TEST_F(SessionTableTest, CountsFollowEveryChange) {
  ExpectCounts(0, 0);
  {
    SessionClaim claim = ClaimWithSlot(a_);
    ExpectCounts(1, 0);
    table_->MakeResident(std::move(claim));
    ExpectCounts(0, 1);
  }
  table_->MakeResident(ClaimWithSlot(b_));
  ExpectCounts(0, 2);
  {
    SessionClaim claim = Claim(a_, ClaimFor::kTurn);
    ExpectCounts(1, 1);
    claim.slot = StateSlot();  // as if moved to a lease
    table_->MakeLeased(std::move(claim));
    ExpectCounts(1, 1);
    const SessionClaim dropped = table_->ClaimLeased(a_);
    ExpectCounts(1, 1);
  }
  ExpectCounts(0, 1);
  {
    const SessionClaim upkeep = Claim(b_, ClaimFor::kUpkeep);
    ExpectCounts(0, 0);
  }
  ExpectCounts(0, 0);
}

}  // namespace
}  // namespace reprise
