#include "engine/sentencepiece_tokenizer.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/added_tokens.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/bpe_model.h"
#include "engine/model/json_text.h"
#include "engine/sentencepiece_file.h"
#include "engine/sentencepiece_normalizer.h"
#include "engine/token_decoding.h"
#include "engine/token_table.h"

namespace reprise {
namespace {

using Type = SentencePiece::Type;
using Ids = absl::flat_hash_map<std::string_view, int32_t>;

class SentencePieceTokenizer : public TableTokenizer {
 public:
  explicit SentencePieceTokenizer(int64_t vocab_size)
      : TableTokenizer(vocab_size) {}

  absl::Status Init(const SentencePieceSpec& spec);

  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special,
      size_t max_tokens) const override;
  std::string_view kind() const override { return "sentencepiece"; }
  // Only metaspaces are dropped.
  bool KeepsSpaces(int32_t id) const override {
    return id >= 0 && id < std::ssize(keeps_spaces_) && keeps_spaces_[id];
  }

 private:
  void InitTokens(const SentencePieceSpec& spec);
  void InitAdded(const SentencePieceSpec& spec);
  absl::Status InitMerges(const SentencePieceSpec& spec);

  std::vector<bool> keeps_spaces_;  // by id
  BpeModel model_{BpeModel::Unit::kCharacter};
  AddedTokenMatcher control_{{}};
  AddedTokenMatcher user_defined_{{}};
  std::optional<SentencePieceNormalizer> normalizer_;  // set by Init
};

// What a piece stands for.
std::string BytesOfPiece(const SentencePieceSpec& spec,
                         const SentencePiece& piece) {
  switch (piece.type) {
    case Type::kByte:
      return std::string(1, static_cast<char>(*ByteOfName(piece.text)));
    case Type::kUnknown:
      return spec.unknown_surface;
    case Type::kControl:
      return piece.text;
    case Type::kNormal:
    case Type::kUserDefined:
      break;
  }
  return absl::StrReplaceAll(piece.text, {{ToAbsl(kMetaspace), " "}});
}

void SentencePieceTokenizer::InitTokens(const SentencePieceSpec& spec) {
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePiece& piece = spec.pieces[i];
    const auto id = static_cast<int32_t>(i);
    SetToken(id, piece.text, BytesOfPiece(spec, piece),
             piece.type == Type::kControl);
    keeps_spaces_.push_back(piece.type == Type::kByte ||
                            piece.type == Type::kUnknown);
    switch (piece.type) {
      case Type::kByte:
        if (spec.byte_fallback) model_.SetByte(*ByteOfName(piece.text), id);
        break;
      case Type::kUnknown:
        model_.SetUnknown(id, /*fuse=*/true);
        break;
      case Type::kNormal:
        if (NextUtf8(piece.text).size == piece.text.size()) {
          model_.SetCharacter(DecodeUtf8Character(piece.text), id);
        }
        break;
      case Type::kControl:
      case Type::kUserDefined:
        break;
    }
  }
  DecodingRules rules;
  if (spec.remove_extra_whitespaces) {
    rules.leading_spaces = std::numeric_limits<int32_t>::max();
    rules.one_space_a_token = true;
  } else if (spec.add_dummy_prefix) {
    rules.leading_spaces = 1;
  }
  rules.replace_each_byte = true;
  SetRules(rules);
}

void SentencePieceTokenizer::InitAdded(const SentencePieceSpec& spec) {
  std::vector<AddedToken> control;
  std::vector<AddedToken> user_defined;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePiece& piece = spec.pieces[i];
    AddedToken token;
    token.id = static_cast<int32_t>(i);
    token.content = piece.text;
    token.special = piece.type == Type::kControl;
    if (token.special) {
      control.push_back(std::move(token));
    } else if (piece.type == Type::kUserDefined) {
      user_defined.push_back(std::move(token));
    }
  }
  control_ = AddedTokenMatcher(std::move(control));
  user_defined_ = AddedTokenMatcher(std::move(user_defined));
}

// SentencePiece merges two neighbours if their texts together are a piece, the
// one with the highest score first. As a table of pairs: every way to cut a
// piece in two pieces. Pieces of equal score are equals, and the leftmost is
// merged first.
absl::Status SentencePieceTokenizer::InitMerges(const SentencePieceSpec& spec) {
  std::vector<float> scores;
  Ids ids;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePiece& piece = spec.pieces[i];
    if (piece.type != Type::kNormal) continue;
    scores.push_back(piece.score);
    ids.emplace(piece.text, static_cast<int32_t>(i));
    model_.SetText(piece.text);
  }
  std::sort(scores.begin(), scores.end(), std::greater<>());
  scores.erase(std::unique(scores.begin(), scores.end()), scores.end());
  for (const auto& [text, id] : ids) {
    const auto rank =
        std::lower_bound(scores.begin(), scores.end(), spec.pieces[id].score,
                         std::greater<>()) -
        scores.begin();
    for (size_t cut = 0; cut < text.size();) {
      const size_t size = NextUtf8(text.substr(cut)).size;
      if (!ids.contains(text.substr(cut, size))) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer.model: pieces[", id, "].piece ",
                         Quoted(text), " has a character that is no piece"));
      }
      cut += size;
      const auto left = ids.find(text.substr(0, cut));
      const auto right = ids.find(text.substr(cut));
      if (left == ids.end() || right == ids.end()) continue;
      model_.merges().Add(left->second, right->second,
                          {static_cast<int32_t>(rank), id});
    }
  }
  return absl::OkStatus();
}

// All that decides how a text is encoded.
std::string Describe(const SentencePieceSpec& spec) {
  ByteWriter writer;
  writer.PutSized("sentencepiece");
  for (const SentencePiece& piece : spec.pieces) {
    writer.PutSized(piece.text);
    writer.Put(piece.score);
    writer.Put(static_cast<uint8_t>(piece.type));
  }
  writer.PutSized(spec.charsmap);
  writer.Put(static_cast<uint8_t>(
      spec.byte_fallback | spec.add_dummy_prefix << 1 |
      spec.remove_extra_whitespaces << 2 | spec.escape_whitespaces << 3));
  return writer.Take();
}

absl::Status SentencePieceTokenizer::Init(const SentencePieceSpec& spec) {
  InitTokens(spec);
  InitAdded(spec);
  RETURN_IF_ERROR(InitMerges(spec));
  ASSIGN_OR_RETURN(normalizer_, SentencePieceNormalizer::Create(spec));
  SetFingerprint(TokenizerFingerprint(Describe(spec)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> SentencePieceTokenizer::EncodeUpTo(
    std::string_view text, bool allow_special, size_t max_tokens) const {
  RETURN_IF_ERROR(CheckText(text));
  BpeMerger merger(model_.merges());
  std::vector<int32_t> ids;
  const auto encode = [&](std::string_view piece, std::optional<int32_t> id) {
    if (!id.has_value()) return model_.Encode(piece, max_tokens, merger, &ids);
    if (ids.size() == max_tokens) return TooManyTokensError(max_tokens);
    ids.push_back(*id);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(control_.Split(
      text, allow_special,
      [&](std::string_view piece, std::optional<int32_t> id) -> absl::Status {
        if (id.has_value()) return encode(piece, id);
        ASSIGN_OR_RETURN(const std::string normal, normalizer_->Apply(piece));
        return user_defined_.Split(normal, /*allow_special=*/false, encode);
      }));
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateSentencePieceTokenizer(
    std::string_view contents, int64_t vocab_size) {
  ASSIGN_OR_RETURN(const SentencePieceSpec spec,
                   ParseSentencePieceModel(contents, vocab_size));
  auto tokenizer = std::make_unique<SentencePieceTokenizer>(vocab_size);
  RETURN_IF_ERROR(tokenizer->Init(spec));
  return tokenizer;
}

}  // namespace reprise
