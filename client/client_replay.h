// An answer that is streamed again from its beginning, joined to what was heard
// of it before: the listener gets each part once, and is told if the two are
// not the same answer. For client_resume.cc.
#ifndef CLIENT_CLIENT_REPLAY_H_
#define CLIENT_CLIENT_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/inference.pb.h"

namespace reprise {

// Used by one thread. Texts, token ids and log-probabilities are compared bit
// by bit, for each completion by itself; log-probabilities not if the answer is
// one that was recorded, which has none.
class AnswerReplay {
 public:
  explicit AnswerReplay(uint32_t completions) : completions_(completions) {}

  // The next messages begin the answer anew. From now on its session is to be
  // at `revision` before the turn, if that is given.
  void Begin(std::optional<uint64_t> revision);

  // What of `message` is new, or nothing. DataLoss, naming what differs, if it
  // contradicts what was heard before: both servers must have the same model.
  absl::StatusOr<std::optional<v1::GenerateResponse>> Add(
      const v1::GenerateResponse& message);

  // Of the first time.
  const std::optional<v1::Started>& started() const { return started_; }
  // Every completion has ended.
  bool complete() const { return finished_ >= completions_; }

 private:
  // What was heard of a completion, and how far it has come this time.
  struct Heard {
    std::string text;
    std::vector<int32_t> token_ids;
    std::vector<std::string> logprobs;  // of each token, as bytes
    size_t text_again = 0;
    size_t token_ids_again = 0;
    size_t logprobs_again = 0;
    bool finished = false;
  };

  absl::StatusOr<bool> AddStarted(const v1::Started& started);
  absl::StatusOr<bool> AddDelta(v1::Delta& delta);
  absl::StatusOr<bool> AddFinished(const v1::Finished& finished);

  const uint32_t completions_;
  std::optional<v1::Started> started_;
  std::optional<uint64_t> revision_;
  std::map<uint32_t, Heard> heard_;  // by index
  uint32_t finished_ = 0;
};

}  // namespace reprise

#endif  // CLIENT_CLIENT_REPLAY_H_
