// A session manager on a memory store, with two slots, a clock that stands
// still and turns whose results can be told by session and revision.
#ifndef TESTS_SERVER_SESSION_FIXTURE_H_
#define TESTS_SERVER_SESSION_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "server/session_manager.h"
#include "tests/support/fake_clock.h"
#include "tests/support/faulty_store.h"

namespace reprise {

inline constexpr int64_t kStateElements = 24;
inline constexpr int64_t kSessionVocab = 100;

inline StateLayout SessionLayout() {
  StateLayout layout;
  layout.Add("0.kv", {4, 5});
  layout.Add("1.kv", {4});
  return layout;
}

// What a turn leaves in the state: told by `origin` and the revision.
inline std::vector<float> StateOf(uint64_t origin, uint64_t revision) {
  std::vector<float> state(kStateElements, 0.0f);
  if (revision == 0) return state;  // a new session's is zero
  for (int64_t i = 0; i < kStateElements; ++i) {
    state[i] = static_cast<float>(origin * 1000 + revision) +
               static_cast<float>(i) / 64;
  }
  return state;
}

inline std::vector<float> ReadState(const SessionLease& lease) {
  static const StateLayout layout = SessionLayout();
  std::vector<float> state;
  for (const StateField& field : layout.fields()) {
    std::vector<float> values(field.elements);
    std::memcpy(values.data(), lease.slot() + field.offset,
                values.size() * sizeof(float));
    state.insert(state.end(), values.begin(), values.end());
  }
  return state;
}

// Does what a turn does: one more token, and the state of the next revision.
inline void RunTurn(SessionLease& lease, uint64_t origin) {
  static const StateLayout layout = SessionLayout();
  lease.MarkChanged();
  SessionRecord& record = lease.record();
  if (record.pending_token.has_value()) ++record.position;
  record.pending_token = static_cast<int32_t>(record.position % kSessionVocab);
  record.sampler.draws = origin;
  const std::vector<float> state = StateOf(origin, record.revision + 1);
  const float* from = state.data();
  for (const StateField& field : layout.fields()) {
    std::memcpy(lease.slot() + field.offset, from,
                field.elements * sizeof(float));
    from += field.elements;
  }
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    fingerprints_ = {1, layout_.fingerprint(), 3};
    options_.num_slots = 2;
    options_.idle_timeout_ms = 600'000;
    Restart();
  }

  // As after a restart of the server: only the store remains.
  void Restart() {
    manager_.reset();
    auto manager = SessionManager::Create(fingerprints_, layout_, kSessionVocab,
                                          store_, metrics_, clock_, options_);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }

  static SessionKey Key(const std::string& id) { return {"tenant", id}; }

  absl::StatusOr<SessionLease> Acquire(const std::string& id,
                                       bool create = false) {
    return manager_->Acquire(
        Key(id), {.expected_revision = std::nullopt, .create = create});
  }

  // Runs turns up to and including `revision`, making the session if need be.
  void CommitTo(const std::string& id, uint64_t revision, uint64_t origin = 7) {
    uint64_t committed = 0;
    while (committed < revision) {
      auto lease = Acquire(id, /*create=*/true);
      ASSERT_TRUE(lease.ok()) << lease.status();
      RunTurn(*lease, origin);
      const auto result = manager_->Commit(*std::move(lease));
      ASSERT_TRUE(result.ok()) << result.status();
      committed = *result;
    }
  }

  // Expects that the session resumes like this, with its state intact, and
  // stays where it is then.
  void ExpectResumes(const std::string& id, uint64_t revision,
                     ResumeSource source, const std::string& reason,
                     uint64_t origin = 7) {
    auto lease = Acquire(id);
    ASSERT_TRUE(lease.ok()) << lease.status();
    EXPECT_EQ(lease->record().revision, revision);
    EXPECT_EQ(lease->source(), source);
    EXPECT_EQ(lease->resume_reason(), reason);
    EXPECT_EQ(ReadState(*lease), StateOf(origin, revision));
  }

  SessionPlace Place(const std::string& id) {
    const auto info = manager_->Get(Key(id));
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->place : SessionPlace::kSuspended;
  }

  // The value of the line of a scrape that begins with `name_and_labels`.
  double Metric(const std::string& name_and_labels) {
    const std::string text = "\n" + metrics_.Scrape();
    const size_t at = text.find("\n" + name_and_labels + " ");
    EXPECT_NE(at, std::string::npos) << name_and_labels;
    if (at == std::string::npos) return -1;
    return std::stod(text.substr(at + name_and_labels.size() + 2));
  }

  const StateLayout layout_ = SessionLayout();
  ModelFingerprints fingerprints_;
  std::unique_ptr<SnapshotStore> memory_store_ = NewMemoryStore();
  FaultyStore store_{*memory_store_};
  Metrics metrics_{"test"};
  FakeClock clock_;
  SessionManagerOptions options_;
  std::unique_ptr<SessionManager> manager_;
};

}  // namespace reprise

#endif  // TESTS_SERVER_SESSION_FIXTURE_H_
