#include "engine/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {

absl::Status TooManyTokensError(size_t max_tokens) {
  return absl::ResourceExhaustedError(
      absl::StrCat("there are more than ", max_tokens, " tokens"));
}

absl::Status CheckTextSize(std::string_view text) {
  if (text.size() <= kMaxTextBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "text has ", text.size(), " bytes (at most ", kMaxTextBytes, ")"));
}

absl::Status CheckNormalizedSize(size_t size) {
  constexpr size_t kMaxBytes = 4 * kMaxTextBytes;
  if (size <= kMaxBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the text grows to more than ", kMaxBytes,
                   " bytes when it is normalised"));
}

absl::Status CheckText(std::string_view text) {
  RETURN_IF_ERROR(CheckTextSize(text));
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("text is not UTF-8: bad byte at offset ", invalid));
}

std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   bool keep_special) {
  StreamDecoder decoder = StreamDecoder::AtStart(tokenizer);
  std::string text;
  for (const int32_t id : ids) text += decoder.Push(id, keep_special);
  return text + ShowUnfinished(tokenizer, decoder.pending());
}

std::string ShowUnfinished(const Tokenizer& tokenizer, std::string_view bytes) {
  if (bytes.empty()) return {};
  std::string text;
  const size_t count =
      tokenizer.decoding_rules().replace_each_byte ? bytes.size() : 1;
  for (size_t i = 0; i < count; ++i) text += kReplacementCharacter;
  return text;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer,
                             std::string_view pending)
    : tokenizer_(&tokenizer),
      pending_(pending),
      rules_({.replace_each_byte =
                  tokenizer.decoding_rules().replace_each_byte}) {}

StreamDecoder StreamDecoder::AtStart(const Tokenizer& tokenizer) {
  StreamDecoder decoder(tokenizer);
  decoder.rules_ = tokenizer.decoding_rules();
  return decoder;
}

std::string StreamDecoder::Push(int32_t token, bool keep_special) {
  if (!keep_special && tokenizer_->IsSpecial(token)) return {};
  if (rules_.leading_spaces > 0 || rules_.drop_first_spaces) {
    pending_ += WithoutLeadingSpaces(token);
  } else {
    pending_ += tokenizer_->TokenBytes(token);
  }
  std::string text;
  const size_t unfinished =
      AppendValidUtf8(pending_,
                      rules_.replace_each_byte ? Utf8Replacement::kEachByte
                                               : Utf8Replacement::kMaximalPart,
                      &text);
  pending_.erase(0, pending_.size() - unfinished);
  return text;
}

std::string StreamDecoder::WithoutLeadingSpaces(int32_t token) {
  std::string rest(tokenizer_->TokenBytes(token));
  const bool is_first = std::exchange(rules_.drop_first_spaces, false);
  if (tokenizer_->KeepsSpaces(token)) {
    rules_.leading_spaces = 0;
    return rest;
  }
  if (is_first) std::erase(rest, ' ');
  size_t spaces = 0;
  const size_t most = rules_.one_space_a_token ? 1 : rest.size();
  while (rules_.leading_spaces > 0 && spaces < std::min(most, rest.size()) &&
         rest[spaces] == ' ') {
    ++spaces;
    --rules_.leading_spaces;
  }
  rest.erase(0, spaces);
  if (!rest.empty()) rules_.leading_spaces = 0;
  return rest;
}

}  // namespace reprise
