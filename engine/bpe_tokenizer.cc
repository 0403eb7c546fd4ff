#include "engine/bpe_tokenizer.h"

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/added_tokens.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/bpe_model.h"
#include "engine/token_decoding.h"
#include "engine/token_table.h"
#include "engine/tokenizer_json_object.h"

namespace reprise {
namespace {

absl::Status Bad(const absl::Status& status, std::string_view part) {
  if (status.ok()) return status;
  return TokenizerJsonError(ToAbsl(part), ": ", status.message());
}

class BpeTokenizer : public TableTokenizer {
 public:
  BpeTokenizer(const BpeSpec& spec, int64_t vocab_size)
      : TableTokenizer(vocab_size),
        model_(spec.byte_level ? BpeModel::Unit::kByte
                               : BpeModel::Unit::kCharacter) {}

  // Fills the tables; called once, by CreateBpeTokenizer.
  absl::Status Init(const BpeSpec& spec);

  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special,
      size_t max_tokens) const override;
  std::string_view kind() const override { return "bpe"; }

 private:
  // What one call of EncodeUpTo works with.
  struct Run {
    bool allow_special;
    size_t max_tokens;
    PatternBudget budget;
    BpeMerger merger;
    std::vector<int32_t> ids;

    absl::Status Add(int32_t id) {
      if (ids.size() == max_tokens) return TooManyTokensError(max_tokens);
      ids.push_back(id);
      return absl::OkStatus();
    }
  };

  void InitTokens(const BpeSpec& spec);
  absl::Status InitSteps(const BpeSpec& spec);
  absl::Status InitAdded(const BpeSpec& spec);
  absl::Status InitByteLevel();
  absl::Status InitCharacters(const BpeSpec& spec);
  absl::Status InitMerges(const BpeSpec& spec);

  // The id of that name, or -1 for special tokens too: text must never become
  // one by the way.
  int32_t OrdinaryToken(std::string_view name) const;
  // Text between tokens that were found in the raw text.
  absl::Status EncodeRaw(std::string_view raw, bool at_start, Run& run) const;

  BpeModel model_;
  AddedTokenMatcher raw_added_{{}};
  AddedTokenMatcher normalized_added_{{}};
  std::optional<TextNormalizer> normalizer_;   // set by Init
  std::optional<PreTokenizer> pre_tokenizer_;  // likewise
};

int32_t BpeTokenizer::OrdinaryToken(std::string_view name) const {
  const std::optional<int32_t> id = FindToken(name);
  return id.has_value() && !IsSpecial(*id) ? *id : -1;
}

void BpeTokenizer::InitTokens(const BpeSpec& spec) {
  for (const auto& [name, id] : spec.vocab) {
    std::string bytes = BytesOfToken(spec.decoding, name);
    model_.SetText(spec.byte_level ? bytes : name);
    SetToken(id, name, std::move(bytes), /*special=*/false);
  }
  for (const AddedToken& token : spec.added_tokens) {
    // In byte-level vocabularies its bytes are its name as it stands. The
    // tokenizers library takes a name within the alphabet for bytes, so that
    // its "\u00e9" decodes to U+FFFD.
    SetToken(token.id, token.content,
             spec.byte_level ? token.content
                             : BytesOfToken(spec.decoding, token.content),
             token.special);
  }
  SetRules(spec.decoding.rules);
}

absl::Status BpeTokenizer::InitSteps(const BpeSpec& spec) {
  auto normalizer = TextNormalizer::Create(spec.normalizer);
  RETURN_IF_ERROR(Bad(normalizer.status(), "normalizer"));
  normalizer_ = *std::move(normalizer);
  auto pre_tokenizer = PreTokenizer::Create(spec.steps);
  RETURN_IF_ERROR(Bad(pre_tokenizer.status(), "pre_tokenizer"));
  pre_tokenizer_ = *std::move(pre_tokenizer);
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitAdded(const BpeSpec& spec) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : spec.added_tokens) {
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    PatternBudget budget(token.content.size());
    auto content = normalizer_->Apply(token.content, budget);
    RETURN_IF_ERROR(Bad(content.status(), "added_tokens"));
    token.content = *std::move(content);
    if (!token.content.empty()) normalized.push_back(std::move(token));
  }
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitByteLevel() {
  const std::array<char32_t, 256> alphabet = ByteAlphabet();
  for (int byte = 0; byte < 256; ++byte) {
    std::string name;
    AppendUtf8(alphabet[byte], &name);
    const int32_t id = OrdinaryToken(name);
    model_.SetByte(static_cast<uint8_t>(byte), id);
    // Vocabularies may lack the other bytes.
    if (id < 0 && OccursInUtf8(byte)) {
      return TokenizerJsonError("model.vocab has no token for byte ", byte);
    }
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitCharacters(const BpeSpec& spec) {
  for (const auto& [name, id] : spec.vocab) {
    if (IsSpecial(id) || name.empty()) continue;
    if (NextUtf8(name).size != name.size()) continue;
    model_.SetCharacter(DecodeUtf8Character(name), id);
  }
  if (spec.unknown.has_value()) {
    const std::optional<int32_t> id = FindToken(*spec.unknown);
    if (!id.has_value()) {
      return TokenizerJsonError("model.unk_token ", QuoteName(*spec.unknown),
                                " is not in the vocabulary");
    }
    model_.SetUnknown(*id, spec.fuse_unknown);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = NameOfByte(static_cast<uint8_t>(byte));
    const int32_t id = spec.byte_fallback ? OrdinaryToken(name) : -1;
    model_.SetByte(static_cast<uint8_t>(byte), id);
    if (id < 0 && OccursInUtf8(byte) && !spec.unknown.has_value()) {
      return TokenizerJsonError(
          "model.unk_token is missing, and not every character has a token: "
          "there is no byte_fallback token ",
          QuoteName(name));
    }
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitMerges(const BpeSpec& spec) {
  model_.merges().Reserve(spec.merges.size());
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    const std::string path = absl::StrCat("model.merges[", i, "]: ");
    const std::string merged = left + right;
    for (const std::string* name : {&left, &right, &merged}) {
      if (!FindToken(*name).has_value()) {
        return TokenizerJsonError(path, QuoteName(*name),
                                  " is not in the vocabulary");
      }
    }
    const int32_t id = *FindToken(merged);
    if (IsSpecial(id)) {
      return TokenizerJsonError(path, QuoteName(merged), " is a special token");
    }
    // Of two equal merges the later one counts, as in the tokenizers library.
    model_.merges().Add(*FindToken(left), *FindToken(right),
                        {static_cast<int32_t>(i), id});
  }
  if (!spec.ignore_merges) return absl::OkStatus();
  for (const auto& [name, id] : spec.vocab) {
    if (IsSpecial(id)) continue;
    // Pieces are bytes here, where the library has names.
    model_.SetWhole(spec.byte_level ? TokenBytes(id) : name, id);
  }
  return absl::OkStatus();
}

void Put(const NormalizerStep& step, ByteWriter& writer) {
  writer.Put(static_cast<uint8_t>(step.kind));
  writer.Put(static_cast<uint8_t>(step.form));
  writer.PutSized(step.content);
  writer.PutSized(step.pattern);
  writer.Put(static_cast<uint8_t>(step.literal));
}

void Put(const PreTokenizerStep& step, ByteWriter& writer) {
  writer.Put(static_cast<uint8_t>(step.kind));
  writer.PutSized(step.pattern);
  writer.Put(static_cast<uint8_t>(step.behavior));
  writer.PutSized(step.metaspace);
  writer.Put(static_cast<uint8_t>(step.prepend));
  writer.Put(
      static_cast<uint8_t>(step.literal | step.invert << 1 | step.split << 2));
}

void Put(const AddedToken& token, ByteWriter& writer) {
  writer.PutSized(token.content);
  writer.Put(token.id);
  writer.Put(static_cast<uint8_t>(token.special | token.lstrip << 1 |
                                  token.rstrip << 2 | token.normalized << 3 |
                                  token.single_word << 4));
}

// All that decides how a text is encoded.
std::string Describe(const BpeSpec& spec) {
  ByteWriter writer;
  writer.PutSized("bpe");
  for (const auto& [name, id] : spec.vocab) {
    writer.PutSized(name);
    writer.Put(id);
  }
  for (const auto& [left, right] : spec.merges) {
    writer.PutSized(left);
    writer.PutSized(right);
  }
  for (const AddedToken& token : spec.added_tokens) Put(token, writer);
  for (const NormalizerStep& step : spec.normalizer) Put(step, writer);
  for (const PreTokenizerStep& step : spec.steps) Put(step, writer);
  writer.PutSized(spec.unknown.value_or(""));
  writer.Put(static_cast<uint8_t>(spec.byte_level | spec.byte_fallback << 1 |
                                  spec.fuse_unknown << 2 |
                                  spec.ignore_merges << 3));
  return writer.Take();
}

absl::Status BpeTokenizer::Init(const BpeSpec& spec) {
  InitTokens(spec);
  RETURN_IF_ERROR(InitSteps(spec));
  RETURN_IF_ERROR(InitAdded(spec));
  RETURN_IF_ERROR(spec.byte_level ? InitByteLevel() : InitCharacters(spec));
  RETURN_IF_ERROR(InitMerges(spec));
  SetFingerprint(TokenizerFingerprint(Describe(spec)));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::EncodeUpTo(
    std::string_view text, bool allow_special, size_t max_tokens) const {
  RETURN_IF_ERROR(CheckText(text));
  Run run{allow_special,
          max_tokens,
          PatternBudget(text.size()),
          BpeMerger(model_.merges()),
          {}};
  RETURN_IF_ERROR(raw_added_.Split(
      text, allow_special,
      [&](std::string_view piece, std::optional<int32_t> id) {
        if (!id.has_value()) {
          return EncodeRaw(piece, piece.data() == text.data(), run);
        }
        return run.Add(*id);
      }));
  return std::move(run.ids);
}

absl::Status BpeTokenizer::EncodeRaw(std::string_view raw, bool at_start,
                                     Run& run) const {
  ASSIGN_OR_RETURN(const std::string text, normalizer_->Apply(raw, run.budget));
  const auto encode = [&](std::string_view piece) {
    return model_.Encode(piece, run.max_tokens, run.merger, &run.ids);
  };
  return normalized_added_.Split(
      text, run.allow_special,
      [&](std::string_view piece, std::optional<int32_t> id) {
        if (!id.has_value()) {
          return pre_tokenizer_->Split(piece,
                                       at_start && piece.data() == text.data(),
                                       run.budget, encode);
        }
        return run.Add(*id);
      });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(
    const BpeSpec& spec, int64_t vocab_size) {
  auto tokenizer = std::make_unique<BpeTokenizer>(spec, vocab_size);
  RETURN_IF_ERROR(tokenizer->Init(spec));
  return tokenizer;
}

}  // namespace reprise
