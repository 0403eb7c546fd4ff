// The store of a simulation: it fails when told to, lets others act in the
// middle of a call, and knows the true history of what was written, whatever
// the callers were told of it.
#ifndef TESTS_SERVER_SIMULATED_STORE_H_
#define TESTS_SERVER_SIMULATED_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/clock.h"
#include "engine/state/snapshot.h"
#include "server/store/snapshot_store.h"
#include "tests/support/fake_engine.h"
#include "tests/support/fake_state.h"
#include "tests/support/store_fault.h"

namespace reprise {

enum class MadeBy { kCreate, kFork, kRewind, kTurn };

// A revision as it was written. Others are named by their place in the history,
// -1 for none.
struct MadeRevision {
  SessionKey key;
  uint64_t revision = 0;
  int64_t before = -1;  // what the session was; none: this made it
  MadeBy by = MadeBy::kTurn;
  int64_t from = -1;    // kFork, kRewind: whose state it has; none: empty
  int64_t client = -1;  // kTurn: whose
  std::string request_id;
  int64_t expires_unix_ms = 0;
  SessionRecord record;
  FakeState state;
};

// Used by one thread. Checks, with EXPECT, that every write follows from the
// history: the rules are written down here once more.
class SimulatedStore : public SnapshotStore {
 public:
  SimulatedStore(const FakeEngine& engine, const Clock& clock, uint64_t seed)
      : engine_(engine), clock_(clock), random_(seed) {}

  // What is written from now on is written for.
  struct Purpose {
    MadeBy by = MadeBy::kTurn;
    int64_t from = -1;
  };
  Purpose purpose;

  // The turn that may write to a session: the client, and the revision that it
  // began with. It may once.
  struct Writer {
    int64_t client = -1;
    int64_t base = -1;
  };
  std::map<SessionKey, Writer> writers;

  // Called before every call.
  std::function<void()> in_call;

  void FailWithProbability(double probability) { probability_ = probability; }
  int64_t faults() const { return faults_; }
  int64_t lost_answers() const { return lost_answers_; }

  const std::vector<MadeRevision>& history() const { return history_; }
  // The revision that a session is at; -1 if there is no such session.
  int64_t Current(const SessionKey& key) const;
  // By key, with those that have expired.
  const std::map<SessionKey, int64_t>& sessions() const { return current_; }
  // The entry as it is, and no fault.
  StoredSession Entry(const SessionKey& key);

  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const PutOptions& options) override;
  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session) override;
  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) override;
  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot) override;
  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision) override;
  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision) override;
  absl::Status Delete(const SessionKey& key) override;
  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys,
                                        int64_t unix_ms) override;
  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit) override;
  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit) override;
  absl::StatusOr<Usage> GetUsage() override;
  absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) override;

 private:
  // `run` returns a Status or a StatusOr.
  template <typename Call>
  auto Run(const Call& run) -> decltype(run());
  std::optional<StoreFault> NextFault();
  // A write that was made; one that was refused.
  void Made(const SessionKey& key, std::optional<uint64_t> expected_revision,
            const StoredSession& session, std::string_view snapshot,
            const Writer* writer);
  void CheckTurn(const MadeRevision& made, const Writer* writer) const;
  void CheckExpiry(const StoredSession& session) const;
  void CheckRefused(const SessionKey& key,
                    std::optional<uint64_t> expected_revision,
                    const absl::Status& status) const;
  void Ended(const SessionKey& key);

  const FakeEngine& engine_;
  const Clock& clock_;
  const std::unique_ptr<SnapshotStore> store_ = NewMemoryStore();
  std::mt19937_64 random_;
  double probability_ = 0;
  int64_t faults_ = 0;
  int64_t lost_answers_ = 0;
  std::vector<MadeRevision> history_;
  std::map<SessionKey, int64_t> current_;
};

}  // namespace reprise

#endif  // TESTS_SERVER_SIMULATED_STORE_H_
