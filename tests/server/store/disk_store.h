// The RocksDB store on a disk that fails.
#ifndef TESTS_SERVER_STORE_DISK_STORE_H_
#define TESTS_SERVER_STORE_DISK_STORE_H_

#include <gtest/gtest.h>
#include <rocksdb/env.h>

#include <memory>
#include <string>

#include "server/store/snapshot_store.h"
#include "tests/server/store/faulty_files.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// The disk, and what is needed to open the store that lies on it.
struct StoreDisk {
  TempDir dir;
  // shared: with the environment.
  std::shared_ptr<FaultyFiles> files = std::make_shared<FaultyFiles>();
  std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(files);

  std::unique_ptr<SnapshotStore> Open(
      Durability durability = Durability::kFsync) {
    auto store = OpenRocksDbStore(dir.Path("db"),
                                  {.durability = durability, .env = env.get()});
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_DISK_STORE_H_
