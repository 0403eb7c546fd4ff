#include "engine/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/added_tokens.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/nfc.h"
#include "engine/text_pattern.h"

namespace reprise {
namespace {

// The alphabet of byte-level vocabularies: printable Latin-1 bytes stand for
// themselves, the 68 others for U+0100 and up, in order.
std::array<char32_t, 256> ByteAlphabet() {
  std::array<char32_t, 256> alphabet;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printable =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    alphabet[byte] = printable ? byte : next++;
  }
  return alphabet;
}

// U+0000..U+07FF, which holds the alphabet.
std::string EncodeShortUtf8(char32_t code) {
  if (code < 0x80) return {static_cast<char>(code)};
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// The bytes a vocabulary's name stands for. Names with a character outside the
// alphabet stand for themselves, as in the tokenizers library.
std::string BytesOfName(std::string_view name) {
  static const auto byte_of = [] {
    std::array<int, 0x144> table;
    table.fill(-1);
    const std::array<char32_t, 256> alphabet = ByteAlphabet();
    for (int byte = 0; byte < 256; ++byte) table[alphabet[byte]] = byte;
    return table;
  }();
  std::string bytes;
  for (std::string_view rest = name; !rest.empty();) {
    const size_t size = NextUtf8(rest).size;
    const char32_t code = DecodeUtf8Character(rest.substr(0, size));
    if (code >= byte_of.size() || byte_of[code] < 0) return std::string(name);
    bytes += static_cast<char>(byte_of[code]);
    rest.remove_prefix(size);
  }
  return bytes;
}

// Bytes C0, C1 and F5..FF occur in no UTF-8 text; vocabularies may lack them.
bool OccursInUtf8(int byte) {
  return byte != 0xC0 && byte != 0xC1 && byte < 0xF5;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 |
         static_cast<uint32_t>(right);
}

struct Merge {
  int32_t rank = 0;
  int32_t id = 0;  // of the merged token
};
using MergeTable = absl::flat_hash_map<uint64_t, Merge>;

// Merges the tokens of one piece until no merge applies, always the best one
// and of equal ones the leftmost. A linked list of tokens and a heap of the
// merges that were possible when they were found: n log n steps for n bytes.
// Reused for all pieces of a text.
class Merger {
 public:
  explicit Merger(const MergeTable& merges) : merges_(merges) {}

  void Start(size_t size) {
    symbols_.clear();
    symbols_.reserve(size);
    heap_.clear();
  }
  void Add(int32_t id) {
    const auto at = static_cast<int32_t>(symbols_.size());
    symbols_.push_back({id, at - 1, at + 1});
  }
  void Finish(std::vector<int32_t>* ids) {
    symbols_.back().next = -1;
    for (size_t i = 0; i + 1 < symbols_.size(); ++i) Propose(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), After);
      const Candidate best = heap_.back();
      heap_.pop_back();
      Apply(best);
    }
    // The first symbol is never merged into one before it.
    for (int32_t at = 0; at >= 0; at = symbols_[at].next) {
      ids->push_back(symbols_[at].id);
    }
  }

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous, next;
  };
  struct Candidate {
    Merge merge;
    int32_t at;           // the left symbol
    int32_t left, right;  // ids; it is stale if they changed
  };

  static bool After(const Candidate& a, const Candidate& b) {
    return std::pair(a.merge.rank, a.at) > std::pair(b.merge.rank, b.at);
  }

  // Enters the merge of the symbol at `at` and the next, if there is one.
  void Propose(int32_t at) {
    const int32_t left = symbols_[at].id;
    const int32_t right = symbols_[symbols_[at].next].id;
    const auto it = merges_.find(PairKey(left, right));
    if (it == merges_.end()) return;
    heap_.push_back({it->second, at, left, right});
    std::push_heap(heap_.begin(), heap_.end(), After);
  }

  void Apply(const Candidate& candidate) {
    Symbol& left = symbols_[candidate.at];
    if (left.id != candidate.left || left.next < 0) return;
    Symbol& right = symbols_[left.next];
    if (right.id != candidate.right) return;
    left.id = candidate.merge.id;
    right.id = -1;
    left.next = right.next;
    if (left.next >= 0) {
      symbols_[left.next].previous = candidate.at;
      Propose(candidate.at);
    }
    if (left.previous >= 0) Propose(left.previous);
  }

  const MergeTable& merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

struct Step {
  PreTokenizerStep spec;
  std::optional<TextPattern> pattern;  // none: adds the prefix space
};

class BpeTokenizer : public Tokenizer {
 public:
  explicit BpeTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // Fills the tables; called once, by CreateBpeTokenizer.
  absl::Status Init(const BpeSpec& spec);

  absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, bool allow_special) const override;
  std::string_view TokenBytes(int32_t id) const override {
    if (id < 0 || id >= std::ssize(tokens_)) return {};
    return tokens_[id].bytes;
  }
  bool IsSpecial(int32_t id) const override {
    return id >= 0 && id < std::ssize(tokens_) && tokens_[id].special;
  }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> FindToken(std::string_view name) const override {
    const auto it = ids_.find(ToAbsl(name));
    if (it == ids_.end()) return std::nullopt;
    return it->second;
  }
  uint64_t fingerprint() const override { return fingerprint_; }
  std::string_view kind() const override { return "bpe"; }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };
  // What one call of Encode works with.
  struct Run {
    PatternBudget budget;
    Merger merger;
    std::vector<int32_t> ids;
  };

  Token& TokenAt(int32_t id);
  absl::Status InitTokens(const BpeSpec& spec);
  absl::Status InitMerges(const BpeSpec& spec);
  absl::Status InitSteps(const BpeSpec& spec);

  // The text between added tokens, from step `step` on.
  absl::Status EncodePiece(size_t step, std::string_view piece, Run& run) const;
  void MergePiece(std::string_view piece, Run& run) const;

  const int64_t vocab_size_;
  uint64_t fingerprint_ = 0;
  std::vector<Token> tokens_;  // by id, as far as the file goes
  absl::flat_hash_map<std::string, int32_t> ids_;  // by name
  std::array<int32_t, 256> byte_ids_ = {};         // -1 if there is none
  MergeTable merges_;
  // Whole pieces that need no merging, by their bytes. Empty unless
  // ignore_merges.
  absl::flat_hash_map<std::string, int32_t> whole_;
  AddedTokenMatcher raw_added_{{}};
  AddedTokenMatcher normalized_added_{{}};
  std::vector<Step> steps_;
  bool nfc_ = false;
};

absl::Status Bad(const std::string& message) {
  return absl::InvalidArgumentError("tokenizer.json: " + message);
}

std::string Quote(std::string_view name) {
  return absl::StrCat("\"", absl::CHexEscape(ToAbsl(name.substr(0, 64))), "\"");
}

BpeTokenizer::Token& BpeTokenizer::TokenAt(int32_t id) {
  if (id >= std::ssize(tokens_)) tokens_.resize(id + 1);
  return tokens_[id];
}

absl::Status BpeTokenizer::InitTokens(const BpeSpec& spec) {
  for (const auto& [name, id] : spec.vocab) {
    ids_.emplace(name, id);
    TokenAt(id).bytes = BytesOfName(name);
  }
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (AddedToken token : spec.added_tokens) {
    ids_.emplace(token.content, token.id);
    // Its bytes are its name as it stands. The tokenizers library takes a name
    // within the alphabet for bytes, so that its "\u00e9" decodes to U+FFFD.
    TokenAt(token.id) = {token.content, token.special};
    if (!token.normalized) {
      raw.push_back(std::move(token));
      continue;
    }
    if (nfc_) token.content = NormalizeNfc(token.content);
    normalized.push_back(std::move(token));
  }
  raw_added_ = AddedTokenMatcher(std::move(raw));
  normalized_added_ = AddedTokenMatcher(std::move(normalized));
  const std::array<char32_t, 256> alphabet = ByteAlphabet();
  for (int byte = 0; byte < 256; ++byte) {
    byte_ids_[byte] = FindToken(EncodeShortUtf8(alphabet[byte])).value_or(-1);
    if (byte_ids_[byte] < 0 && OccursInUtf8(byte)) {
      return Bad(absl::StrCat("model.vocab has no token for byte ", byte));
    }
  }
  if (!spec.ignore_merges) return absl::OkStatus();
  for (const auto& [name, id] : spec.vocab) {
    // Text must never become a special token by the way.
    if (!IsSpecial(id)) whole_.emplace(tokens_[id].bytes, id);
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitMerges(const BpeSpec& spec) {
  merges_.reserve(spec.merges.size());
  for (size_t i = 0; i < spec.merges.size(); ++i) {
    const auto& [left, right] = spec.merges[i];
    const std::string path = absl::StrCat("model.merges[", i, "]: ");
    const std::string merged = left + right;
    for (const std::string* name : {&left, &right, &merged}) {
      if (!ids_.contains(*name)) {
        return Bad(path + Quote(*name) + " is not in the vocabulary");
      }
    }
    const int32_t id = ids_[merged];
    if (IsSpecial(id)) {
      return Bad(path + Quote(merged) + " is a special token");
    }
    // Of two equal merges the later one counts, as in the tokenizers library.
    merges_[PairKey(ids_[left], ids_[right])] = {static_cast<int32_t>(i), id};
  }
  return absl::OkStatus();
}

absl::Status BpeTokenizer::InitSteps(const BpeSpec& spec) {
  for (const PreTokenizerStep& step : spec.steps) {
    steps_.push_back({step, std::nullopt});
    if (step.add_prefix_space) continue;
    auto pattern = TextPattern::Compile(step.pattern, step.literal);
    if (!pattern.ok()) {
      return Bad(absl::StrCat("pre_tokenizer: ", pattern.status().message()));
    }
    steps_.back().pattern = *std::move(pattern);
  }
  return absl::OkStatus();
}

// FNV-1a over all that decides how a text is encoded.
uint64_t Fingerprint(const BpeSpec& spec) {
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
  for (const AddedToken& token : spec.added_tokens) {
    writer.PutSized(token.content);
    writer.Put(token.id);
    writer.Put(static_cast<uint8_t>(token.special | token.lstrip << 1 |
                                    token.rstrip << 2 | token.normalized << 3));
  }
  for (const PreTokenizerStep& step : spec.steps) {
    writer.PutSized(step.pattern);
    writer.Put(static_cast<uint8_t>(step.add_prefix_space | step.literal << 1 |
                                    step.keep_matched << 2 |
                                    step.keep_between << 3));
  }
  writer.Put(static_cast<uint8_t>(spec.nfc | spec.ignore_merges << 1));
  uint64_t hash = 0xCBF29CE484222325;
  for (const char byte : writer.data()) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
  }
  return hash;
}

absl::Status BpeTokenizer::Init(const BpeSpec& spec) {
  nfc_ = spec.nfc;
  RETURN_IF_ERROR(InitTokens(spec));
  RETURN_IF_ERROR(InitMerges(spec));
  RETURN_IF_ERROR(InitSteps(spec));
  fingerprint_ = Fingerprint(spec);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> BpeTokenizer::Encode(
    std::string_view text, bool allow_special) const {
  if (text.size() > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "text has ", text.size(), " bytes (at most ", kMaxTextBytes, ")"));
  }
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid != std::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("text is not UTF-8: bad byte at offset ", invalid));
  }
  Run run{PatternBudget(text.size()), Merger(merges_), {}};
  const auto encode = [&](std::string_view piece, std::optional<int32_t> id) {
    if (!id.has_value()) return EncodePiece(/*step=*/0, piece, run);
    run.ids.push_back(*id);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(raw_added_.Split(
      text, allow_special,
      [&](std::string_view piece, std::optional<int32_t> id) {
        if (id.has_value()) return encode(piece, id);
        std::string normal;
        if (nfc_) piece = normal = NormalizeNfc(piece);
        return normalized_added_.Split(piece, allow_special, encode);
      }));
  return std::move(run.ids);
}

absl::Status BpeTokenizer::EncodePiece(size_t step, std::string_view piece,
                                       Run& run) const {
  if (step == steps_.size()) {
    MergePiece(piece, run);
    return absl::OkStatus();
  }
  const Step& now = steps_[step];
  if (now.pattern.has_value()) {
    return now.pattern->Split(
        piece, run.budget, [&](std::string_view part, bool matched) {
          const bool keep =
              matched ? now.spec.keep_matched : now.spec.keep_between;
          return keep ? EncodePiece(step + 1, part, run) : absl::OkStatus();
        });
  }
  if (piece.starts_with(' ')) return EncodePiece(step + 1, piece, run);
  return EncodePiece(step + 1, absl::StrCat(" ", ToAbsl(piece)), run);
}

void BpeTokenizer::MergePiece(std::string_view piece, Run& run) const {
  if (const auto it = whole_.find(ToAbsl(piece)); it != whole_.end()) {
    run.ids.push_back(it->second);
    return;
  }
  run.merger.Start(piece.size());
  // Valid UTF-8: every byte has an id, or Init had failed.
  for (const char byte : piece) {
    run.merger.Add(byte_ids_[static_cast<uint8_t>(byte)]);
  }
  run.merger.Finish(&run.ids);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateBpeTokenizer(
    const BpeSpec& spec, int64_t vocab_size) {
  auto tokenizer = std::make_unique<BpeTokenizer>(vocab_size);
  RETURN_IF_ERROR(tokenizer->Init(spec));
  return tokenizer;
}

}  // namespace reprise
