// Everything that can be set about a server, and the command line that sets
// it: flags over environment (--max-running is REPRISE_MAX_RUNNING) over the
// file of --config over the defaults here.
#ifndef SERVER_OPTIONS_H_
#define SERVER_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/log.h"
#include "engine/kernels/linear.h"
#include "server/durability.h"

namespace reprise {

// A limit on everything. Plain values; ParseCommandLine has checked the ranges.
struct ServerOptions {
  // -- model --
  std::string model_dir;  // empty: the embedded model
  WeightType weights = WeightType::kAuto;
  int64_t threads = 0;  // of the engine; 0 = one for each core
  // Where packed weights are kept: "auto" is the model's folder, "off" nowhere.
  std::string packed_cache = "auto";

  // -- addresses, HOST:PORT; port 0 takes a free one --
  std::string listen = "127.0.0.1:8980";
  std::string metrics_listen = "127.0.0.1:8981";
  std::string port_file;  // the two ports are written here once bound; or empty

  // -- sessions --
  std::string store_uri;  // empty: rocksdb: below the user's state folder
  // Unset: fsync, or whatever the store does that has none of its own.
  std::optional<Durability> durability;
  std::string tenant = "default";  // of all requests, for now
  int64_t slots = 0;               // 0 = what slot_memory_bytes holds
  int64_t slot_memory_bytes = int64_t{1} << 30;     // all slots together
  int64_t memory_tier_bytes = int64_t{256} << 20;   // snapshots in memory
  int64_t prefix_cache_bytes = int64_t{256} << 20;  // states of prompts
  int64_t idle_timeout_ms = 10 * 60'000;            // resident, then suspended
  int64_t max_sessions = 1'000'000;                 // stored
  int64_t checkpoint_bytes = int64_t{64} << 20;     // of each session
  // What a tenant may have in the store; 0 = no limit of its own.
  int64_t max_tenant_sessions = 0;
  int64_t max_tenant_bytes = 0;
  std::string seal_keys;    // a file (seal_keys.h); empty: keys of this process
  int64_t seal_ttl_ms = 0;  // seals hold no longer than this; 0 = no end
  int64_t sealed_memory_bytes = int64_t{256} << 20;  // to and from clients
  // Tokens of one session, of a model whose state grows with them; 0 = as many
  // as the model was made for, at most StateLayout::kDefaultMaxContext.
  int64_t max_context = 0;

  // -- one request --
  int64_t max_prompt_tokens = 262'144;
  int64_t max_new_tokens = 65'536;
  int64_t max_request_bytes = int64_t{16} << 20;  // a message as it arrives
  int64_t slow_reader_timeout_ms = 60'000;  // a full stream, then cancelled
  int64_t stream_buffer = 32;  // deltas that wait for a slow reader

  // -- all requests --
  int64_t max_running = 64;    // sequences in steps; never more than slots
  int64_t prefill_rows = 256;  // prompt tokens of a step, whole tiles
  int64_t max_queued = 1024;   // requests
  int64_t max_queued_tokens = int64_t{1} << 20;  // their prompt tokens
  int64_t queue_timeout_ms = 60'000;

  // -- process --
  int64_t drain_timeout_ms = 30'000;  // SIGTERM, then streams are cancelled
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

// What the command line asked for instead of a server, or what is wrong with
// it: print `text` (to stdout if the code is 0, else stderr) and exit.
struct ExitRequest {
  int code = 0;  // 2 for a wrong command line
  std::string text;
};

// nullptr for a variable that is not set.
using Environment = std::function<const char*(const std::string&)>;

// `args` without the program's name. Reads the file of --config, if given.
std::variant<ServerOptions, ExitRequest> ParseCommandLine(
    const std::vector<std::string>& args, const Environment& environment);

// Fills in what depends on the machine: model_dir, store_uri, threads.
// `binary_dir` is the folder that the executable is in. NotFound, saying where
// it looked, if there is no embedded model; InvalidArgument if there is no home
// folder for the store; NotFound, InvalidArgument or PermissionDenied if
// port_file cannot be made.
absl::Status ResolveDefaults(const std::string& binary_dir,
                             const Environment& environment,
                             ServerOptions& options);

// Slots to allocate for states of `slot_bytes`. InvalidArgument if not even one
// fits into the budget.
absl::StatusOr<int64_t> ResolveSlots(const ServerOptions& options,
                                     int64_t slot_bytes);

}  // namespace reprise

#endif  // SERVER_OPTIONS_H_
