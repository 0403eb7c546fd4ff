// One completion being computed: which tokens its state is fed next, what is
// sampled, which text may be shown, and when it ends.
//
//   prompt --> decode --> ended
//                |          ^
//                +- repair -+
//
//  * prompt: the pending token, if there is one, and the prompt are prefilled,
//    all but the last, which is the pending token then.
//  * decode: the pending token is fed and the next one sampled.
//  * repair: a stop string cut the text; the copy is fed what remains of it.
//
// Tokens and log-probabilities are shown with their text; those of a token that
// a stop string cuts through are not. The copy is taken before each step at
// which nothing is held back and no character is unfinished: a match may begin
// in the token that this step samples, and the state must then end before it.
// It is made for turns with stop strings that keep their state.
#ifndef SERVER_SEQUENCE_H_
#define SERVER_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/engine.h"
#include "engine/sampler.h"
#include "engine/state/state_copy.h"
#include "engine/state/state_layout.h"
#include "engine/tokenizer.h"
#include "server/held_text.h"
#include "server/session_lease.h"
#include "server/stop_strings.h"
#include "server/token_stream.h"
#include "server/turn_request.h"

namespace reprise {

// Used by the scheduler's thread only, but for Sample.
class Sequence {
 public:
  // `request` and `tokenizer` must outlive the sequence. CHECKs that there is
  // a token to start from: the session's or the prompt's. A state without a
  // pending token has consumed that many tokens of the prompt. `save`: at which
  // positions, ascending, the state is to be looked at.
  Sequence(const TurnRequest& request, const Tokenizer& tokenizer,
           const StateLayout& layout, SessionLease lease,
           std::vector<int64_t> save = {});
  ~Sequence();

  // The `index`-th completion of the same prompt, in a slot of its own. Call
  // it on the first completion, when the prompt was just read.
  std::unique_ptr<Sequence> Fork(int32_t index, SessionLease lease);

  bool ended() const { return stage_ == Stage::kEnded; }
  bool prompt_read() const { return prompt_read_; }
  bool repairing() const { return stage_ == Stage::kRepair; }
  bool decoding() const { return stage_ == Stage::kDecode; }
  // Tokens to be prefilled before one is sampled or the state looked at.
  int64_t prefill_tokens() const;
  StepSegment NextSegment(int64_t rows);  // valid until Advance
  // Of one that decodes, after its step and once before Advance: chooses its
  // next token. Safe for several sequences at once, each with its own sampler.
  void Sample(std::span<float> logits, Sampler& sampler);
  // The step has moved the state on by `rows`, and the token is chosen. For a
  // prompt `logits` has one row for each that NextSegment asked for.
  void Advance(int64_t rows, MatrixView<float> logits);
  // After Advance: whether the state is where `save` says; once for each.
  bool TakeSavePoint(int64_t* tokens, const std::byte** slot);
  // Ends it from outside. What was held back is text now. With `keep`, what was
  // read and sampled joins the session, unless the prompt was not wholly read.
  void Interrupt(FinishReason reason, bool keep);

  // What there is to be shown, once: text, tokens, log-probabilities.
  bool has_delta() const;
  DeltaEvent TakeDelta();
  std::vector<SampledToken> TakePromptLogprobs();
  // Not OK if it ended because it could not go on.
  const absl::Status& status() const { return status_; }
  int32_t index() const { return index_; }
  int64_t generated() const { return generated_; }  // tokens sampled
  FinishReason reason() const { return reason_; }
  const std::string& matched_stop() const { return matched_stop_; }
  std::optional<int32_t> matched_token() const { return matched_token_; }

  // After the end: whether there is a new revision to commit, or a state to
  // give to the client, and the lease to do so with or to drop.
  bool to_commit() const;
  bool to_seal() const;
  SessionLease TakeLease() { return std::move(lease_); }

 private:
  enum class Stage { kPrompt, kDecode, kRepair, kEnded };

  struct Copy;  // where the sequence goes back to
  Sequence(const Sequence& first, int32_t index, SessionLease lease);

  bool keeps_session() const;
  bool changed() const;
  void StartFeed(Stage stage, std::vector<int32_t> tokens, size_t first_new);
  void AdvanceFeed(int64_t rows, MatrixView<float> logits);
  bool ScorePrompt(MatrixView<float> logits);
  void EndFeed();
  void KeepCopy();
  void Accept(SampledToken sampled);
  bool EndsTurn(int32_t token);
  void StopAt(const StopMatch& match);
  void GoBack(size_t kept, size_t cut);
  void End(FinishReason reason);
  void Fail(absl::Status status);  // ends it; the session stays as it was

  const TurnRequest& request_;
  const Tokenizer& tokenizer_;
  const StateLayout& layout_;
  SamplingParams sampling_;      // with the completion's own seed
  std::vector<int32_t> banned_;  // until there are min_new_tokens
  SessionLease lease_;
  StreamDecoder decoder_;
  int32_t index_ = 0;
  size_t prefix_ = 0;  // tokens of the prompt that the state began with
  int64_t start_position_ = 0;
  bool had_pending_ = false;

  Stage stage_ = Stage::kPrompt;
  bool prompt_read_ = false;
  std::vector<int32_t> feed_;  // to be prefilled, all but the last
  size_t fed_ = 0;
  size_t first_new_ = 0;       // in feed_; the session has those before it
  std::vector<int64_t> save_;  // positions, those that come

  std::optional<SampledToken> sampled_;  // for the step at hand
  int64_t generated_ = 0;
  HeldText held_;               // since the copy
  std::unique_ptr<Copy> copy_;  // if there is something to go back for
  std::vector<SampledToken> prompt_logprobs_;  // not yet shown

  FinishReason reason_ = FinishReason::kStop;
  std::string matched_stop_;
  std::optional<int32_t> matched_token_;
  bool discard_ = false;
  absl::Status status_;
};

}  // namespace reprise

#endif  // SERVER_SEQUENCE_H_
