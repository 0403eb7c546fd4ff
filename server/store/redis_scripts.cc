#include "server/store/redis_scripts.h"

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace reprise {
namespace {

// Both scripts: KEYS are the session, its tenant's index, the tenant's usage,
// the expiry, the usage of all. Their first write decides: Redis refuses it
// when its memory is full, or when it is a replica, and no other after it.

constexpr std::string_view kCommit = R"lua(
local old = redis.call('HGET', KEYS[1], 'entry')
if (old or '') ~= ARGV[1] then
  return {redis.call('HGET', KEYS[1], 'commit'), old}
end
local first_drop = 8
local first_set = first_drop + tonumber(ARGV[7])
local grown = 0
for i = first_drop, first_set - 1 do
  grown = grown - redis.call('HSTRLEN', KEYS[1], ARGV[i])
end
for i = first_set, #ARGV, 2 do
  if ARGV[i] ~= 'current' then
    grown = grown + #ARGV[i + 1] - redis.call('HSTRLEN', KEYS[1], ARGV[i])
  end
end
redis.call('HSET', KEYS[1], 'entry', ARGV[2], 'commit', ARGV[3],
           unpack(ARGV, first_set))
if first_set > first_drop then
  redis.call('HDEL', KEYS[1], unpack(ARGV, first_drop, first_set - 1))
end
if ARGV[6] == '0' then
  redis.call('ZREM', KEYS[4], ARGV[5])
else
  redis.call('ZADD', KEYS[4], ARGV[6], ARGV[5])
end
local made = 0
if not old then
  made = redis.call('ZADD', KEYS[2], 0, ARGV[4])
end
for _, usage in ipairs({KEYS[3], KEYS[5]}) do
  redis.call('HINCRBY', usage, 'bytes', string.format('%.0f', grown))
  redis.call('HINCRBY', usage, 'sessions', made)
end
return 1
)lua";

constexpr std::string_view kDelete = R"lua(
local old = redis.call('HGET', KEYS[1], 'entry')
if old and ARGV[1] == 'none' then return old end
if old and ARGV[1] == 'seen' and old ~= ARGV[2] then return old end
local bytes = 0
if old then
  for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
    if field == 'outcome' or string.sub(field, 1, 2) == 'r:' then
      bytes = bytes + redis.call('HSTRLEN', KEYS[1], field)
    end
  end
end
redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[4], ARGV[4])
local gone = redis.call('ZREM', KEYS[2], ARGV[3])
-- 0 - x, as Lua knows a -0 and HINCRBY does not.
if gone ~= 0 or bytes ~= 0 then
  for _, usage in ipairs({KEYS[3], KEYS[5]}) do
    redis.call('HINCRBY', usage, 'bytes', string.format('%.0f', 0 - bytes))
    redis.call('HINCRBY', usage, 'sessions', 0 - gone)
  end
  if redis.call('HGET', KEYS[3], 'sessions') == '0' then
    redis.call('DEL', KEYS[3])
  end
end
return old and 1 or 0
)lua";

constexpr std::string_view kRead = R"lua(
local found = redis.call('HMGET', KEYS[1], 'entry', 'current')
if not found[1] then return false end
return {found[1], redis.call('HGET', KEYS[1], found[2] or '')}
)lua";

}  // namespace

RedisKeys::RedisKeys(std::string_view prefix)
    : base_(absl::StrCat("{", ToAbsl(prefix), "}:")) {}

std::string RedisKeys::Session(const SessionKey& key) const {
  return absl::StrCat(base_, "s:", key.tenant.size(), ":", key.tenant, ":",
                      key.id);
}

std::string RedisKeys::Index(std::string_view tenant) const {
  return absl::StrCat(base_, "i:", ToAbsl(tenant));
}

std::string RedisKeys::TenantUsage(std::string_view tenant) const {
  return absl::StrCat(base_, "u:", ToAbsl(tenant));
}

std::vector<std::string> RedisKeys::OfScripts(const SessionKey& key) const {
  return {Session(key), Index(key.tenant), TenantUsage(key.tenant), expiry(),
          usage()};
}

std::string RedisSnapshotField(uint64_t revision) {
  return absl::StrCat("r:", revision);
}

const RedisScript& RedisCommitScript() {
  static const RedisScript& script = *new RedisScript(kCommit);
  return script;
}

const RedisScript& RedisDeleteScript() {
  static const RedisScript& script = *new RedisScript(kDelete);
  return script;
}

const RedisScript& RedisReadScript() {
  static const RedisScript& script = *new RedisScript(kRead);
  return script;
}

}  // namespace reprise
