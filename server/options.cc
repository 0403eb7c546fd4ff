#include "server/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/arguments.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "server/option_values.h"
#include "server/options_file.h"
#include "server/options_flags.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

constexpr int64_t kDayMs = 24 * 3'600'000;
constexpr int64_t kKib = 1024, kMib = kKib * 1024, kGib = kMib * 1024,
                  kTib = kGib * 1024;

std::string CheckAddress(std::string& address) {
  if (ParseHostPort(address).has_value()) return "";
  return "'" + address +
         "' is not HOST:PORT with a port from 0 to 65535 (an IPv6 address "
         "stands in brackets)";
}

std::string CheckStore(std::string& uri) {
  constexpr std::string_view kRocksDb = "rocksdb:";
  if (uri.starts_with(kRocksDb)) {
    const std::string wrong = CheckPath(uri.substr(kRocksDb.size()));
    if (!wrong.empty()) return wrong;
  }
  const absl::Status status = CheckStoreUri(uri);
  return std::string(absl::StripPrefix(status.message(), "store: "));
}

std::string CheckFile(std::string& path) { return CheckPath(path); }

std::string CheckPackedCache(std::string& where) {
  std::error_code ignored;
  if (where == "auto" || where == "off" ||
      std::filesystem::is_directory(where, ignored)) {
    return "";
  }
  if (std::string wrong = CheckPath(where); !wrong.empty()) return wrong;
  return "'" + where + "' is neither auto nor off nor a folder that exists";
}

void AddModelFlags(Flags& flags, ServerOptions& o) {
  flags.Group("Model");
  flags.Text("--model", "DIR", o.model_dir,
             "Folder with config.json, model.safetensors and a\n"
             "tokenizer: tokenizer.json, tokenizer.model or\n"
             "rwkv_vocab_*.txt [the embedded model]",
             CheckFile);
  std::vector<std::pair<std::string, WeightType>> types;
  for (const WeightType type : kWeightTypes) {
    types.emplace_back(WeightTypeName(type), type);
  }
  flags.Choice("--weights", o.weights, types,
               "Type of the weights in memory; auto is bf16, half the\n"
               "size of f32; int8 has a quarter of it and rounds\n"
               "the weights");
  flags.Count("--threads", o.threads, {0, 1024},
              "Threads of the engine; 0 = one for each core [0]");
  flags.Text("--packed-cache", "WHERE", o.packed_cache,
             "Where the packed weights of models from 64 MiB on are\n"
             "kept, for a fast next start: auto (in the model's\n"
             "folder), off, or a folder",
             CheckPackedCache);
}

void AddAddressFlags(Flags& flags, ServerOptions& o) {
  flags.Group("Addresses");
  flags.Text("--listen", "HOST:PORT", o.listen,
             "Where gRPC is served; port 0 takes a free one\n", CheckAddress);
  flags.Text("--metrics-listen", "HOST:PORT", o.metrics_listen,
             "Where Prometheus scrapes /metrics\n", CheckAddress);
  flags.Text("--port-file", "PATH", o.port_file,
             "Write the bound ports there, \"grpc N\" and\n\"metrics N\", "
             "once the server is ready",
             CheckFile);
}

void AddSessionFlags(Flags& flags, ServerOptions& o) {
  flags.Group("Sessions");
  flags.Text("--store", "URI", o.store_uri,
             "Where sessions are kept: rocksdb:PATH, memory:, or\n"
             "redis://HOST:PORT, which several servers may share\n"
             "(also rediss: and redis+unix:; docs/stores.md). A\n"
             "password belongs into REPRISE_STORE or a file:\n"
             "redis://HOST?password_file=FILE\n"
             "[rocksdb:$XDG_STATE_HOME/reprise/sessions, or the\n"
             "same below ~/.local/state]",
             CheckStore);
  std::vector<std::pair<std::string, std::optional<Durability>>> modes;
  for (const Durability durability : kDurabilities) {
    modes.emplace_back(DurabilityName(durability), durability);
  }
  flags.Choice("--durability", o.durability, modes,
               absl::StrCat("Where a turn is when it is acknowledged, with\n"
                            "rocksdb: (other stores refuse this).\n"
                            "fsync: on the disk; nothing is lost.\n"
                            "async: with the system, and on the disk within\n",
                            FormatDurationMs(kAsyncSyncMs),
                            "; the end of the machine, but not of the\n"
                            "server, loses turns of that time.\n"
                            "none: in the server's memory, and on the disk\n"
                            "within ",
                            FormatDurationMs(kNoneFlushMs),
                            "; any end but a drain, and an error of\n"
                            "the disk, loses turns of that time [fsync]"));
  flags.Text("--tenant", "NAME", o.tenant, "Owner of all sessions",
             CheckTenant);
  flags.Count("--slots", o.slots, {0, 1'000'000},
              "Sessions whose state is in a slot, ready to run;\n"
              "0 = as many as --slot-memory holds [0]");
  flags.Bytes("--slot-memory", o.slot_memory_bytes, {kMib, 64 * kTib},
              "Memory for slots, if --slots is 0");
  flags.Bytes("--memory-tier", o.memory_tier_bytes, {0, 64 * kTib},
              "Memory for snapshots of suspended sessions;\n0 = none");
  flags.Bytes("--prefix-cache", o.prefix_cache_bytes, {0, 64 * kTib},
              "Memory for states that prompts begin with; 0 = none");
  flags.Duration("--idle-timeout", o.idle_timeout_ms, {1000, 365 * kDayMs},
                 "A session idle for so long is suspended");
  flags.Count("--max-sessions", o.max_sessions, {1, 1'000'000'000},
              "Sessions in the store");
  flags.Bytes("--checkpoint-bytes", o.checkpoint_bytes, {0, 64 * kTib},
              "Of each session, for revisions to rewind to; 0 = none");
  flags.Count("--max-tenant-sessions", o.max_tenant_sessions, {0, 1 << 30},
              "Sessions of one tenant; 0 = no limit of its own [0]");
  flags.Bytes("--max-tenant-bytes", o.max_tenant_bytes, {0, 64 * kTib},
              "Of one tenant in the store; 0 = no limit of its own");
  flags.Text("--seal-keys", "FILE", o.seal_keys,
             "Keys of sealed snapshots (docs/export.md); without it\n"
             "they open in the process that sealed them alone",
             CheckFile);
  flags.Duration("--seal-ttl", o.seal_ttl_ms, {0, 36'500 * kDayMs},
                 "Sealed snapshots hold no longer than this;\n"
                 "0 = no end, if the client asks for none");
  flags.Bytes("--sealed-memory", o.sealed_memory_bytes, {kMib, 64 * kTib},
              "For sealed snapshots on their way to and from clients,\n"
              "also those in answers of Generate");
  flags.Count("--max-context", o.max_context, {0, kMostContext},
              absl::StrCat("Tokens of a session, where a model's softmax\n"
                           "attention keeps all of them; other models have no\n"
                           "such limit and ignore this. 0 = as many as the\n"
                           "model was made for, at most ",
                           StateLayout::kDefaultMaxContext, " [0]"));
}

void AddLimitFlags(Flags& flags, ServerOptions& o) {
  flags.Group("Limits of one request");
  flags.Count("--max-prompt-tokens", o.max_prompt_tokens, {1, 1 << 30},
              "Tokens of a prompt");
  flags.Count("--max-new-tokens", o.max_new_tokens, {1, 1 << 30},
              "Tokens of a completion");
  flags.Bytes("--max-request-bytes", o.max_request_bytes, {kKib, kGib},
              "Bytes of a request message; one that is compressed is\n"
              "refused, as it may unpack to gigabytes");
  flags.Duration("--slow-reader-timeout", o.slow_reader_timeout_ms,
                 {100, kDayMs},
                 "A client that reads nothing, or sends no chunk of\n"
                 "an import, for so long is cancelled");
  flags.Count("--stream-buffer", o.stream_buffer, {1, 4096},
              "Messages that wait for a slow reader before its\n"
              "request pauses");

  flags.Group("Limits of all requests");
  flags.Count("--max-running", o.max_running, {1, 4096},
              "Sequences computed together");
  flags.Count("--prefill-rows", o.prefill_rows, {64, 65'536},
              "Prompt tokens read in one step, a multiple of 64;\n"
              "more is faster for prompts, less is smoother for\nstreams",
              /*multiple_of=*/64);
  flags.Count("--max-queued", o.max_queued, {1, 1'000'000},
              "Requests that wait");
  flags.Count("--max-queued-tokens", o.max_queued_tokens, {1, int64_t{1} << 40},
              "Their prompt tokens together");
  flags.Duration("--queue-timeout", o.queue_timeout_ms, {1, kDayMs},
                 "A request that waited so long is refused");
}

void AddProcessFlags(Flags& flags, ServerOptions& o) {
  flags.Group("Process");
  flags.Duration("--drain-timeout", o.drain_timeout_ms, {0, kDayMs},
                 "After SIGTERM, streams may go on for so long");
  flags.Choice<LogLevel>(
      "--log-level", o.log_level,
      {{"debug", LogLevel::kDebug},
       {"info", LogLevel::kInfo},
       {"warning", LogLevel::kWarning},
       {"error", LogLevel::kError}},
      "Least important lines to log; debug has one for every turn");
  flags.Choice<LogFormat>(
      "--log-format", o.log_format,
      {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
      "Form of a log line");
}

constexpr const char* kIntroduction =
    "Serves a recurrent-state language model over gRPC. Without any option it\n"
    "serves the embedded model on 127.0.0.1:8980 and metrics on\n"
    "127.0.0.1:8981, and keeps sessions below your state folder.\n\n"
    "Example:\n"
    "  reprise-server --model=models/mine --listen=127.0.0.1:9000 \\\n"
    "    --store=rocksdb:/var/lib/reprise/sessions\n"
    "  reprise complete \"Once upon a time\" --server=127.0.0.1:9000\n\n"
    "There is no TLS and no authentication: who reaches --listen reads and\n"
    "changes all sessions. Listen on loopback, or behind a proxy or "
    "firewall.\n";

constexpr const char* kFooter =
    "Defaults are in brackets. Sizes are written 64KiB, 512MiB, 2GiB; times\n"
    "500ms, 30s, 10m, 2h, 7d (30 alone is 30 seconds).\n"
    "Every option is also an environment variable (--max-running is\n"
    "REPRISE_MAX_RUNNING) and a line in the file of --config\n"
    "(max-running = 32). The command line wins over the environment, and that\n"
    "over the file.\n\n"
    "SIGTERM or Ctrl-C drains: streams finish, sessions are suspended. A "
    "second\n"
    "one ends at once. Exit code 0: drained; 1: could not start, or was ended\n"
    "at once; 2: an option is wrong.\n";

std::string EnvironmentName(const std::string& option) {
  std::string name = "REPRISE_";
  for (const char c : option) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(c));
  }
  return name;
}

bool TakesValue(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

// Variables become arguments in front of the real ones: options take their
// last value, and CLI11 reads the file only for options without one. (Its own
// environment support would let the file win.)
std::vector<std::string> WithEnvironment(const CLI::App& app,
                                         const std::vector<std::string>& args,
                                         const Environment& environment) {
  std::vector<std::string> all;
  for (const CLI::Option* option : app.get_options()) {
    // --help and --version are for the command line alone.
    if (option->get_lnames().empty() || !TakesValue(*option)) continue;
    const std::string& name = option->get_lnames()[0];
    const char* value = environment(EnvironmentName(name));
    if (value == nullptr || *value == '\0') continue;
    all.push_back("--" + name + "=" + value);
  }
  all.insert(all.end(), args.begin(), args.end());
  return all;
}

// What no single option can know.
std::string CheckTogether(const ServerOptions& o) {
  if (o.max_queued_tokens < o.max_prompt_tokens) {
    return absl::StrCat("--max-queued-tokens: ", o.max_queued_tokens,
                        " is less than --max-prompt-tokens, ",
                        o.max_prompt_tokens,
                        ", so that a prompt of that length would never fit");
  }
  if (o.store_uri.empty()) return "";  // a rocksdb:, which takes them all
  const absl::Status store = CheckStoreUri(o.store_uri, o.durability);
  return store.ok() ? "" : absl::StrCat("--", store.message());
}

ExitRequest WrongUsage(const std::string& wrong) {
  return {2, absl::StrCat("reprise-server: ", wrong,
                          "\nTry reprise-server --help\n")};
}

}  // namespace

std::variant<ServerOptions, ExitRequest> ParseCommandLine(
    const std::vector<std::string>& args, const Environment& environment) {
  ServerOptions options;
  CLI::App app(kIntroduction, "reprise-server");
  app.get_formatter()->column_width(32);
  app.get_formatter()->label("OPTIONS", "OPTION=VALUE...");
  app.footer(kFooter);
  app.set_version_flag("--version", "reprise-server " REPRISE_VERSION,
                       "Show the version and exit");
  app.set_help_flag("--help,-h", "Show this and exit");
  const auto takes_value = [&app](const std::string& flag) {
    const CLI::Option* option = app.get_option_no_throw(flag);
    return option != nullptr && TakesValue(*option);
  };
  const auto check_config = [takes_value](std::string& path) {
    return CheckOptionsFile(path, [&](const std::string& name) {
      return name != "config" && takes_value("--" + name);
    });
  };
  app.set_config("--config", "", "Read options from this TOML or INI file")
      ->option_text("FILE")
      ->check(CLI::Validator(check_config, ""))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app.allow_config_extras(CLI::config_extras_mode::error);
  Flags flags(app);
  AddModelFlags(flags, options);
  AddAddressFlags(flags, options);
  AddSessionFlags(flags, options);
  AddLimitFlags(flags, options);
  AddProcessFlags(flags, options);

  const std::string missing = FindMissingValue(
      args,
      [&](std::string_view flag) { return takes_value(std::string(flag)); });
  if (!missing.empty()) return WrongUsage(missing);
  std::vector<std::string> all = WithEnvironment(app, args, environment);
  std::reverse(all.begin(), all.end());  // CLI11 takes them from the back
  try {
    app.parse(all);
  } catch (const CLI::CallForHelp&) {
    return ExitRequest{0, app.help()};
  } catch (const CLI::CallForVersion&) {
    return ExitRequest{0, "reprise-server " REPRISE_VERSION "\n"};
  } catch (const CLI::Error& error) {
    return WrongUsage(error.what());
  }
  if (const std::string wrong = CheckTogether(options); !wrong.empty()) {
    return WrongUsage(wrong);
  }
  return options;
}

}  // namespace reprise
