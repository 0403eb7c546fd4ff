// The server's options as its parts take them, for servers made by tests.
#ifndef TESTS_SUPPORT_TEST_SERVER_OPTIONS_H_
#define TESTS_SUPPORT_TEST_SERVER_OPTIONS_H_

#include "engine/base/log.h"
#include "server/options.h"
#include "server/scheduler.h"
#include "server/seal_keys.h"
#include "server/session_manager.h"

namespace reprise {

inline ServerOptions SmallServerOptions() {
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.max_request_bytes = 64 << 10;
  options.max_prompt_tokens = 2000;
  options.max_new_tokens = 2000;
  options.max_queued_tokens = 4000;
  options.slots = 8;
  options.max_running = 8;
  return options;
}

inline SessionManagerOptions ManagerOptionsOf(const ServerOptions& options) {
  SessionManagerOptions manager;
  manager.num_slots = options.slots;
  manager.memory_tier_bytes = options.memory_tier_bytes;
  manager.idle_timeout_ms = options.idle_timeout_ms;
  manager.max_sessions = options.max_sessions;
  manager.checkpoint_bytes = options.checkpoint_bytes;
  manager.max_tenant_sessions = options.max_tenant_sessions;
  manager.max_tenant_bytes = options.max_tenant_bytes;
  manager.seal_ttl_ms = options.seal_ttl_ms;
  manager.sealed_memory_bytes = options.sealed_memory_bytes;
  if (!options.seal_keys.empty()) {
    auto keys = SealKeys::Load(options.seal_keys);
    CHECK(keys.ok());
    manager.seal_keys = *std::move(keys);
  }
  return manager;
}

inline SchedulerOptions SchedulerOptionsOf(const ServerOptions& options) {
  SchedulerOptions scheduling;
  scheduling.max_running = options.max_running;
  scheduling.prefill_rows = options.prefill_rows;
  scheduling.max_queued = options.max_queued;
  scheduling.max_queued_tokens = options.max_queued_tokens;
  scheduling.queue_timeout_ms = options.queue_timeout_ms;
  scheduling.slow_reader_timeout_ms = options.slow_reader_timeout_ms;
  scheduling.prefix_cache_bytes = options.prefix_cache_bytes;
  return scheduling;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_TEST_SERVER_OPTIONS_H_
