// Commits of sessions at the same time, as turns make them: how many a second,
// and how long each takes. Prints a table.
//
//   store_bench [--seconds=N] [--bytes=N] [--folder=PATH]
//
// on the disk of PATH, by default the current folder.
#include <stdlib.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/log.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

using std::chrono::steady_clock;

struct BenchOptions {
  double seconds = 2;
  size_t bytes = 150'000;  // of a snapshot: the embedded model's
  std::string folder = ".";
};

// Milliseconds of each commit.
std::vector<double> CommitUntil(SnapshotStore& store, const std::string& id,
                                const BenchOptions& options,
                                steady_clock::time_point end) {
  std::vector<double> ms;
  std::string snapshot(options.bytes, 's');
  for (uint64_t revision = 1; steady_clock::now() < end; ++revision) {
    StoredSession session;
    session.revision = revision;
    snapshot[0] = static_cast<char>(revision);
    const auto start = steady_clock::now();
    const absl::Status status =
        store
            .Put({"t", id},
                 revision == 1 ? std::nullopt : std::optional(revision - 1),
                 session, snapshot, {})
            .status();
    CHECK(status.ok());
    ms.push_back(
        std::chrono::duration<double, std::milli>(steady_clock::now() - start)
            .count());
  }
  return ms;
}

void Measure(Durability durability, int sessions, const BenchOptions& options) {
  std::string folder = options.folder + "/store_bench.XXXXXX";
  CHECK(mkdtemp(folder.data()) != nullptr);
  std::vector<double> all;
  double seconds = 0;
  {
    auto store = OpenRocksDbStore(folder, {.durability = durability});
    CHECK(store.ok());
    const auto start = steady_clock::now();
    const auto end =
        start + std::chrono::duration_cast<steady_clock::duration>(
                    std::chrono::duration<double>(options.seconds));
    std::vector<std::vector<double>> ms(static_cast<size_t>(sessions));
    std::vector<std::thread> threads;
    for (int s = 0; s < sessions; ++s) {
      threads.emplace_back([&, s] {
        ms[static_cast<size_t>(s)] =
            CommitUntil(**store, std::to_string(s), options, end);
      });
    }
    for (std::thread& thread : threads) thread.join();
    seconds =
        std::chrono::duration<double>(steady_clock::now() - start).count();
    for (const std::vector<double>& some : ms) {
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  std::filesystem::remove_all(folder);
  std::sort(all.begin(), all.end());
  const auto percentile = [&](double p) {
    return all[static_cast<size_t>(p * static_cast<double>(all.size() - 1))];
  };
  std::printf("%-10s %8d %10.0f %8.2f %8.2f %8.2f\n",
              DurabilityName(durability), sessions,
              static_cast<double>(all.size()) / seconds, percentile(0.5),
              percentile(0.99), all.back());
}

int Run(int argc, char** argv) {
  BenchOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const std::string value(argument.substr(argument.find('=') + 1));
    if (argument.starts_with("--seconds=")) {
      options.seconds = std::strtod(value.c_str(), nullptr);
    } else if (argument.starts_with("--bytes=")) {
      options.bytes = std::strtoul(value.c_str(), nullptr, 10);
    } else if (argument.starts_with("--folder=")) {
      options.folder = value;
    } else {
      std::fprintf(stderr, "store_bench: unknown argument %s\n", argv[i]);
      return 2;
    }
  }
  std::printf("snapshots of %zu bytes; milliseconds of a commit\n",
              options.bytes);
  std::printf("%-10s %8s %10s %8s %8s %8s\n", "durability", "sessions",
              "commits/s", "p50", "p99", "max");
  for (const Durability durability : kDurabilities) {
    for (const int sessions : {1, 4, 8, 32}) {
      Measure(durability, sessions, options);
    }
  }
  return 0;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) { return reprise::Run(argc, argv); }
