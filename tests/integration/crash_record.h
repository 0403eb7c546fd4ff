// What a client of a server that is killed knows of its sessions: what was
// acknowledged, and what it did not hear the end of.
#ifndef TESTS_INTEGRATION_CRASH_RECORD_H_
#define TESTS_INTEGRATION_CRASH_RECORD_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/inference.pb.h"
#include "tests/support/generate_call.h"

namespace reprise {

// Prompts of the traffic, and how many tokens each has.
inline const std::vector<std::string> kCrashPrompts = {
    "In the beginning", " And Moses said unto the people,", " Behold,",
    " And it came to pass, when he had made an end of speaking,"};

// One turn. With `tokens` 0 it is an Append.
struct CrashTurn {
  size_t prompt = 0;
  uint64_t seed = 0;
  uint32_t tokens = 0;
};

// A state of a conversation, as the turns that lead to it. The empty one is
// that of a session without a token.
using Lineage = std::vector<CrashTurn>;
std::string ToString(const Lineage& lineage);

v1::GenerateRequest RequestOf(const std::string& session,
                              const CrashTurn& turn);

// A call whose answer is not known yet.
struct PendingCall {
  enum class Kind { kTurn, kRewind, kFork, kDelete };
  Kind kind = Kind::kTurn;
  CrashTurn turn = {};          // kTurn
  std::string request_id = {};  // kTurn; or empty
  // kRewind, kFork: the state it makes; kFork: at this revision.
  Lineage lineage = {};
  uint64_t revision = 0;
};

// One session. Its first commit makes it.
class CrashRecord {
 public:
  // `prompt_tokens` are those of kCrashPrompts, and must outlive the record.
  explicit CrashRecord(const std::vector<uint32_t>& prompt_tokens)
      : prompt_tokens_(&prompt_tokens) {}

  bool exists() const { return exists_; }
  uint64_t revision() const { return revision_; }
  const Lineage& lineage() const { return states_.at(revision_); }
  // Revisions that can be gone back to, and what they were.
  const std::map<uint64_t, Lineage>& states() const { return states_; }
  const std::optional<PendingCall>& pending() const { return pending_; }

  void Begin(PendingCall call) { pending_ = std::move(call); }
  // The pending call was answered: the session is at this revision now (not
  // kDelete). Returns what is wrong with that, or nothing.
  std::string Acknowledge(uint64_t revision);
  // Nothing was done.
  void Refused() { pending_.reset(); }

  // What the server says of the session when no call is in flight, null if
  // that there is none: as before the pending call, or as after it. Returns
  // what is wrong with it, or nothing.
  std::string Settle(const v1::Session* session);

 private:
  void Become(uint64_t revision, const Lineage& lineage);
  uint64_t NumTokens(const Lineage& lineage) const;

  const std::vector<uint32_t>* prompt_tokens_;
  bool exists_ = false;
  uint64_t revision_ = 0;
  std::map<uint64_t, Lineage> states_ = {{0, {}}};
  std::optional<PendingCall> pending_;
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_CRASH_RECORD_H_
