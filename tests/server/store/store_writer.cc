// Puts sessions into the RocksDB store at argv[1] until it is killed, and
// writes a line "SESSION REVISION" after each Put that was acknowledged. See
// rocksdb_store_test.cc.
#include <unistd.h>

#include <cstdint>
#include <string>

#include "engine/base/log.h"
#include "server/store/snapshot_store.h"
#include "tests/server/store/writer_pattern.h"

int main(int argc, char** argv) {
  CHECK(argc == 2);
  auto store = reprise::OpenRocksDbStore(argv[1]);
  CHECK(store.ok());
  for (uint64_t i = 0;; ++i) {
    const uint64_t session = i % reprise::kWriterSessions;
    const uint64_t revision = i / reprise::kWriterSessions;
    reprise::StoredSession entry;
    entry.revision = revision;
    const auto put = (*store)->Put(
        {"tenant", std::to_string(session)},
        revision == 0 ? std::nullopt : std::optional(revision - 1), entry,
        reprise::WriterSnapshot(session, revision),
        {.checkpoint_bytes = reprise::kWriterCheckpointBytes, .outcome = ""});
    CHECK(put.ok());
    const std::string line =
        std::to_string(session) + " " + std::to_string(revision) + "\n";
    CHECK(write(STDOUT_FILENO, line.data(), line.size()) ==
          static_cast<ssize_t>(line.size()));
  }
}
