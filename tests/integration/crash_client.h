// A client of a server that may be killed at any moment: makes traffic, keeps a
// record, and checks a server against it.
#ifndef TESTS_INTEGRATION_CRASH_CLIENT_H_
#define TESTS_INTEGRATION_CRASH_CLIENT_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/integration/crash_record.h"
#include "tests/integration/crash_reference.h"
#include "tests/support/server_process.h"

namespace reprise {

// Where a call is, as its client sees it.
enum class CrashPhase {
  kBetweenCalls,
  kSent,        // nothing came back yet
  kStarted,     // a turn's Started came
  kStreaming,   // its first token
  kCommitting,  // its last token; not Finished yet
  kOtherCall,   // a fork, import, rewind, delete or suspend
};
inline constexpr int kNumCrashPhases = 6;
inline constexpr std::array<const char*, kNumCrashPhases> kCrashPhaseNames = {
    "between calls", "sent", "started", "streaming", "committing", "other"};

// What the clients and the killer share.
struct CrashScene {
  std::atomic<bool> killed{false};
  // How often a call came to each phase.
  std::array<std::atomic<int>, kNumCrashPhases> reached{};
};

// What was seen; to be shown, and so that a test that checks nothing is found
// out.
struct CrashCounts {
  int turns = 0, forks = 0, imports = 0, rewinds = 0, deletes = 0;
  int cancels = 0;
  int in_doubt = 0;   // calls that were in flight at a kill
  int committed = 0;  // of those, turns and others that had been carried out
  int repeated = 0;   // turns that were sent again and had been
  int compared = 0;   // continuations

  void Add(const CrashCounts& other);
};

class CrashClient {
 public:
  CrashClient(int number, uint64_t seed,
              const std::vector<uint32_t>& prompt_tokens)
      : number_(number), random_(seed), prompt_tokens_(prompt_tokens) {}

  // Calls the server until it is gone.
  void MakeTraffic(const ServerProcess& server, CrashScene& scene);
  CrashPhase phase() const { return phase_; }

  // Compares every session with the record; finds out what became of calls in
  // flight, turns with a request_id by sending them again, half of the time.
  void Check(const ServerProcess& server, CrashReference& reference);
  // Ids that are there.
  std::vector<std::string> Sessions() const;

  const CrashCounts& counts() const { return counts_; }

 private:
  // Each makes a call; false if the server is gone.
  bool Step();
  bool Turn(const std::string& id, CrashRecord& record, bool cancel);
  bool Append(const std::string& id, CrashRecord& record);
  bool Fork(const std::string& id, const CrashRecord& record);
  bool Rewind(const std::string& id, CrashRecord& record);
  bool Delete(const std::string& id, CrashRecord& record);
  bool Suspend(const std::string& id);
  // Asks what became of a turn that was cancelled.
  bool Look(const std::string& id, CrashRecord& record);

  // Whether the call is over, well or badly; false if the server is gone.
  bool Ended(const grpc::Status& status, const char* call);
  void Enter(CrashPhase phase);
  CrashTurn DrawTurn();
  void SendAgain(const std::string& id, CrashRecord& record,
                 CrashReference& reference);
  void SettleByGet(const std::string& id, CrashRecord& record);
  void Compare(const std::string& id, const CrashRecord& record,
               CrashReference& reference);

  const int number_;
  std::mt19937_64 random_;
  const std::vector<uint32_t>& prompt_tokens_;
  int sessions_made_ = 0;
  int requests_made_ = 0;
  std::map<std::string, CrashRecord> sessions_;
  CrashCounts counts_;
  std::atomic<CrashPhase> phase_{CrashPhase::kBetweenCalls};

  // Of the server at hand.
  CrashScene* scene_ = nullptr;
  std::unique_ptr<v1::Inference::Stub> inference_;
  std::unique_ptr<v1::Sessions::Stub> calls_;
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_CRASH_CLIENT_H_
