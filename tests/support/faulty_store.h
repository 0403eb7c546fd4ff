// A store in front of another one that fails when told to, and lets tests act
// in the middle of a call.
#ifndef TESTS_SUPPORT_FAULTY_STORE_H_
#define TESTS_SUPPORT_FAULTY_STORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "server/store/snapshot_store.h"
#include "tests/support/store_fault.h"

namespace reprise {

// Thread-safe. `store` must outlive it.
class FaultyStore : public SnapshotStore {
 public:
  explicit FaultyStore(SnapshotStore& store, uint32_t seed = 1)
      : store_(store), random_(seed) {}

  // The k-th call from now fails; 1 is the next.
  void FailCall(int64_t k, StoreFault fault) {
    MutexLock lock(mu_);
    countdown_ = k;
    fault_ = fault;
  }
  // Every call fails (kUnavailable) with this probability.
  void FailWithProbability(double probability) {
    MutexLock lock(mu_);
    probability_ = probability;
  }
  // Runs before every call, on the caller's thread, without a lock. A call
  // that has begun may still run the one from before.
  void SetHook(std::function<void(StoreCall)> hook) {
    MutexLock lock(mu_);
    hook_ = std::move(hook);
  }

  bool shared() const override { return shared_; }
  // As if other processes worked on it too.
  void SetShared(bool shared) { shared_ = shared; }

  absl::StatusOr<StoredSession> Put(const SessionKey& key,
                                    std::optional<uint64_t> expected_revision,
                                    const StoredSession& session,
                                    std::string_view snapshot,
                                    const PutOptions& options) override {
    return Run(StoreCall::kPut, [&] {
      return store_.Put(key, expected_revision, session, snapshot, options);
    });
  }
  absl::Status PutEntry(const SessionKey& key, uint64_t expected_revision,
                        const StoredSession& session) override {
    return Run(StoreCall::kPutEntry, [&] {
      return store_.PutEntry(key, expected_revision, session);
    });
  }
  absl::StatusOr<StoredSession> GetEntry(const SessionKey& key) override {
    return Run(StoreCall::kGetEntry, [&] { return store_.GetEntry(key); });
  }
  absl::Status Get(const SessionKey& key, StoredSession* session,
                   std::string* snapshot) override {
    return Run(StoreCall::kGet,
               [&] { return store_.Get(key, session, snapshot); });
  }
  absl::StatusOr<std::string> GetSnapshot(const SessionKey& key,
                                          uint64_t revision) override {
    return Run(StoreCall::kGetSnapshot,
               [&] { return store_.GetSnapshot(key, revision); });
  }
  absl::StatusOr<std::string> GetOutcome(const SessionKey& key,
                                         uint64_t revision) override {
    return Run(StoreCall::kGetOutcome,
               [&] { return store_.GetOutcome(key, revision); });
  }
  absl::Status Delete(const SessionKey& key) override {
    return Run(StoreCall::kDelete, [&] { return store_.Delete(key); });
  }
  absl::StatusOr<int64_t> DeleteExpired(std::span<const SessionKey> keys,
                                        int64_t unix_ms) override {
    return Run(StoreCall::kDelete,
               [&] { return store_.DeleteExpired(keys, unix_ms); });
  }
  absl::StatusOr<std::vector<StoredSession>> List(std::string_view tenant,
                                                  std::string_view after,
                                                  int64_t limit) override {
    return Run(StoreCall::kList,
               [&] { return store_.List(tenant, after, limit); });
  }
  absl::StatusOr<std::vector<SessionKey>> ListExpired(int64_t unix_ms,
                                                      int64_t limit) override {
    return Run(StoreCall::kListExpired,
               [&] { return store_.ListExpired(unix_ms, limit); });
  }
  absl::StatusOr<Usage> GetUsage() override {
    return Run(StoreCall::kGetUsage, [&] { return store_.GetUsage(); });
  }
  absl::StatusOr<Usage> GetTenantUsage(std::string_view tenant) override {
    return Run(StoreCall::kGetUsage,
               [&] { return store_.GetTenantUsage(tenant); });
  }

 private:
  // `run` returns a Status or a StatusOr.
  template <typename Call>
  auto Run(StoreCall call, const Call& run) -> decltype(run()) {
    if (const auto hook = CurrentHook()) hook(call);
    const std::optional<StoreFault> fault = NextFault();
    if (!fault.has_value()) return run();
    if (*fault == StoreFault::kNoSpace) return NoSpaceError("made up");
    if (*fault == StoreFault::kLostAnswer) static_cast<void>(run());
    return absl::UnavailableError("store: made up");
  }

  std::function<void(StoreCall)> CurrentHook() {
    MutexLock lock(mu_);
    return hook_;
  }

  std::optional<StoreFault> NextFault() {
    MutexLock lock(mu_);
    if (countdown_ > 0 && --countdown_ == 0) return fault_;
    if (probability_ > 0 &&
        std::uniform_real_distribution<double>(0, 1)(random_) < probability_) {
      return StoreFault::kUnavailable;
    }
    return std::nullopt;
  }

  SnapshotStore& store_;
  std::atomic<bool> shared_{false};
  Mutex mu_;
  std::function<void(StoreCall)> hook_ ABSL_GUARDED_BY(mu_);
  std::mt19937 random_ ABSL_GUARDED_BY(mu_);
  int64_t countdown_ ABSL_GUARDED_BY(mu_) = 0;  // 0 = off
  StoreFault fault_ ABSL_GUARDED_BY(mu_) = StoreFault::kUnavailable;
  double probability_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_FAULTY_STORE_H_
