// Where the Redis store keeps what, and the scripts that change it.
//
//   key                           type        what
//   {PREFIX}:s:LENGTH:TENANT:ID   hash        one session
//       entry                                 as entry_codec.h has it
//       commit                                which call wrote it, and no other
//       current                               the field of its snapshot
//       r:REVISION                            a snapshot, of the current
//                                             revision or of a checkpoint
//       outcome                               of the turn that made it, or none
//   {PREFIX}:i:TENANT             sorted set  ids, all with score 0: by bytes
//   {PREFIX}:u:TENANT             hash        sessions and bytes of the tenant
//   {PREFIX}:expiry               sorted set  entry keys by expires_unix_ms
//   {PREFIX}:usage                hash        sessions and bytes of all
//   {PREFIX}:format               string      1
//
// LENGTH is that of TENANT, so that no two sessions share a key. The braces put
// all keys of a store into one hash slot of a cluster: a commit changes the
// session, its tenant's index and the two sums together or not at all, and a
// script of Redis's cannot reach beyond a slot. So one node carries a store;
// several are several prefixes.
//
// For the Redis store alone.
#ifndef SERVER_STORE_REDIS_SCRIPTS_H_
#define SERVER_STORE_REDIS_SCRIPTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/redis_client.h"
#include "server/store/snapshot_store.h"

namespace reprise {

class RedisKeys {
 public:
  explicit RedisKeys(std::string_view prefix);

  std::string Session(const SessionKey& key) const;
  std::string Index(std::string_view tenant) const;
  std::string TenantUsage(std::string_view tenant) const;
  std::string expiry() const { return base_ + "expiry"; }
  std::string usage() const { return base_ + "usage"; }
  std::string format() const { return base_ + "format"; }

  // The keys of the scripts below, which all take the same, in their order.
  std::vector<std::string> OfScripts(const SessionKey& key) const;

 private:
  const std::string base_;  // "{PREFIX}:"
};

std::string RedisSnapshotField(uint64_t revision);

// Writes a session if its entry is what the caller has seen. Arguments: that
// entry, empty for none; the new entry; the commit's name; the id; the entry
// key; expires_unix_ms, 0 for never; how many fields to drop, and those; then
// fields and values to set. Returns 1, or the commit and the entry that are
// there: nothing is written then.
const RedisScript& RedisCommitScript();

// Deletes a session. Arguments: which, below; the entry that the caller has
// seen; the id; the entry key. Returns 1, 0 if there is none, or the entry that
// is there if it is another: nothing is deleted then. What the indexes say of a
// session that is not there goes in any case.
const RedisScript& RedisDeleteScript();
inline constexpr std::string_view kRedisDeleteAny = "any";
inline constexpr std::string_view kRedisDeleteSeen = "seen";
inline constexpr std::string_view kRedisDeleteNone =
    "none";  // only the indexes

// Returns the entry and the current snapshot, or nothing. No arguments.
const RedisScript& RedisReadScript();

}  // namespace reprise

#endif  // SERVER_STORE_REDIS_SCRIPTS_H_
