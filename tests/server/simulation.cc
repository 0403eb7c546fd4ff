#include "tests/server/simulation.h"

#include <gtest/gtest.h>

#include <utility>

namespace reprise {
namespace {

// Shared by all runs, to save the time of making them.
Metrics& SharedMetrics() {
  static Metrics metrics("simulation");
  return metrics;
}

FakeEngine::Options EngineWith(int64_t max_rows) {
  FakeEngine::Options options;
  options.max_rows = max_rows;
  return options;
}

}  // namespace

Simulation::Simulation(uint64_t seed, SimulationTally& tally)
    : random_(seed),
      tally_(tally),
      engine_(EngineWith(128 + Below(400))),
      store_(engine_, clock_, seed) {
  constexpr int64_t kSomeSnapshots = 1000;
  session_options_.num_slots = 2 + Below(4);
  session_options_.memory_tier_bytes =
      Below(3) == 0 ? 0 : (Below(2) == 0 ? kSomeSnapshots : 1 << 20);
  session_options_.idle_timeout_ms = 50;
  session_options_.checkpoint_bytes =
      Below(3) == 0 ? 0 : (Below(2) == 0 ? kSomeSnapshots : 1 << 20);
  scheduler_options_.max_running = 1 + Below(8);
  scheduler_options_.prefill_rows = 1 + Below(200);
  scheduler_options_.max_queued = 6;
  scheduler_options_.queue_timeout_ms = 300;
  scheduler_options_.slow_reader_timeout_ms = 200;
  scheduler_options_.prefix_cache_bytes = Below(2) == 0 ? 0 : 1 << 12;
  store_.in_call = [this] { Interleave(); };
  Start();
}

Simulation::~Simulation() {
  executor_.RunAll();
  scheduler_.reset();
}

void Simulation::Start() {
  auto manager = SessionManager::Create(
      engine_.info().fingerprints, engine_.layout(), engine_.info().vocab_size,
      store_, SharedMetrics(), clock_, session_options_);
  CHECK(manager.ok());
  sessions_ = *std::move(manager);
  scheduler_ =
      std::make_unique<Scheduler>(engine_, tokenizer_, *sessions_, executor_,
                                  SharedMetrics(), clock_, scheduler_options_);
}

void Simulation::Run() {
  const int64_t actions = 60 + Below(240);
  for (int64_t i = 0; i < actions; ++i) Act();
  Finish();
  CheckSlots();
  for (const Client& client : clients_) CheckStatus(client);
  CheckHistory();
  for (const Client& client : clients_) CheckClient(client);
  CheckResumes();
  Trace(random_());
}

// ---- What happens -----------------------------------------------------------

SessionKey Simulation::AnyKey() {
  static const SessionKey kKeys[] = {{"one", "a"}, {"one", "b"}, {"two", "a"}};
  return kKeys[Below(std::ssize(kKeys))];
}

void Simulation::Act() {
  const int64_t dice = Below(1000);
  if (dice < 120 || clients_.empty()) return Submit();
  if (dice < 450) {
    Round();
  } else if (dice < 640) {
    Task();
  } else if (dice < 790) {
    Client& client = AnyClient();
    client.answer.Read(*client.stream);
  } else if (dice < 815) {
    AnyClient().stream->Cancel(static_cast<CancelCause>(Below(5)));
  } else if (dice < 920) {
    CallSessions();
  } else if (dice < 960) {
    clock_.AdvanceMs(Below(4) == 0 ? 100 : 5);
  } else if (dice < 997) {
    store_.FailWithProbability(Below(3) == 0 ? 0.2 : 0);
  } else {
    Restart();
  }
}

void Simulation::Submit() {
  const int64_t index = std::ssize(clients_);
  Client client;
  std::optional<TurnRequest> old = OldRequest();
  client.request = old.has_value() ? *std::move(old) : NewRequest();
  client.stream = std::make_shared<TokenStream>(1 + Below(20));
  client.stream->SetWakeup([this, index] { Begun(index); });
  clients_.push_back(std::move(client));
  const absl::Status status =
      scheduler_->Submit(clients_.back().request, clients_.back().stream);
  Trace(static_cast<uint64_t>(status.code()));
  if (status.ok()) return;
  clients_.pop_back();
  EXPECT_TRUE(absl::IsResourceExhausted(status) ||
              absl::IsInvalidArgument(status))
      << status;
}

TurnRequest Simulation::NewRequest() {
  TurnRequest request;
  const SessionKey key = AnyKey();
  const int64_t start = Below(8);
  request.tenant = key.tenant;
  if (start == 0) {
    request.preset = PresetKey(key.tenant, "p" + std::to_string(Below(3)));
  } else if (start > 1) {
    request.session = key;
    request.acquire.create = Below(8) != 0;
    request.acquire.expected_revision = AnyExpectedRevision(key);
  }
  request.prompt.resize(Index(Below(4) == 0 ? Below(200) : Below(5)));
  // Beginnings that many have.
  const bool common = Below(4) != 0;
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    request.prompt[i] = static_cast<int32_t>(
        common && i < 150 ? (i * 7 + 3) % 32 : Index(Below(32)));
  }
  request.max_new_tokens = Below(25);
  request.want_token_ids = true;
  request.sampling.seed = random_();
  request.sampling.temperature = Below(2) ? 1 : 0;
  request.sampling.repetition_penalty = Below(2) ? 1 : 1.3f;
  request.min_new_tokens = Below(4);
  if (Below(2)) request.eos_tokens = {FakeTokenizer::kEos};
  if (Below(3) == 0) request.stop_tokens = {5};
  if (Below(2)) request.stop = {"ab", "c", "d\n"};
  request.include_stop = Below(2);
  request.commit = request.session.has_value() && Below(5) != 0;
  request.acquire.commit = request.commit;
  request.keep_on_cancel = Below(2);
  if (!request.commit) request.n = static_cast<int32_t>(1 + Below(2));
  if (Below(4) == 0) request.time_limit_ms = Below(100);
  if (request.commit && Below(3) == 0) {
    request.acquire.request = {.id = "r" + std::to_string(num_requests_++),
                               .fingerprint = random_()};
  }
  return request;
}

// A request that was made before, once in a while another one under its id.
std::optional<TurnRequest> Simulation::OldRequest() {
  if (clients_.empty() || Below(4) != 0) return std::nullopt;
  const Client& client = AnyClient();
  if (client.request.acquire.request.id.empty()) return std::nullopt;
  TurnRequest request = client.request;
  request.arrival_ns = 0;
  if (Below(5) == 0) ++request.acquire.request.fingerprint;
  return request;
}

// The first event is there: the turn has its lease now, unless it was carried
// out before. Called for other events too.
void Simulation::Begun(int64_t index) {
  Client& client = clients_[Index(index)];
  if (client.answer.started.has_value()) return;
  client.answer.Read(*client.stream);
  if (!client.answer.started.has_value()) return;
  const StartedEvent& started = *client.answer.started;
  if (client.request.preset.has_value()) {
    client.base = store_.Current(*client.request.preset);
    EXPECT_GE(client.base, 0);
    return;
  }
  if (!client.request.session.has_value()) return;
  const SessionKey& key = *client.request.session;
  client.repeated = started.repeated_seed.has_value();
  if (client.repeated) {
    ++tally_["repeated"];
    return;
  }
  client.base = store_.Current(key);
  const uint64_t revision = client.base < 0 ? 0 : Made(client.base).revision;
  EXPECT_EQ(started.revision, revision) << "another state than what is stored";
  if (const auto& expected = client.request.acquire.expected_revision) {
    EXPECT_EQ(revision, *expected) << "a revision check is missing";
  }
  EXPECT_FALSE(store_.writers.contains(key)) << "two turns have one session";
  // With several completions, when the lease ends cannot be told from outside.
  if (client.request.n == 1) store_.writers[key] = {index, client.base};
}

// ---- Threads ----------------------------------------------------------------

void Simulation::Round() {
  scheduler_->RunOnce();
  std::erase_if(store_.writers, [this](const auto& writer) {
    return clients_[Index(writer.second.client)].stream->closed();
  });
  const bool idle = scheduler_->idle();
  for (Client& client : clients_) {
    client.settled |=
        client.stream->closed() && (idle || client.answer.started.has_value());
  }
}

void Simulation::Task() {
  const auto waiting = static_cast<int64_t>(executor_.waiting());
  if (waiting == 0) return;
  store_.purpose = {.by = MadeBy::kTurn};
  const bool outer = claimed_for_turn_;
  claimed_for_turn_ = true;
  ++depth_;
  executor_.RunTask(Index(Below(waiting)));
  --depth_;
  claimed_for_turn_ = outer;
}

// In the middle of a store call. Whoever makes it may have claimed a session
// for upkeep: others wait for that, so only what waits for nobody may happen.
void Simulation::Interleave() {
  if (depth_ != 1 || Below(6) != 0) return;
  ++interleaved_;
  ++depth_;
  const int64_t dice = claimed_for_turn_ ? Below(4) : 0;
  if (dice == 0) Round();
  if (dice == 1) Task();
  if (dice == 2) CallSessions();
  if (dice == 3) AnyClient().stream->Cancel(CancelCause::kClient);
  --depth_;
}

// ---- Ends -------------------------------------------------------------------

// In an orderly way, or as after kill -9, when nothing runs any more that was
// begun. The streams are read to their ends all the same: what they say must be
// true, but their clients were never told.
void Simulation::Restart() {
  const bool crash = Below(2) == 0;
  ++tally_[crash ? "crash" : "restart"];
  if (crash) {
    executor_.DropAll();
  } else {
    while (executor_.waiting() > 0) Task();
  }
  scheduler_.reset();
  for (Client& client : clients_) client.settled = true;
  store_.writers.clear();
  sessions_.reset();
  store_.FailWithProbability(0);
  Start();
}

void Simulation::Finish() {
  store_.FailWithProbability(0);
  for (int i = 0; i < 100'000 && !scheduler_->idle(); ++i) {
    for (Client& client : clients_) client.answer.Read(*client.stream);
    if (executor_.waiting() > 0) {
      Task();
    } else {
      const int64_t steps = engine_.steps;
      Round();
      if (steps == engine_.steps) clock_.AdvanceMs(1);
    }
  }
  EXPECT_TRUE(scheduler_->idle());
  for (Client& client : clients_) client.answer.Read(*client.stream);
}

}  // namespace reprise
