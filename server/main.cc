// reprise-server: puts the parts together, waits for a signal, drains, and
// takes them apart in the opposite order.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/bytes.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/mutex.h"
#include "engine/base/parallel.h"
#include "engine/base/standard_streams.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/kernels/state_kernels.h"
#include "engine/load_tokenizer.h"
#include "engine/model_summary.h"
#include "engine/template/chat_format.h"
#include "engine/tokenizer.h"
#include "server/engine_thread.h"
#include "server/executor.h"
#include "server/inference_service_context.h"
#include "server/inference_service_server.h"
#include "server/listener.h"
#include "server/metrics.h"
#include "server/option_values.h"
#include "server/options.h"
#include "server/scheduler.h"
#include "server/seal_keys.h"
#include "server/session_manager.h"
#include "server/signal_watcher.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

// Threads that wait for the store, and threads that turn text into tokens: long
// texts must not hold up commits. The first wait for a disk, which syncs what
// has come together by then: as many commits as there are threads. More of the
// second would only compete with the engine for the cores.
constexpr int kStoreThreads = 16;
constexpr int kTextThreads = 2;

constexpr const char* kModelAdvice =
    "--model names a folder with config.json, model.safetensors and a "
    "tokenizer: tokenizer.json, tokenizer.model or rwkv_vocab_*.txt";

// Calls SessionManager::Sweep every second on a thread of its own.
class Sweeper {
 public:
  explicit Sweeper(SessionManager& sessions)
      : thread_([this, &sessions] { Work(sessions); }) {}
  ~Sweeper() {
    {
      MutexLock lock(mu_);
      stopping_ = true;
      stop_.NotifyAll();
    }
    thread_.join();
  }

 private:
  void Work(SessionManager& sessions) {
    mu_.Lock();
    while (!stopping_) {
      stop_.WaitFor(mu_, /*timeout_ms=*/1000);
      if (stopping_) break;
      mu_.Unlock();
      sessions.Sweep();
      mu_.Lock();
    }
    mu_.Unlock();
  }

  Mutex mu_;
  CondVar stop_;
  bool stopping_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;  // last: it uses the others
};

int64_t RoundUpToTile(int64_t rows) {
  return (rows + kTileRows - 1) / kTileRows * kTileRows;
}

// The same status with what to do about it.
absl::Status WithAdvice(const absl::Status& status, const char* advice) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(status.message(), "; ", advice));
}

void LogModel(const ModelInfo& model, const Tokenizer& tokenizer,
              const ChatFormat& chat, double seconds) {
  LogInfo("model loaded",
          {{"model", model.name},
           {"family", model.family},
           {"layers", model.description},
           {"parameters", model.num_parameters},
           {"tokenizer", tokenizer.kind()},
           {"chat_template", chat.source()},
           {"weights", WeightTypeName(model.weight_type)},
           {"weight_bytes", model.weight_bytes},
           {"state_bytes", model.state_bytes},
           {"state_bytes_per_token", model.state_bytes_per_token},
           {"max_context", model.max_context.value_or(0)},
           {"cpu_isa", model.cpu_isa},
           {"packed_cache", PackedCacheUseName(model.packed_cache)},
           {"seconds", seconds}});
  if (chat.has_template() && !chat.status().ok()) {
    LogWarning("requests with messages will be refused",
               {{"reason", FromAbsl(chat.status().message())}});
  }
}

void LogProgress(const LoadProgress& progress) {
  LogInfo("loading the model", {{"percent", progress.percent()},
                                {"done_bytes", progress.done_bytes},
                                {"total_bytes", progress.total_bytes},
                                {"seconds", std::floor(progress.seconds)}});
}

// Everything that a running server is made of.
class Server {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options), metrics_(ModelName(options.model_dir)) {}
  ~Server() { TakeApart(); }

  // Unavailable, InvalidArgument and so on with a message that says what to
  // do; Cancelled if a signal came before the end.
  absl::Status Start(SignalWatcher& signals);
  // Ends streams as well as time allows, suspends every session.
  void Drain();

 private:
  absl::Status BindThePort();
  absl::Status LookAtModel();
  absl::Status OpenTheStore();
  absl::Status LoadModel(SignalWatcher& signals);
  absl::Status MakeSessions();
  absl::Status Listen();
  absl::Status WritePortFile() const;
  bool WaitUntilIdle(int64_t timeout_ms);
  void TakeApart();

  ServerOptions options_;
  Metrics metrics_;
  int metrics_port_ = 0;
  const Clock& clock_ = Clock::Real();
  std::unique_ptr<Listener> listener_;  // until rpc_ has it
  std::unique_ptr<SnapshotStore> store_;
  std::shared_ptr<const SealKeys> seal_keys_;  // shared: with the sessions
  int64_t vocab_size_ = 0;
  std::unique_ptr<EngineThread> engine_thread_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatFormat> chat_;
  ModelInfo model_;  // the engine's, and the tokenizer's fingerprint
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<Sweeper> sweeper_;
  std::unique_ptr<ThreadPool> executor_;
  std::unique_ptr<ThreadPool> text_;
  std::unique_ptr<ThreadPool> delivery_;
  std::unique_ptr<Scheduler> scheduler_;
  std::unique_ptr<ServiceContext> context_;
  std::unique_ptr<RpcServer> rpc_;
};

absl::Status Server::Start(SignalWatcher& signals) {
  LogInfo("starting", {{"version", REPRISE_VERSION},
                       {"pid", getpid()},
                       {"model", options_.model_dir},
                       {"threads", options_.threads}});
  // What can be wrong quickly comes before the model, which may take minutes.
  RETURN_IF_ERROR(
      WithAdvice(metrics_.Listen(options_.metrics_listen, &metrics_port_),
                 "choose another with --metrics-listen"));
  RETURN_IF_ERROR(BindThePort());
  RETURN_IF_ERROR(LookAtModel());
  ASSIGN_OR_RETURN(seal_keys_, OpenSealKeys(options_.seal_keys));
  RETURN_IF_ERROR(OpenTheStore());
  RETURN_IF_ERROR(LoadModel(signals));
  RETURN_IF_ERROR(MakeSessions());
  RETURN_IF_ERROR(Listen());
  return WritePortFile();
}

absl::Status Server::BindThePort() {
  absl::StatusOr<std::unique_ptr<Listener>> bound =
      Listener::Bind(options_.listen);
  if (!bound.ok()) {
    return WithAdvice(bound.status(), "choose another with --listen");
  }
  listener_ = *std::move(bound);
  return absl::OkStatus();
}

// All but the numbers: nobody's store is made or locked for a model that is
// none.
absl::Status Server::LookAtModel() {
  const absl::StatusOr<ModelSummary> summary =
      SummariseModel(options_.model_dir);
  if (!summary.ok()) return WithAdvice(summary.status(), kModelAdvice);
  vocab_size_ = summary->vocab_size;
  return absl::OkStatus();
}

absl::Status Server::OpenTheStore() {
  absl::StatusOr<std::unique_ptr<SnapshotStore>> store =
      OpenStore(options_.store_uri, options_.durability);
  if (!store.ok()) {  // it says itself what to do, and begins with the option
    absl::string_view message = store.status().message();
    const bool durability = absl::StartsWith(message, "durability: ");
    absl::ConsumePrefix(&message, "store: ");
    return absl::Status(store.status().code(),
                        absl::StrCat(durability ? "--" : "--store: ", message));
  }
  store_ = *std::move(store);
  LogInfo("store open", {{"store", WithoutPassword(options_.store_uri)},
                         {"turns_survive", WhatSurvives(options_.store_uri,
                                                        options_.durability)}});
  return absl::OkStatus();
}

absl::Status Server::LoadModel(SignalWatcher& signals) {
  const int64_t start_ns = clock_.MonotonicNs();
  const auto seconds = [&] {  // to the millisecond
    return static_cast<double>((clock_.MonotonicNs() - start_ns) / 1'000'000) *
           1e-3;
  };
  EngineOptions engine_options;
  engine_options.model_dir = options_.model_dir;
  engine_options.weights = options_.weights;
  if (options_.max_context > 0) {
    engine_options.max_context = options_.max_context;
  }
  engine_options.max_rows =
      RoundUpToTile(options_.prefill_rows + options_.max_running);
  engine_options.packed_cache.enabled = options_.packed_cache != "off";
  if (options_.packed_cache != "auto") {
    engine_options.packed_cache.dir = options_.packed_cache;
  }
  engine_options.progress = LogProgress;
  engine_thread_ = std::make_unique<EngineThread>(
      static_cast<int>(options_.threads),
      [engine_options] { return LoadEngine(engine_options); });
  // Meanwhile, here:
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      LoadTokenizer(options_.model_dir, vocab_size_);
  while (!engine_thread_->WaitFor(/*timeout_ms=*/100)) {
    if (signals.WaitFor(0)) return absl::CancelledError("a signal came");
  }
  absl::StatusOr<std::unique_ptr<Engine>> engine = engine_thread_->Take();
  if (!engine.ok()) return WithAdvice(engine.status(), kModelAdvice);
  engine_ = *std::move(engine);
  if (!tokenizer.ok()) return WithAdvice(tokenizer.status(), kModelAdvice);
  tokenizer_ = *std::move(tokenizer);

  model_ = engine_->info();
  model_.fingerprints.tokenizer = tokenizer_->fingerprint();
  metrics_.SetModel(model_, seconds());
  chat_ = std::make_unique<ChatFormat>(
      ChatFormat::Load(options_.model_dir, *tokenizer_, model_.eos_tokens));
  LogModel(model_, *tokenizer_, *chat_, seconds());
  return absl::OkStatus();
}

absl::Status Server::MakeSessions() {
  SessionManagerOptions manager;
  ASSIGN_OR_RETURN(manager.num_slots,
                   ResolveSlots(options_, engine_->layout().slot_bytes()));
  // A sequence that runs has a slot.
  options_.max_running = std::min(options_.max_running, manager.num_slots);
  manager.memory_tier_bytes = options_.memory_tier_bytes;
  manager.idle_timeout_ms = options_.idle_timeout_ms;
  manager.max_sessions = options_.max_sessions;
  manager.checkpoint_bytes = options_.checkpoint_bytes;
  manager.max_tenant_sessions = options_.max_tenant_sessions;
  manager.max_tenant_bytes = options_.max_tenant_bytes;
  manager.seal_keys = seal_keys_;
  manager.seal_ttl_ms = options_.seal_ttl_ms;
  manager.sealed_memory_bytes = options_.sealed_memory_bytes;
  absl::StatusOr<std::unique_ptr<SessionManager>> sessions =
      SessionManager::Create(model_.fingerprints, engine_->layout(),
                             model_.vocab_size, *store_, metrics_, clock_,
                             manager);
  if (!sessions.ok()) {
    return WithAdvice(sessions.status(),
                      "lower --slots or --slot-memory if memory is short");
  }
  sessions_ = *std::move(sessions);
  sweeper_ = std::make_unique<Sweeper>(*sessions_);
  return absl::OkStatus();
}

absl::Status Server::Listen() {
  executor_ = std::make_unique<ThreadPool>(kStoreThreads);
  text_ = std::make_unique<ThreadPool>(kTextThreads);
  delivery_ = std::make_unique<ThreadPool>(1);
  SchedulerOptions scheduling;
  scheduling.max_running = options_.max_running;
  scheduling.prefill_rows = options_.prefill_rows;
  scheduling.max_queued = options_.max_queued;
  scheduling.max_queued_tokens = options_.max_queued_tokens;
  scheduling.queue_timeout_ms = options_.queue_timeout_ms;
  scheduling.slow_reader_timeout_ms = options_.slow_reader_timeout_ms;
  scheduling.prefix_cache_bytes = options_.prefix_cache_bytes;
  scheduler_ =
      std::make_unique<Scheduler>(*engine_, *tokenizer_, *sessions_, *executor_,
                                  metrics_, clock_, scheduling);
  engine_thread_->Run([this] { scheduler_->Run(); });
  context_.reset(new ServiceContext{.scheduler = *scheduler_,
                                    .sessions = *sessions_,
                                    .tokenizer = *tokenizer_,
                                    .model = model_,
                                    .chat = *chat_,
                                    .executor = *executor_,
                                    .text = *text_,
                                    .delivery = *delivery_,
                                    .metrics = metrics_,
                                    .clock = clock_,
                                    .options = options_});
  absl::StatusOr<std::unique_ptr<RpcServer>> rpc =
      RpcServer::Start(*context_, std::move(listener_));
  if (!rpc.ok()) {
    return WithAdvice(rpc.status(), "choose another with --listen");
  }
  rpc_ = *std::move(rpc);
  const auto with_port = [](const std::string& address, int port) {
    return absl::StrCat(ParseHostPort(address)->host, ":", port);
  };
  LogInfo("ready",
          {{"grpc", with_port(options_.listen, rpc_->port())},
           {"metrics", with_port(options_.metrics_listen, metrics_port_)},
           {"slots", sessions_->num_slots()},
           {"max_running", options_.max_running}});
  return absl::OkStatus();
}

// Renamed into place, so that whoever waits for the file finds it whole.
absl::Status Server::WritePortFile() const {
  if (options_.port_file.empty()) return absl::OkStatus();
  const std::string draft = options_.port_file + ".new";
  std::ofstream out(draft);
  out << "grpc " << rpc_->port() << "\nmetrics " << metrics_port_ << "\n";
  out.close();
  std::error_code error;
  if (out) std::filesystem::rename(draft, options_.port_file, error);
  if (out && !error) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--port-file: cannot write ", options_.port_file));
}

bool Server::WaitUntilIdle(int64_t timeout_ms) {
  const int64_t end_ns = clock_.MonotonicNs() + timeout_ms * 1'000'000;
  while (!scheduler_->idle() || context_->calls.open() > 0) {
    if (clock_.MonotonicNs() >= end_ns) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

void Server::Drain() {
  LogInfo("draining", {{"open_calls", context_->calls.open()},
                       {"timeout_ms", options_.drain_timeout_ms}});
  rpc_->StopServing();
  scheduler_->BeginDrain();
  if (!WaitUntilIdle(options_.drain_timeout_ms)) {
    // A turn that is cancelled commits what was streamed, if it may; that takes
    // a step and a write to the store.
    constexpr int64_t kCommitMs = 5000;
    LogWarning("drain timeout: ending the streams that still run",
               {{"open_calls", context_->calls.open()}});
    rpc_->CancelCalls();
    WaitUntilIdle(kCommitMs);
  }
  // What is left are calls of clients that do not read, and streams that have
  // no end of their own (health watchers).
  rpc_->Shutdown(/*grace_ms=*/200);
  TakeApart();
  LogInfo("drained");
}

// In the order of the data: calls, steps, tasks, then what they use.
void Server::TakeApart() {
  rpc_.reset();
  if (scheduler_ != nullptr) scheduler_->Stop();
  engine_thread_.reset();
  text_.reset();
  executor_.reset();
  delivery_.reset();
  context_.reset();
  scheduler_.reset();
  sweeper_.reset();
  if (sessions_ != nullptr) sessions_->SuspendAll();
  sessions_.reset();
  store_.reset();
}

std::string BinaryPath() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).string();
}

// Every connection holds a descriptor: take as many as the system gives.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t kFew = 4096;
  if (limit.rlim_max < kFew) {
    LogWarning(
        "few file descriptors: connections are refused when they run out",
        {{"limit", limit.rlim_max}, {"advice", "raise ulimit -Hn"}});
  }
}

absl::Status StartAndServe(ServerOptions& options) {
  try {
    SignalWatcher signals;
    Server server(options);
    RETURN_IF_ERROR(server.Start(signals));
    signals.Wait();
    server.Drain();
    return absl::OkStatus();
  } catch (const std::system_error& error) {  // of std::thread
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot start a thread: ", error.what(),
                     "; raise the limit of threads (ulimit -u) or of memory "
                     "(ulimit -v)"));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        "out of memory; lower --slot-memory and --threads, or raise the limit "
        "of memory (ulimit -v)");
  }
}

int Main(int argc, char** argv) {
  const Environment environment = [](const std::string& name) {
    return std::getenv(name.c_str());
  };
  auto parsed = ParseCommandLine(
      std::vector<std::string>(argv + 1, argv + argc), environment);
  if (const auto* exit = std::get_if<ExitRequest>(&parsed)) {
    if (exit->code == 0) return FinishStdout("reprise-server", exit->text, 0);
    std::fputs(exit->text.c_str(), stderr);
    return exit->code;
  }
  ServerOptions options = std::get<ServerOptions>(parsed);
  SetLogLevel(options.log_level);
  SetLogFormat(options.log_format);
  signal(SIGPIPE, SIG_IGN);  // a reader of our log may go away
  signal(SIGXFSZ, SIG_IGN);  // a limit on files is an error of the store
  RaiseDescriptorLimit();

  const std::filesystem::path binary(BinaryPath());
  absl::Status status =
      ResolveDefaults(binary.parent_path().string(), environment, options);
  if (status.ok()) status = StartAndServe(options);
  if (status.ok()) return 0;
  LogError("cannot start", {{"reason", FromAbsl(status.message())}});
  return 1;
}

}  // namespace
}  // namespace reprise

int main(int argc, char** argv) {
  reprise::OpenStandardStreams();
  reprise::RestartWithEnvironment(argv);
  return reprise::Main(argc, argv);
}
