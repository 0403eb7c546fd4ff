// What is left open by the command line and depends on the machine.
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/options.h"

namespace reprise {
namespace {

absl::StatusOr<std::string> FindEmbeddedModel(const std::string& binary_dir) {
  namespace fs = std::filesystem;
  const fs::path candidates[] = {
      // build/PRESET/bin of a source tree; an installed PREFIX/bin.
      fs::path(binary_dir) / "../../../models/embedded",
      fs::path(binary_dir) / "../share/reprise/models/embedded",
  };
  std::string looked;
  for (const fs::path& path : candidates) {
    const fs::path normal = path.lexically_normal();
    std::error_code error;
    if (fs::is_regular_file(normal / "config.json", error)) {
      return normal.string();
    }
    absl::StrAppend(&looked, looked.empty() ? "" : " and in ", normal.string());
  }
  return absl::NotFoundError(
      absl::StrCat("no --model was given and there is no embedded model; "
                   "looked in ",
                   looked));
}

absl::StatusOr<std::string> DefaultStore(const Environment& environment) {
  const char* state = environment("XDG_STATE_HOME");
  // The XDG specification: a path that is not absolute is to be ignored.
  if (state != nullptr && *state == '/') {
    return absl::StrCat("rocksdb:", state, "/reprise/sessions");
  }
  const char* home = environment("HOME");
  if (home != nullptr && *home == '/') {
    return absl::StrCat("rocksdb:", home, "/.local/state/reprise/sessions");
  }
  return absl::InvalidArgumentError(
      "neither XDG_STATE_HOME nor HOME is set: say with --store where sessions "
      "are kept");
}

// So that nobody waits for a model only to learn that the ports cannot be told.
absl::Status CheckPortFile(const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return absl::OkStatus();
  std::error_code error;
  const fs::path folder = fs::absolute(path, error).parent_path();
  if (!fs::is_directory(folder, error)) {
    return absl::NotFoundError(absl::StrCat("--port-file: there is no folder ",
                                            folder.string(), " for ", path));
  }
  if (fs::is_directory(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--port-file: ", path, " is a folder"));
  }
  if (access(folder.c_str(), W_OK) != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("--port-file: no file can be made in ", folder.string()));
  }
  return absl::OkStatus();
}

// Cores that this process may run on.
int64_t CoreCount() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) return 1;
  return std::max(1, CPU_COUNT(&cores));
}

}  // namespace

absl::Status ResolveDefaults(const std::string& binary_dir,
                             const Environment& environment,
                             ServerOptions& options) {
  RETURN_IF_ERROR(CheckPortFile(options.port_file));
  if (options.model_dir.empty()) {
    ASSIGN_OR_RETURN(options.model_dir, FindEmbeddedModel(binary_dir));
  }
  if (options.store_uri.empty()) {
    ASSIGN_OR_RETURN(options.store_uri, DefaultStore(environment));
  }
  if (options.threads == 0) options.threads = CoreCount();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ResolveSlots(const ServerOptions& options,
                                     int64_t slot_bytes) {
  // Beyond so many a budget is not spent: a small model's slots would outnumber
  // any use of them.
  constexpr int64_t kMostByBudget = 4096;
  if (options.slots > 0) return options.slots;
  const int64_t slots =
      std::min(kMostByBudget, options.slot_memory_bytes / slot_bytes);
  if (slots >= 1) return slots;
  return absl::InvalidArgumentError(absl::StrCat(
      "--slot-memory: ", options.slot_memory_bytes,
      " bytes hold no session of this model, which takes ", slot_bytes,
      " (with --max-context tokens, if its state grows with them)"));
}

}  // namespace reprise
