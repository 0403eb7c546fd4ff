// One random schedule of everything that can happen to sessions: turns of every
// kind, cancels, slow readers, the calls of the Sessions service, passing time,
// a failing store, restarts; tasks in any order, and others' work in the middle
// of store calls. All of it follows from a seed.
//
// What must come of it is told by a model that shares no code with the server:
// sessions are lists of tokens, a turn is a plain loop over them, and the
// history of what was written is kept under the faults of the store
// (simulated_store.h).
#ifndef TESTS_SERVER_SIMULATION_H_
#define TESTS_SERVER_SIMULATION_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "server/scheduler.h"
#include "server/session_manager.h"
#include "tests/server/simulated_store.h"
#include "tests/support/answer.h"
#include "tests/support/fake_clock.h"
#include "tests/support/fake_engine.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/manual_executor.h"
#include "tests/support/reference_completion.h"

namespace reprise {

// How often what happened, over all runs: none of it may be missing.
using SimulationTally = std::map<std::string, int>;

class Simulation {
 public:
  Simulation(uint64_t seed, SimulationTally& tally);
  ~Simulation();

  // Runs the schedule and checks, with EXPECT, all that came of it.
  void Run();
  uint64_t trace() const { return trace_; }  // a hash of all that came of it

 private:
  // One request and what has been seen of its answer.
  struct Client {
    TurnRequest request;
    std::shared_ptr<TokenStream> stream;
    Answer answer;
    // What the session was when the turn began; none: it did not exist.
    int64_t base = -1;
    bool repeated = false;
    bool settled = false;  // it cannot have a lease, now or later
  };
  // What a call of the Sessions service met.
  struct Called {
    absl::StatusCode code = absl::StatusCode::kOk;
    bool clean = false;  // no fault, and nobody else's work in between
    std::vector<int64_t> made;
  };

  int64_t Below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(n));
  }
  void Trace(uint64_t value) { trace_ = MixBits(trace_ ^ value); }
  Client& AnyClient() { return clients_[Index(Below(std::ssize(clients_)))]; }
  SessionKey AnyKey();
  static size_t Index(int64_t i) { return static_cast<size_t>(i); }
  const MadeRevision& Made(int64_t i) const {
    return store_.history()[Index(i)];
  }

  // -- simulation.cc: what happens --
  void Start();
  void Act();
  void Submit();
  TurnRequest NewRequest();
  std::optional<TurnRequest> OldRequest();
  void Begun(int64_t index);
  void Round();
  void Task();
  void Interleave();
  void Restart();
  void Finish();

  // -- simulation_calls.cc: the Sessions service, each call with its checks --
  template <typename Call>
  Called Do(SimulatedStore::Purpose purpose, const SessionKey& claimed,
            bool for_turn, const Call& call);
  void CallSessions();
  void Create(const SessionKey& key);
  void Fork(const SessionKey& from, const SessionKey& to);
  void Rewind(const SessionKey& key);
  void Suspend(const SessionKey& key);
  void Delete(const SessionKey& key);
  void Touch(const SessionKey& key);
  void Get(const SessionKey& key);
  void List(const std::string& tenant);
  void Sweep();
  void CheckCode(const char* name, const Called& called,
                 absl::StatusCode expected, bool busy);
  void CheckMade(const Called& called, MadeBy by);
  std::optional<uint64_t> AnyExpectedRevision(const SessionKey& key);
  int64_t Live(const SessionKey& key) const;  // -1 if it is not there
  bool Busy(const SessionKey& key) const;     // whether a turn may have it

  // -- simulation_checks.cc: at the end --
  std::vector<ReferenceSession> Explain(const Client& client, int32_t index,
                                        const ReferenceSession& base) const;
  bool IsBeginning(const Client& client, int32_t index,
                   const ReferenceSession& base) const;
  bool Fits(const MadeRevision& made, const ReferenceSession& session) const;
  const ReferenceSession& ReferenceOf(int64_t made) const;
  void CheckHistory();
  void CheckClient(const Client& client);
  void CheckRepeated(const Client& client);
  void CheckStatus(const Client& client);
  void CheckSlots();
  void CheckResumes();

  std::mt19937_64 random_;
  SimulationTally& tally_;
  uint64_t trace_ = 0;

  FakeClock clock_;
  FakeEngine engine_;
  FakeTokenizer tokenizer_;
  SimulatedStore store_;
  ManualExecutor executor_;
  SessionManagerOptions session_options_;
  SchedulerOptions scheduler_options_;
  std::unique_ptr<SessionManager> sessions_;
  std::unique_ptr<Scheduler> scheduler_;

  std::deque<Client> clients_;
  std::vector<ReferenceSession> references_;  // of the history
  uint64_t num_requests_ = 0;                 // with an id
  // How deep in others' store calls, and what for.
  int depth_ = 0;
  bool claimed_for_turn_ = true;
  SessionKey claimed_;
  int64_t interleaved_ = 0;
};

}  // namespace reprise

#endif  // TESTS_SERVER_SIMULATION_H_
