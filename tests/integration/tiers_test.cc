// Many suspended sessions of the embedded model in one RocksDB store. What is
// asserted does not depend on how fast the machine is; what it took is printed.
//
//   REPRISE_TIERS_SESSIONS=100000 TEST_TMPDIR=/a/disk
//       processes_test --gtest_filter='TiersTest*'
//
// The table of docs/sessions.md comes from this. 100,000 take 16 GB.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "server/session_manager.h"
#include "tests/support/environment.h"
#include "tests/support/fake_clock.h"
#include "tests/support/resident_bytes.h"
#include "tests/support/server_process.h"
#include "tests/support/temp_dir.h"

namespace reprise {
namespace {

constexpr int64_t kMib = 1 << 20;
constexpr int64_t kTierSlots = 64;
constexpr int64_t kMemoryTier = 64 * kMib;
constexpr int64_t kPage = 100;
constexpr int64_t kTtlMs = 3'600'000;
// What RocksDB may take beside them (rocksdb_database.cc), and the allocator.
constexpr int64_t kOtherMemory = 96 * kMib;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // keeps memory of its own
#else
constexpr bool kSanitized = false;
#endif

int64_t BytesIn(const std::string& dir) {
  int64_t bytes = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir)) {
    std::error_code gone;  // by a compaction, meanwhile
    const auto size = file.is_regular_file() ? file.file_size(gone) : 0;
    if (!gone) bytes += static_cast<int64_t>(size);
  }
  return bytes;
}

double Milliseconds(const std::function<void()>& work) {
  const int64_t start_ns = Clock::Real().MonotonicNs();
  work();
  return static_cast<double>(Clock::Real().MonotonicNs() - start_ns) / 1e6;
}

std::string Percentiles(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  char text[100];
  std::snprintf(text, sizeof(text), "p50 %.2f ms, p99 %.2f ms, most %.2f ms",
                ms[ms.size() / 2], ms[ms.size() * 99 / 100], ms.back());
  return text;
}

double Median(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

void Row(const std::string& what, const std::string& value) {
  std::printf("| %-44s | %s |\n", what.c_str(), value.c_str());
  std::fflush(stdout);
}
void Row(const std::string& what, double value, const char* unit) {
  char text[60];
  std::snprintf(text, sizeof(text), "%.2f %s", value, unit);
  Row(what, text);
}

SessionKey Key(int64_t number) {
  char id[32];
  std::snprintf(id, sizeof(id), "session-%09lld",
                static_cast<long long>(number));
  return {"default", id};
}

class TiersTest : public ::testing::Test {
 protected:
  TiersTest()
      : engine_(*LoadEngine({.model_dir = REPRISE_SOURCE_DIR "/models/embedded",
                             .weights = WeightType::kF32})) {}

  void Open() {
    auto store = OpenStore("rocksdb:" + dir_.Path("db"));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
    SessionManagerOptions options;
    options.num_slots = kTierSlots;
    options.memory_tier_bytes = kMemoryTier;
    options.max_sessions = 10'000'000;
    auto manager = SessionManager::Create(
        engine_->info().fingerprints, engine_->layout(),
        engine_->info().vocab_size, *store_, metrics_, clock_, options);
    ASSERT_TRUE(manager.ok()) << manager.status();
    manager_ = *std::move(manager);
  }
  void Close() {
    manager_.reset();
    store_.reset();
  }

  // A conversation of 40 tokens, computed by the model.
  void MakeFirst() {
    auto lease = manager_->Acquire(
        Key(0), {.expected_revision = std::nullopt, .create = true});
    ASSERT_TRUE(lease.ok()) << lease.status();
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < 40; ++i) tokens.push_back(100 + i * 17);
    const StepSegment segment{.tokens = tokens, .slot = lease->slot()};
    engine_->Step({&segment, 1});
    lease->MarkChanged();
    lease->record().position = std::ssize(tokens);
    lease->record().pending_token = 5;
    state_.assign(lease->slot(),
                  lease->slot() + engine_->layout().slot_bytes());
    ASSERT_TRUE(manager_->Commit(*std::move(lease)).ok());
  }

  // Forks of the first, by a few threads as a server has them.
  void MakeOthers() {
    std::atomic<int64_t> next{1};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int64_t n = next++; n < sessions_; n = next++) {
          const auto made = manager_->Fork(Key(0), Key(n), std::nullopt,
                                           n % 2 == 0 ? 0 : kTtlMs);
          if (!made.ok()) ADD_FAILURE() << made.status();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  void Resume(const SessionKey& key, ResumeSource source,
              std::vector<double>& ms) {
    ms.push_back(Milliseconds([&] {
      auto lease = manager_->Acquire(key, {});
      ASSERT_TRUE(lease.ok()) << lease.status();
      EXPECT_EQ(lease->source(), source) << key.id;
      EXPECT_EQ(std::memcmp(lease->slot(), state_.data(), state_.size()), 0);
    }));
    clock_.AdvanceMs(1);  // who was used last goes down last
  }

  void Pages();
  void Resumes();
  void Expire();

  const int64_t sessions_ =
      static_cast<int64_t>(FromEnvironment("REPRISE_TIERS_SESSIONS", 2000));
  TempDir dir_;
  FakeClock clock_;
  Metrics metrics_{"embedded"};
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<SnapshotStore> store_;
  std::unique_ptr<SessionManager> manager_;
  std::vector<std::byte> state_;  // of all sessions
};

// Wherever a page begins, it has the sessions that follow and takes as long.
void TiersTest::Pages() {
  const int64_t begins[] = {-1, sessions_ / 2, sessions_ - 101};
  std::vector<double> ms[std::size(begins)];
  // In turn, so that what else the machine does falls on all of them.
  for (int i = 0; i < 50; ++i) {
    for (size_t b = 0; b < std::size(begins); ++b) {
      const int64_t begin = begins[b];
      const std::string after = begin < 0 ? "" : Key(begin).id;
      ms[b].push_back(Milliseconds([&] {
        const auto page = manager_->List("default", after, kPage);
        ASSERT_TRUE(page.ok()) << page.status();
        ASSERT_EQ(std::ssize(*page), kPage);
        EXPECT_EQ(page->front().stored.id, Key(begin + 1).id);
        EXPECT_EQ(page->back().stored.id, Key(begin + kPage).id);
      }));
    }
  }
  for (size_t b = 0; b < std::size(begins); ++b) {
    Row("page of 100 after number " + std::to_string(begins[b]),
        Percentiles(ms[b]));
  }
  // Reading over what comes before would take ten times as long behind 900
  // sessions, the fewest there are here, and more behind more. What differs
  // otherwise is which blocks are cached.
  constexpr double kMostTimes = 4;
  EXPECT_LE(Median(ms[1]), kMostTimes * Median(ms[0]));
  EXPECT_LE(Median(ms[2]), kMostTimes * Median(ms[0]));
  int64_t next = 0;
  std::string after;
  for (int64_t size = kPage; size == kPage;) {
    const auto page = manager_->List("default", after, kPage);
    ASSERT_TRUE(page.ok()) << page.status();
    size = std::ssize(*page);
    for (const SessionInfo& info : *page) {
      ASSERT_EQ(info.stored.id, Key(next++).id);
    }
    if (size > 0) after = page->back().stored.id;
  }
  EXPECT_EQ(next, sessions_) << "all pages together";
}

void TiersTest::Resumes() {
  std::vector<int64_t> numbers(static_cast<size_t>(sessions_));
  for (int64_t i = 0; i < sessions_; ++i) numbers[static_cast<size_t>(i)] = i;
  std::shuffle(numbers.begin(), numbers.end(), std::mt19937(1));
  numbers.resize(std::min<size_t>(numbers.size(), 5000));
  std::vector<double> store_ms;
  for (const int64_t number : numbers) {
    Resume(Key(number), ResumeSource::kStore, store_ms);
  }
  Row("resume from the store", Percentiles(store_ms));
  // The last of them are in slots, those before in memory.
  std::vector<double> memory_ms;
  for (size_t i = numbers.size() - 300; i < numbers.size() - kTierSlots; ++i) {
    Resume(Key(numbers[i]), ResumeSource::kMemory, memory_ms);
  }
  Row("resume from memory", Percentiles(memory_ms));
  EXPECT_EQ(manager_->num_free_slots(), 0);
}

// Half of the sessions come to their end together.
void TiersTest::Expire() {
  std::vector<double> ms;
  for (int i = 0; i < 20; ++i) {
    ms.push_back(Milliseconds([&] { manager_->Sweep(); }));
  }
  Row("sweep with nothing to do", Percentiles(ms));
  clock_.AdvanceMs(kTtlMs + 1);
  const int64_t expired = sessions_ / 2;
  const double all_ms = Milliseconds([&] { manager_->Sweep(); });
  Row("deleting " + std::to_string(expired) + " that expired", all_ms / 1000,
      "s");
  const auto usage = store_->GetUsage();
  ASSERT_TRUE(usage.ok()) << usage.status();
  EXPECT_EQ(static_cast<int64_t>(usage->sessions), sessions_ - expired);
  const auto page = manager_->List("default", "", kPage);
  ASSERT_TRUE(page.ok()) << page.status();
  ASSERT_EQ(std::ssize(*page), kPage);
  EXPECT_EQ(page->back().stored.id, Key(2 * kPage - 2).id);
  Row("page of 100 after that", Milliseconds([&] {
        EXPECT_TRUE(manager_->List("default", "", kPage).ok());
      }),
      "ms");
}

TEST_F(TiersTest, ManySessionsCostDiskOnly) {
  ASSERT_GE(sessions_, 1000);
  Open();
  MakeFirst();
  Close();
  Open();
  const int64_t before = ResidentBytes();
  const double make_ms = Milliseconds([&] { MakeOthers(); });
  std::printf("\n%lld sessions\n\n", static_cast<long long>(sessions_));
  Row("making one", make_ms / static_cast<double>(sessions_), "ms");
  Close();
  const int64_t disk = BytesIn(dir_.path());
  const auto snapshot =
      static_cast<double>(disk) / static_cast<double>(sessions_);
  Row("disk of one", snapshot / 1024, "KiB");
  Row("opening the store and the manager", Milliseconds([&] { Open(); }), "ms");
  Pages();
  Resumes();
  const int64_t grown = ResidentBytes() - before;
  const int64_t slots = kTierSlots * engine_->layout().slot_bytes();
  Row("memory grown by", static_cast<double>(grown) / kMib, "MiB");
  Row("budgets: slots, memory, store's and others'",
      static_cast<double>(slots + kMemoryTier + kOtherMemory) / kMib, "MiB");
  if (!kSanitized) {
    EXPECT_LE(grown, slots + kMemoryTier + kOtherMemory);
  }
  Expire();
  Row("disk after that", static_cast<double>(BytesIn(dir_.path())) / kMib,
      "MiB");
  // What is left is what it was.
  Close();
  Open();
  std::vector<double> ms;
  Resume(Key(sessions_ / 4 * 2), ResumeSource::kStore, ms);
  Close();
  const double start_ms = Milliseconds([&] {
    ServerProcess server({"--store=rocksdb:" + dir_.Path("db")});
    EXPECT_TRUE(server.AwaitReady());
  });
  Row("start of reprise-server on it", start_ms, "ms");
}

}  // namespace
}  // namespace reprise
