// What must be true of a simulation at its end.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/server/simulation.h"
#include "tests/support/reference_stop.h"

namespace reprise {
namespace {

// The session after a stop string cut the text: it ends where that ends.
ReferenceSession AfterStop(const FakeTokenizer& tokenizer,
                           const TurnRequest& request, const ReferenceStop& cut,
                           ReferenceSession session) {
  for (int32_t token : request.prompt) {
    ReferenceRemember(token, request, session);
  }
  if (!request.prompt.empty()) session.pending_text.clear();
  for (int32_t token : cut.kept) ReferenceRemember(token, request, session);
  std::string rest = cut.rest;
  if (cut.kept.empty() && !rest.empty()) {
    // The last turn began the first character, or it is a broken one (3 bytes
    // of U+FFFD).
    const std::string& begun = session.pending_text;
    if (!begun.empty()) {
      rest.erase(0, rest.starts_with(begun) ? begun.size() : 3);
    }
  }
  const auto tokens = tokenizer.Encode(rest, /*allow_special=*/true);
  for (int32_t token : *tokens) {
    ReferenceRemember(token, request, session);
  }
  if (!cut.kept.empty() || !cut.text.empty()) session.pending_text.clear();
  if (request.sampling.temperature > 0) {
    session.memory.draws += cut.kept.size();
  }
  return session;
}

std::string_view SourceName(ResumeSource source) {
  switch (source) {
    case ResumeSource::kSlot:
      return "slot";
    case ResumeSource::kMemory:
      return "memory";
    case ResumeSource::kStore:
      return "store";
    case ResumeSource::kClient:
    case ResumeSource::kPrefix:
    case ResumeSource::kNone:
      break;
  }
  return "nothing";
}

bool IsCutShort(FinishReason reason) {
  return reason == FinishReason::kCancelled ||
         reason == FinishReason::kTimeLimit;
}

template <typename Map>
typename Map::mapped_type Find(const Map& map, int32_t index) {
  const auto it = map.find(index);
  return it == map.end() ? typename Map::mapped_type() : it->second;
}

}  // namespace

// ---- Turns ------------------------------------------------------------------

// Every way in which the plain loop could have come to what a completion said,
// as the session would be then: one, or of a completion without an end, since
// its commit failed, two at most.
std::vector<ReferenceSession> Simulation::Explain(
    const Client& client, int32_t index, const ReferenceSession& base) const {
  const std::string text = Find(client.answer.texts, index);
  const std::vector<int32_t> ids = Find(client.answer.ids, index);
  const auto end = client.answer.finished.find(index);
  const bool ended = end != client.answer.finished.end();
  TurnRequest request = client.request;
  request.sampling.seed += static_cast<uint64_t>(index);
  ReferenceSession whole = base;
  const std::vector<int32_t> output = ReferenceTurn(request, whole);
  const ReferenceStop cut =
      ReferenceCut(tokenizer_, request, output, base.pending_text);
  std::vector<ReferenceSession> explained;
  if (cut.found && text == cut.text && ids == cut.kept &&
      (!ended || end->second.reason == FinishReason::kStopString)) {
    explained.push_back(AfterStop(tokenizer_, request, cut, base));
  }
  if (ended && end->second.reason == FinishReason::kStopString) {
    return explained;
  }
  if (ended && !IsCutShort(end->second.reason) &&
      (cut.found || ids.size() != output.size())) {
    return explained;
  }
  if (ids.size() > output.size() ||
      !std::equal(ids.begin(), ids.end(), output.begin())) {
    return explained;
  }
  ReferenceSession after = base;
  request.max_new_tokens = std::ssize(ids);
  ReferenceTurn(request, after);
  if (text == ReferenceText(tokenizer_, request, ids, after.pending_text)) {
    explained.push_back(std::move(after));
  }
  return explained;
}

// Whether what a completion without an end said begins what the plain loop
// says. Text may come before the last of its tokens.
bool Simulation::IsBeginning(const Client& client, int32_t index,
                             const ReferenceSession& base) const {
  TurnRequest request = client.request;
  request.sampling.seed += static_cast<uint64_t>(index);
  ReferenceSession whole = base;
  const std::vector<int32_t> output = ReferenceTurn(request, whole);
  const ReferenceStop cut =
      ReferenceCut(tokenizer_, request, output, base.pending_text);
  std::string pending = base.pending_text;
  const std::string text =
      cut.found ? cut.text
                : ReferenceText(tokenizer_, request, output, pending) +
                      ShowUnfinished(tokenizer_, pending);
  const std::vector<int32_t> ids = Find(client.answer.ids, index);
  return text.starts_with(Find(client.answer.texts, index)) &&
         ids.size() <= output.size() &&
         std::equal(ids.begin(), ids.end(), output.begin());
}

bool Simulation::Fits(const MadeRevision& made,
                      const ReferenceSession& session) const {
  const SessionRecord& record = made.record;
  if (session.tokens.empty()) {
    return record.position == 0 && !record.pending_token.has_value() &&
           made.state.Hash() == FakeState().Hash();
  }
  const auto consumed =
      std::span(session.tokens).first(session.tokens.size() - 1);
  return record.position == std::ssize(consumed) &&
         record.pending_token == session.tokens.back() &&
         record.sampler.draws == session.memory.draws &&
         record.pending_text == session.pending_text &&
         made.state.Hash() == ReferenceState(consumed).Hash();
}

const ReferenceSession& Simulation::ReferenceOf(int64_t made) const {
  static const ReferenceSession kEmpty;
  return made < 0 ? kEmpty : references_[Index(made)];
}

// The history from its beginning: each revision is what its turn said, from the
// revision before, or what the one that it was copied from is.
void Simulation::CheckHistory() {
  for (int64_t i = 0; i < std::ssize(store_.history()); ++i) {
    const MadeRevision& made = Made(i);
    SCOPED_TRACE("revision " + std::to_string(made.revision) + " of " +
                 made.key.tenant + "/" + made.key.id);
    Trace(made.state.Hash());
    if (made.by != MadeBy::kTurn) {
      references_.push_back(ReferenceOf(made.from));
      EXPECT_TRUE(Fits(made, references_.back()));
      continue;
    }
    ASSERT_GE(made.client, 0);
    const Client& client = clients_[Index(made.client)];
    const auto end = client.answer.finished.find(0);
    EXPECT_TRUE(client.request.commit);
    if (end != client.answer.finished.end()) {
      EXPECT_EQ(end->second.revision, made.revision);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(*client.answer.status));
      EXPECT_GT(store_.lost_answers(), 0);
      ++tally_["stored without an answer"];
    }
    ReferenceSession after = ReferenceOf(made.before);
    bool fits = false;
    for (ReferenceSession& session :
         Explain(client, /*index=*/0, ReferenceOf(made.before))) {
      if (!fits && Fits(made, session)) {
        fits = true;
        after = std::move(session);
      }
    }
    EXPECT_TRUE(fits) << "what is stored is not what was said";
    references_.push_back(std::move(after));
    ++tally_["revisions"];
  }
}

// What a turn said follows from the session as it began; and it was committed
// if it was to be, and only then.
void Simulation::CheckClient(const Client& client) {
  const Answer& answer = client.answer;
  if (!answer.started.has_value()) return;
  if (client.repeated) return CheckRepeated(client);
  const ReferenceSession& base = ReferenceOf(client.base);
  const int64_t cached = answer.started->cached_tokens;
  if (answer.started->resumed_from == ResumeSource::kPrefix) {
    EXPECT_TRUE(base.tokens.empty());
    EXPECT_EQ(cached % 64, 0);
    EXPECT_LT(cached, std::ssize(client.request.prompt));
    ++tally_["prefix"];
  } else {
    EXPECT_EQ(cached, std::max<int64_t>(0, std::ssize(base.tokens) - 1));
  }
  for (int32_t i = 0; i < client.request.n; ++i) {
    const std::vector<ReferenceSession> explained = Explain(client, i, base);
    const auto end = answer.finished.find(i);
    if (end == answer.finished.end()) {
      EXPECT_TRUE(!explained.empty() || IsBeginning(client, i, base));
      continue;
    }
    ASSERT_FALSE(explained.empty()) << "the answer is not the plain loop's";
    const FinishReason reason = end->second.reason;
    const std::optional<uint64_t> revision = end->second.revision;
    if (!client.request.commit) {
      EXPECT_FALSE(revision.has_value());
      continue;
    }
    const bool keep =
        reason != FinishReason::kCancelled || client.request.keep_on_cancel;
    const bool added = explained[0].tokens.size() > base.tokens.size();
    // Of a turn that was cut short without a token nobody knows whether its
    // prompt had been read.
    const bool known = !IsCutShort(reason) || answer.ids.contains(i);
    if (!keep || !added) {
      EXPECT_FALSE(revision.has_value());
    } else if (known) {
      EXPECT_TRUE(revision.has_value());
    }
    if (!revision.has_value()) continue;
    // It is in the history, which knows whose it is.
    const auto made =
        std::ranges::find_if(store_.history(), [&](const MadeRevision& made) {
          return made.key == client.request.session &&
                 made.revision == *revision && made.before == client.base &&
                 made.by == MadeBy::kTurn;
        });
    EXPECT_TRUE(made != store_.history().end()) << "a commit was lost";
  }
}

// It is told what the first was told, or would have been.
void Simulation::CheckRepeated(const Client& client) {
  const Answer& answer = client.answer;
  EXPECT_EQ(*client.answer.status, absl::OkStatus());
  EXPECT_EQ(answer.started->repeated_seed, client.request.sampling.seed);
  ASSERT_TRUE(answer.finished.contains(0));
  const FinishedEvent& end = answer.finished.at(0);
  // The session may be further on by now, or another one.
  const auto is_first = [&](const MadeRevision& made) {
    if (made.client < 0 || made.key != client.request.session) return false;
    const Client& other = clients_[Index(made.client)];
    const RequestIdentity& request = other.request.acquire.request;
    const Answer& first = other.answer;
    const auto first_end = first.finished.find(0);
    return made.revision == end.revision &&
           request.id == client.request.acquire.request.id &&
           request.fingerprint == client.request.acquire.request.fingerprint &&
           first.texts == answer.texts && first.ids == answer.ids &&
           first.started->revision == answer.started->revision &&
           first.started->cached_tokens == answer.started->cached_tokens &&
           (first_end == first.finished.end() ||
            (first_end->second.reason == end.reason &&
             first_end->second.matched_stop == end.matched_stop));
  };
  EXPECT_TRUE(std::ranges::any_of(store_.history(), is_first))
      << "nobody was told that";
}

void Simulation::CheckStatus(const Client& client) {
  ASSERT_TRUE(client.answer.status.has_value());
  const absl::Status& status = *client.answer.status;
  const Answer& answer = client.answer;
  ++tally_[absl::StatusCodeToString(status.code())];
  Trace(static_cast<uint64_t>(status.code()));
  for (const auto& [index, ids] : answer.ids) {
    for (const int32_t id : ids) Trace(static_cast<uint64_t>(id));
  }
  for (const auto& [index, end] : answer.finished) {
    Trace(static_cast<uint64_t>(end.reason));
    Trace(end.revision.value_or(0));
    ++tally_[std::string(FinishReasonName(end.reason)) +
             (end.revision ? " kept" : "")];
  }
  if (status.ok()) {
    EXPECT_TRUE(answer.started.has_value());
    EXPECT_EQ(std::ssize(answer.finished), client.request.n);
    return;
  }
  using absl::StatusCode;
  const StatusCode allowed[] = {
      StatusCode::kCancelled,         StatusCode::kDeadlineExceeded,
      StatusCode::kAborted,           StatusCode::kUnavailable,
      StatusCode::kResourceExhausted, StatusCode::kInvalidArgument,
      StatusCode::kNotFound};
  EXPECT_EQ(std::ranges::count(allowed, status.code()), 1) << status;
  if (absl::IsNotFound(status)) {
    EXPECT_TRUE(client.request.preset.has_value() ||
                !client.request.acquire.create);
  }
}

// ---- Slots and states -------------------------------------------------------

// Nothing runs, so each slot is free or a session is in it.
void Simulation::CheckSlots() {
  int64_t resident = 0;
  for (const auto& [key, current] : store_.sessions()) {
    const auto info = sessions_->Get(key);
    if (!info.ok()) {
      EXPECT_TRUE(absl::IsNotFound(info.status())) << info.status();
      // It has expired, and nobody has looked at it since.
      EXPECT_LT(Live(key), 0);
      continue;
    }
    EXPECT_NE(info->place, SessionPlace::kActive);
    resident += info->place == SessionPlace::kResident ? 1 : 0;
  }
  EXPECT_LE(sessions_->num_free_slots() + resident, sessions_->num_slots());
  sessions_->Sweep();  // those that have expired may be in a slot
  resident = 0;
  for (const auto& [key, current] : store_.sessions()) {
    const auto info = sessions_->Get(key);
    ASSERT_TRUE(info.ok()) << info.status();
    resident += info->place == SessionPlace::kResident ? 1 : 0;
  }
  EXPECT_EQ(sessions_->num_free_slots() + resident, sessions_->num_slots());
}

// From wherever it is, and then from the store after a restart, each session
// comes back as the one that was never put away.
void Simulation::CheckResumes() {
  for (const bool restarted : {false, true}) {
    if (restarted) Restart();
    for (const auto& [key, current] : store_.sessions()) {
      absl::StatusOr<SessionLease> lease = sessions_->Acquire(key, {});
      ASSERT_TRUE(lease.ok()) << lease.status();
      ++tally_["resumed from " + std::string(SourceName(lease->source()))];
      MadeRevision resumed;
      resumed.record = lease->record();
      resumed.state = engine_.Load(lease->slot());
      EXPECT_TRUE(Fits(resumed, ReferenceOf(current)));
      EXPECT_EQ(resumed.record.revision, Made(current).revision);
    }
  }
  sessions_->SuspendAll();
  EXPECT_EQ(sessions_->num_free_slots(), sessions_->num_slots());
}

}  // namespace reprise
