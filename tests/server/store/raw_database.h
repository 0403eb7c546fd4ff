// The RocksDB store's database, opened behind the store's back.
#ifndef TESTS_SERVER_STORE_RAW_DATABASE_H_
#define TESTS_SERVER_STORE_RAW_DATABASE_H_

#include <gtest/gtest.h>
#include <rocksdb/db.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace reprise {

using ColumnFamilies = std::vector<rocksdb::ColumnFamilyHandle*>;

// Hands `change` the open database; its families are "default", "entries",
// "snapshots" and "expiry", made if they are not there.
inline void ChangeDatabase(
    const std::string& path,
    const std::function<void(rocksdb::DB&, const ColumnFamilies&)>& change) {
  std::vector<rocksdb::ColumnFamilyDescriptor> families;
  for (const char* name : {"default", "entries", "snapshots", "expiry"}) {
    rocksdb::ColumnFamilyOptions options;
    options.enable_blob_files = std::string(name) == "snapshots";
    families.emplace_back(name, options);
  }
  rocksdb::DBOptions options;
  options.create_if_missing = true;
  options.create_missing_column_families = true;
  ColumnFamilies handles;
  rocksdb::DB* opened = nullptr;
  ASSERT_TRUE(
      rocksdb::DB::Open(options, path, families, &handles, &opened).ok());
  const std::unique_ptr<rocksdb::DB> db(opened);
  change(*db, handles);
  for (auto* handle : handles) db->DestroyColumnFamilyHandle(handle);
}

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_RAW_DATABASE_H_
