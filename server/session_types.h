// What the session manager is set up with, and what it tells of sessions.
#ifndef SERVER_SESSION_TYPES_H_
#define SERVER_SESSION_TYPES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "engine/state/snapshot.h"
#include "server/store/snapshot_store.h"

namespace reprise {

class SealKeys;

enum class SessionPlace { kActive, kResident, kMemory, kSuspended };

struct SessionInfo {
  StoredSession stored;
  SessionPlace place = SessionPlace::kSuspended;
};

// A request by which a client may come again, not knowing what became of it.
struct RequestIdentity {
  std::string id;            // empty: it has none
  uint64_t fingerprint = 0;  // of all that it asks for
};

struct AcquireOptions {
  std::optional<uint64_t> expected_revision;
  bool create = false;  // make the session if there is none
  bool commit = true;   // the turn may end in a commit
  RequestIdentity request = {};
};

// Presets are sessions of a tenant beside their owner's, whose name no tenant
// can have.
SessionKey PresetKey(const std::string& tenant, const std::string& name);

// "session ID" or "preset NAME", for messages.
std::string Describe(const SessionKey& key);

// How a state is written and sealed for a client.
struct SealOptions {
  SnapshotEncoding encoding;
  std::optional<int64_t> ttl_ms;  // then it is not taken back; 0 = as none
};

struct SessionManagerOptions {
  int64_t num_slots = 64;                    // leased and resident together
  int64_t memory_tier_bytes = 256 << 20;     // snapshots in memory
  int64_t idle_timeout_ms = 10 * 60 * 1000;  // resident, then suspended
  int64_t max_sessions = 1'000'000;          // stored
  int64_t checkpoint_bytes = 64 << 20;       // of each session
  // What each tenant may have in the store; 0 = no limit of its own.
  int64_t max_tenant_sessions = 0;
  int64_t max_tenant_bytes = 0;
  // For states in the hands of clients. Null: keys of this process alone.
  // shared: with whoever loaded them, to tell of them.
  std::shared_ptr<const SealKeys> seal_keys = nullptr;
  int64_t seal_ttl_ms = 0;  // the longest time that a seal holds; 0 = no end
  int64_t sealed_memory_bytes = 256 << 20;  // to and from clients
};

// InvalidArgument, naming the rule, unless `id` is 1..128 characters of
// A-Z a-z 0-9 . _ - and does not start with a dot. `field` is the request's.
absl::Status ValidateSessionId(std::string_view id, std::string_view field);
// The same rule for the name of a preset.
absl::Status ValidatePresetName(std::string_view name, std::string_view field);

// Whether a lease was refused because every slot is leased. That passes; the
// ResourceExhausted of too many sessions does not.
bool IsOutOfSlots(const absl::Status& status);

}  // namespace reprise

#endif  // SERVER_SESSION_TYPES_H_
