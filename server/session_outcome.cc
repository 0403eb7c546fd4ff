#include "server/session_outcome.h"

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr uint8_t kOutcomeVersion = 1;

// The numbers are written to stores, whatever the order of the enum.
constexpr FinishReason kReasons[] = {
    FinishReason::kStop,   FinishReason::kStopToken, FinishReason::kStopString,
    FinishReason::kLength, FinishReason::kTimeLimit, FinishReason::kCancelled,
};

uint8_t ReasonNumber(FinishReason reason) {
  uint8_t number = 0;
  while (kReasons[number] != reason) ++number;
  return number;
}

absl::Status Damaged(std::string_view why) {
  return absl::DataLossError(
      absl::StrCat("recorded outcome of a turn: ", ToAbsl(why)));
}

absl::StatusOr<TurnOutcome> ReadFields(ByteReader& reader) {
  TurnOutcome outcome;
  ASSIGN_OR_RETURN(const uint8_t reason, reader.Get<uint8_t>());
  if (reason >= std::size(kReasons)) return Damaged("unknown reason");
  outcome.reason = kReasons[reason];
  ASSIGN_OR_RETURN(const std::string_view stop, reader.GetSized());
  outcome.matched_stop = std::string(stop);
  ASSIGN_OR_RETURN(const uint8_t has_token, reader.Get<uint8_t>());
  ASSIGN_OR_RETURN(const int32_t token, reader.Get<int32_t>());
  if (has_token != 0) outcome.matched_token = token;
  ASSIGN_OR_RETURN(outcome.usage.prompt_tokens, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(outcome.usage.cached_tokens, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(outcome.usage.completion_tokens, reader.Get<int64_t>());
  ASSIGN_OR_RETURN(outcome.seed, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(outcome.revision_before, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(outcome.answer_bytes, reader.Get<uint64_t>());
  ASSIGN_OR_RETURN(const std::string_view text, reader.GetSized());
  outcome.text = std::string(text);
  while (reader.remaining() > 0) {
    ASSIGN_OR_RETURN(const int32_t id, reader.Get<int32_t>());
    outcome.token_ids.push_back(id);
  }
  return outcome;
}

}  // namespace

void TurnOutcome::Add(std::string_view more_text,
                      const std::vector<int32_t>& more_ids) {
  answer_bytes += more_text.size() + more_ids.size() * sizeof(int32_t);
  if (whole()) {
    text += more_text;
    token_ids.insert(token_ids.end(), more_ids.begin(), more_ids.end());
  } else {
    text.clear();
    token_ids.clear();
  }
}

std::string EncodeOutcome(const TurnOutcome& outcome) {
  ByteWriter out;
  out.Put(kOutcomeVersion);
  out.Put(ReasonNumber(outcome.reason));
  out.PutSized(outcome.matched_stop);
  out.Put(static_cast<uint8_t>(outcome.matched_token.has_value() ? 1 : 0));
  out.Put(outcome.matched_token.value_or(0));
  out.Put(outcome.usage.prompt_tokens);
  out.Put(outcome.usage.cached_tokens);
  out.Put(outcome.usage.completion_tokens);
  out.Put(outcome.seed);
  out.Put(outcome.revision_before);
  out.Put(outcome.answer_bytes);
  out.PutSized(outcome.text);
  for (const int32_t id : outcome.token_ids) out.Put(id);
  out.Put(Crc32c(out.data()));
  return out.Take();
}

absl::StatusOr<TurnOutcome> DecodeOutcome(std::string_view bytes) {
  if (bytes.size() < sizeof(uint32_t)) return Damaged("too short");
  const size_t payload = bytes.size() - sizeof(uint32_t);
  ByteReader checksum(bytes.substr(payload));
  ASSIGN_OR_RETURN(const uint32_t stored, checksum.Get<uint32_t>());
  if (stored != Crc32c(bytes.substr(0, payload))) {
    return Damaged("checksum differs");
  }
  ByteReader reader(bytes.substr(0, payload));
  ASSIGN_OR_RETURN(const uint8_t version, reader.Get<uint8_t>());
  if (version != kOutcomeVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("recorded outcome of a turn: version is ", version,
                     ", this program reads ", kOutcomeVersion));
  }
  return ReadFields(reader);
}

}  // namespace reprise
