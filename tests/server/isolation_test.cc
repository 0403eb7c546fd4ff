// No byte of one tenant reaches another: random tenants with names made to be
// mistaken for each other, random operations, every store. All that a tenant
// writes carries its number, and all that anybody reads is looked through.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "server/client_states.h"
#include "server/seal.h"
#include "server/session_manager.h"
#include "tests/server/store/store_fixture.h"
#include "tests/support/fake_clock.h"
#include "tests/support/scheduler_rig.h"

namespace reprise {
namespace {

// Prefixes of each other, separators and escapes of keys and globs, bytes that
// are no text. Names like "a/presets" are left out: no tenant can have them.
const std::vector<std::string> kTenants = {
    "a",
    "ab",
    "a:b",
    "",
    std::string("a\0b", 3),
    "a/b",
    "\xff",
    std::string("\0\0\0\1", 4),
    "a*",
    "{a}",
    std::string(128, 'a'),
};
const std::vector<std::string> kIds = {"a",
                                       "b",
                                       "ab",
                                       "b:s",
                                       "a\xff",
                                       std::string("\0", 1),
                                       "..",
                                       "a/b",
                                       "*",
                                       "}",
                                       std::string(128, 'b')};

constexpr int64_t kMaxContext = 2048;
constexpr int64_t kVocab = 100;

StateLayout LayoutOfAllKinds() {
  StateLayout layout(kMaxContext);
  layout.Add("0.kv", {4, 5});
  layout.Add("1.kv", {4});
  layout.AddWindow("2.window", 16, {3});
  layout.AddContext("3.rows", {4});
  return layout;
}

// What a session is, wherever it lies.
struct Content {
  uint64_t revision = 0;
  int64_t tokens = 0;
  float tag = 0;  // 0: nothing was written yet
};

struct Owned {
  Content now;
  std::map<uint64_t, Content> past;
  std::string answer;  // of the last request, if it had an id
};

// What a client holds.
struct Sealed {
  std::string tenant;
  Content content;
  std::string bytes;
};

class IsolationTest : public StoreConformance {
 protected:
  void SetUp() override {
    StoreConformance::SetUp();
    fingerprints_ = {1, layout_.fingerprint(), 3};
    auto keys = SealKeys::Ephemeral();
    ASSERT_TRUE(keys.ok()) << keys.status();
    keys_ = *std::move(keys);
    Start();
  }

  // As when the server begins anew: only the store remains.
  void Start() {
    manager_.reset();
    SessionManagerOptions options;
    options.num_slots = 3;
    options.memory_tier_bytes = 40'000;  // a few snapshots
    options.seal_keys = keys_;
    auto manager = SessionManager::Create(fingerprints_, layout_, kVocab,
                                          *store_, metrics_, clock_, options);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }

  size_t Below(size_t n) { return random_() % n; }
  SessionKey AnyKey() {
    return {kTenants[Below(kTenants.size())], kIds[Below(kIds.size())]};
  }
  float NewTag(const std::string& tenant) {
    const auto owner = std::ranges::find(kTenants, tenant) - kTenants.begin();
    return static_cast<float>((owner + 1) * 4096 + 1 +
                              static_cast<int64_t>(Below(4000)));
  }

  // All of the slot, gaps and rows beyond the position too.
  std::set<float> ValuesIn(const SessionLease& lease) const {
    std::vector<float> values(static_cast<size_t>(layout_.slot_bytes()) /
                              sizeof(float));
    std::memcpy(values.data(), lease.slot(), values.size() * sizeof(float));
    return {values.begin(), values.end()};
  }
  void ExpectContent(const SessionLease& lease, const Content& content) const {
    std::set<float> values = ValuesIn(lease);
    values.erase(0);
    if (content.tag == 0) {
      EXPECT_TRUE(values.empty()) << *values.begin();
    } else {
      EXPECT_EQ(values, std::set<float>{content.tag});
    }
    EXPECT_EQ(lease.record().position,
              std::max<int64_t>(0, content.tokens - 1));
  }
  // What a turn does that computes as much as it can: every byte of the fields
  // is its own, and the gaps are too.
  void Write(SessionLease& lease, float tag) const {
    lease.MarkChanged();
    std::vector<float> values(
        static_cast<size_t>(layout_.slot_bytes()) / sizeof(float), tag);
    std::memcpy(lease.slot(), values.data(), values.size() * sizeof(float));
    SessionRecord& record = lease.record();
    if (record.pending_token.has_value()) ++record.position;
    record.pending_token = 7;
  }

  void Turn(const SessionKey& key);
  void Stateless();
  void Preset(const std::string& tenant);
  void Fork(const SessionKey& from, const SessionKey& to);
  void Rewind(const SessionKey& key);
  void Delete(const SessionKey& key);
  void Get(const SessionKey& key);
  void List(const std::string& tenant);
  void Usage(const std::string& tenant);
  void Export(const SessionKey& key);
  void Import(const SessionKey& to);
  void GoOn(const std::string& tenant);
  void Hold(const SessionKey& key, const Content& content,
            const absl::StatusOr<SealedState>& sealed);

  const StateLayout layout_ = LayoutOfAllKinds();
  ModelFingerprints fingerprints_;
  Metrics metrics_{"test"};
  FakeClock clock_;
  std::unique_ptr<SessionManager> manager_;
  std::mt19937_64 random_{20};
  std::map<SessionKey, Owned> owned_;
  std::shared_ptr<const SealKeys> keys_;  // shared: with every manager
  std::vector<Sealed> sealed_;
  int64_t requests_ = 0;
};

void IsolationTest::Turn(const SessionKey& key) {
  const auto before = owned_.find(key);
  AcquireOptions options{.expected_revision = std::nullopt, .create = true};
  const bool repeat =
      Below(4) == 0 && before != owned_.end() && !before->second.answer.empty();
  const std::string id =
      repeat ? before->second.answer : "request " + std::to_string(requests_++);
  options.request = {.id = id, .fingerprint = 5};
  auto lease = manager_->Acquire(key, options);
  ASSERT_TRUE(lease.ok()) << lease.status();
  if (repeat) {
    ASSERT_NE(lease->repeated(), nullptr);
    EXPECT_EQ(lease->repeated()->text, key.tenant + " was told " + id);
    return;
  }
  const Content was = before == owned_.end() ? Content() : before->second.now;
  ExpectContent(*lease, was);
  const float tag = NewTag(key.tenant);
  Write(*lease, tag);
  if (Below(3) == 0) return;  // it failed
  TurnOutcome outcome;
  outcome.text = key.tenant + " was told " + id;
  const auto revision = manager_->Commit(*std::move(lease), outcome);
  ASSERT_TRUE(revision.ok()) << revision.status();
  Owned& owned = owned_[key];
  if (before != owned_.end()) owned.past[was.revision] = was;
  owned.now = {*revision, was.tokens + 1, tag};
  owned.answer = id;
}

void IsolationTest::Stateless() {
  auto lease = manager_->AcquireStateless();
  ASSERT_TRUE(lease.ok()) << lease.status();
  EXPECT_EQ(ValuesIn(*lease), std::set<float>{0});
  Write(*lease, NewTag(kTenants[Below(kTenants.size())]));
}

void IsolationTest::Preset(const std::string& tenant) {
  const SessionKey key = PresetKey(tenant, kIds[Below(kIds.size())]);
  const auto lease = manager_->AcquirePreset(key);
  const auto owned = owned_.find(key);
  ASSERT_EQ(lease.ok(), owned != owned_.end()) << lease.status();
  if (lease.ok()) ExpectContent(*lease, owned->second.now);
}

void IsolationTest::Fork(const SessionKey& from, const SessionKey& to) {
  const auto info = manager_->Fork(from, to, std::nullopt);
  const auto source = owned_.find(from);
  ASSERT_EQ(info.ok(), source != owned_.end() && !owned_.contains(to))
      << info.status();
  if (info.ok()) owned_[to] = {source->second.now, {}, ""};
}

void IsolationTest::Rewind(const SessionKey& key) {
  const auto owned = owned_.find(key);
  const uint64_t revision = Below(4);
  const auto info = manager_->Rewind(key, revision, std::nullopt);
  if (owned == owned_.end()) {
    EXPECT_TRUE(absl::IsNotFound(info.status()));
    return;
  }
  Owned& session = owned->second;
  Content target;
  if (revision == session.now.revision) {
    target = session.now;
  } else if (session.past.contains(revision)) {
    target = session.past[revision];
  } else if (revision != 0) {
    EXPECT_TRUE(absl::IsOutOfRange(info.status())) << info.status();
    return;
  }
  ASSERT_TRUE(info.ok()) << info.status();
  session.past[session.now.revision] = session.now;
  target.revision = info->stored.revision;
  session.now = target;
  session.answer.clear();
}

void IsolationTest::Delete(const SessionKey& key) {
  EXPECT_EQ(manager_->Delete(key).ok(), owned_.erase(key) == 1);
}

void IsolationTest::Get(const SessionKey& key) {
  const auto info = manager_->Get(key);
  const auto owned = owned_.find(key);
  ASSERT_EQ(info.ok(), owned != owned_.end()) << info.status();
  if (!info.ok()) return;
  EXPECT_EQ(info->stored.id, key.id);
  EXPECT_EQ(info->stored.revision, owned->second.now.revision);
}

void IsolationTest::List(const std::string& tenant) {
  const std::string after = Below(2) == 0 ? "" : kIds[Below(kIds.size())];
  std::vector<std::string> expected;
  for (const auto& [key, owned] : owned_) {
    if (key.tenant == tenant && key.id > after) expected.push_back(key.id);
  }
  const size_t limit = 1 + Below(6);
  if (expected.size() > limit) expected.resize(limit);
  const auto page = manager_->List(tenant, after, static_cast<int64_t>(limit));
  ASSERT_TRUE(page.ok()) << page.status();
  std::vector<std::string> ids;
  for (const SessionInfo& info : *page) ids.push_back(info.stored.id);
  EXPECT_EQ(ids, expected);
}

void IsolationTest::Usage(const std::string& tenant) {
  const auto usage = store_->GetTenantUsage(tenant);
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(static_cast<int64_t>(usage->sessions),
            std::ranges::count_if(owned_, [&](const auto& session) {
              return session.first.tenant == tenant;
            }));
}

// Every bit: what is rounded is not the owner's any more.
SealOptions Exact(bool zstd) {
  SealOptions options;
  options.encoding.zstd = zstd;
  return options;
}

void IsolationTest::Hold(const SessionKey& key, const Content& content,
                         const absl::StatusOr<SealedState>& sealed) {
  ASSERT_TRUE(sealed.ok()) << sealed.status();
  EXPECT_EQ(sealed->label.tenant, key.tenant);
  EXPECT_EQ(sealed->label.session, key.id);
  EXPECT_EQ(sealed->label.revision, content.revision);
  EXPECT_EQ(static_cast<int64_t>(sealed->tokens), content.tokens);
  if (sealed_.size() > 40) sealed_.erase(sealed_.begin());
  sealed_.push_back({key.tenant, content, sealed->bytes});
}

void IsolationTest::Export(const SessionKey& key) {
  const auto sealed =
      manager_->client_states().Export(key, Exact(Below(2) == 0), std::nullopt);
  const auto owned = owned_.find(key);
  if (owned == owned_.end()) {
    EXPECT_TRUE(absl::IsNotFound(sealed.status())) << sealed.status();
    return;
  }
  Hold(key, owned->second.now, sealed);
}

void IsolationTest::Import(const SessionKey& to) {
  if (sealed_.empty()) return;
  const Sealed& sealed = sealed_[Below(sealed_.size())];
  const auto info = manager_->client_states().Import(
      {.tenant = to.tenant, .id = to.id}, sealed.bytes);
  if (sealed.tenant != to.tenant) {
    EXPECT_TRUE(absl::IsPermissionDenied(info.status())) << info.status();
  } else if (!ValidateSessionId(to.id, "id").ok()) {
    EXPECT_TRUE(absl::IsInvalidArgument(info.status())) << info.status();
  } else if (owned_.contains(to)) {
    EXPECT_TRUE(absl::IsAlreadyExists(info.status())) << info.status();
  } else {
    ASSERT_TRUE(info.ok()) << info.status();
    owned_[to] = {sealed.content, {}, ""};
  }
}

// A turn of a client that holds its state.
void IsolationTest::GoOn(const std::string& tenant) {
  if (sealed_.empty()) return;
  const Sealed sealed = sealed_[Below(sealed_.size())];
  ClientStates& states = manager_->client_states();
  const auto opened = states.Open(tenant, sealed.bytes);
  if (sealed.tenant != tenant) {
    EXPECT_TRUE(absl::IsPermissionDenied(opened.status())) << opened.status();
    return;
  }
  ASSERT_TRUE(opened.ok()) << opened.status();
  auto lease = states.Acquire(*opened);
  ASSERT_TRUE(lease.ok()) << lease.status();
  ExpectContent(*lease, sealed.content);
  const float tag = NewTag(tenant);
  Write(*lease, tag);
  const SessionKey from{tenant, opened->label.session};
  Hold(from, {sealed.content.revision + 1, sealed.content.tokens + 1, tag},
       states.Seal(from, *lease, Exact(Below(2) == 0)));
}

TEST_P(IsolationTest, NoByteOfATenantReachesAnother) {
  for (int i = 0; i < 3000 && !HasFailure(); ++i) {
    SCOPED_TRACE("operation " + std::to_string(i));
    const SessionKey key = AnyKey();
    const std::string other_id = kIds[Below(kIds.size())];
    switch (Below(20)) {
      case 0:
        Stateless();
        break;
      case 1:
        Preset(key.tenant);
        break;
      case 2:
        Fork(key, {key.tenant, other_id});
        break;
      case 3:
        Fork(key, PresetKey(key.tenant, other_id));
        break;
      case 4:
        Rewind(key);
        break;
      case 5:
        Delete(Below(4) == 0 ? PresetKey(key.tenant, other_id) : key);
        break;
      case 6:
        Get(key);
        break;
      case 7:
        List(Below(4) == 0 ? PresetKey(key.tenant, "").tenant : key.tenant);
        break;
      case 8:
        Usage(key.tenant);
        break;
      case 9:
        manager_->Suspend(key).IgnoreError();
        break;
      case 10:
        if (Below(20) == 0) Start();
        break;
      case 11:
        Export(key);
        break;
      case 12:
        Import(key);
        break;
      case 13:
        GoOn(key.tenant);
        break;
      default:
        Turn(key);
    }
  }
  EXPECT_GT(std::ssize(owned_), 30);
}

INSTANTIATE_TEST_SUITE_P(All, IsolationTest, AllStores(), StoreKindName);

// ---- The prefix cache -------------------------------------------------------

// Equal prompts of different tenants, with names that run into each other and
// into the tokens: each tenant finds only what it put there itself.
TEST(PrefixIsolationTest, ATenantFindsItsOwnBeginningsOnly) {
  SchedulerRig::Options options;
  options.scheduler.prefix_cache_bytes = 1 << 20;
  SchedulerRig rig(std::move(options));
  std::mt19937 random(3);
  std::set<std::pair<std::string, int>> put;
  for (int i = 0; i < 300; ++i) {
    const int prompt = static_cast<int>(random() % 4);
    TurnRequest request = MakeTurn("", std::vector<int32_t>(130, prompt), 2);
    request.tenant = kTenants[random() % kTenants.size()];
    const Answer answer = rig.Run(request);
    ASSERT_EQ(answer.status, absl::OkStatus());
    const bool hit = !put.insert({request.tenant, prompt}).second;
    EXPECT_EQ(answer.started->resumed_from,
              hit ? ResumeSource::kPrefix : ResumeSource::kNone);
    EXPECT_EQ(answer.started->cached_tokens, hit ? 128 : 0);
  }
}

// ---- Seals ------------------------------------------------------------------

TEST(SealIsolationTest, ASnapshotOfOneTenantIsRefusedForEveryOther) {
  const TempDir dir;
  for (const char* algorithm : {"aes-256-gcm", "hmac-sha-256"}) {
    const std::string path = dir.Write(
        "keys", "k " + std::string(algorithm) + " " + std::string(64, 'c'));
    chmod(path.c_str(), 0600);
    const auto keys = SealKeys::Load(path);
    ASSERT_TRUE(keys.ok()) << keys.status();
    for (const std::string& owner : kTenants) {
      // What is the end of one name may be the beginning of the next field.
      const auto sealed = SealSnapshot(
          **keys, {.tenant = owner, .session = "bs", .model = 9}, "state");
      ASSERT_TRUE(sealed.ok()) << sealed.status();
      for (const std::string& reader : kTenants) {
        const auto opened =
            OpenSnapshot(**keys, *sealed, {.tenant = reader, .model = 9});
        if (reader == owner) {
          ASSERT_TRUE(opened.ok()) << opened.status();
          EXPECT_EQ(opened->snapshot, "state");
        } else {
          EXPECT_TRUE(absl::IsPermissionDenied(opened.status()));
        }
      }
      EXPECT_TRUE(absl::IsFailedPrecondition(
          OpenSnapshot(**keys, *sealed, {.tenant = owner, .model = 8})
              .status()));
    }
  }
}

}  // namespace
}  // namespace reprise
