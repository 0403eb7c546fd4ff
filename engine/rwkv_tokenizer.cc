#include "engine/rwkv_tokenizer.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/byte_trie.h"
#include "engine/python_literal.h"
#include "engine/token_table.h"

namespace reprise {
namespace {

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr int32_t kEndOfTextId = 0;
constexpr size_t kMaxVocabularyBytes = 16 << 20;
// Encoding takes up to this many look-ups a byte. The published vocabulary has
// tokens of up to 128.
constexpr size_t kMaxTokenBytes = 256;

class RwkvTokenizer : public TableTokenizer {
 public:
  explicit RwkvTokenizer(int64_t vocab_size) : TableTokenizer(vocab_size) {}

  absl::Status Init(std::string_view contents, std::string_view file);

  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool allow_special,
      size_t max_tokens) const override;
  std::string_view kind() const override { return "rwkv"; }

 private:
  // A line of the file; a message about it does not name the place.
  absl::Status AddLine(std::string_view line);

  ByteTrie trie_;
  absl::flat_hash_set<int32_t> seen_;  // ids, while the file is read
};

absl::Status BadLine(std::string_view message) {
  return absl::InvalidArgumentError(ToAbsl(message));
}

absl::Status RwkvTokenizer::AddLine(std::string_view line) {
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return BadLine("is not an id, a token and a length");
  }
  int32_t id = 0;
  if (!absl::SimpleAtoi(ToAbsl(line.substr(0, first)), &id) || id <= 0 ||
      id >= vocab_size()) {
    return BadLine(absl::StrCat("has the id ", ToAbsl(line.substr(0, first)),
                                ", not in [1, ", vocab_size(),
                                "), the model's vocabulary"));
  }
  ASSIGN_OR_RETURN(std::string bytes, ParsePythonLiteral(line.substr(
                                          first + 1, last - first - 1)));
  size_t size = 0;
  if (!absl::SimpleAtoi(ToAbsl(line.substr(last + 1)), &size) ||
      size != bytes.size()) {
    return BadLine(absl::StrCat("has a token of ", bytes.size(),
                                " bytes and the length ",
                                ToAbsl(line.substr(last + 1))));
  }
  if (bytes.empty() || bytes.size() > kMaxTokenBytes) {
    return BadLine(absl::StrCat("has a token of ", bytes.size(),
                                " bytes, not 1..", kMaxTokenBytes));
  }
  if (!seen_.insert(id).second) {
    return BadLine(absl::StrCat("has the id ", id, ", as another line has"));
  }
  if (!trie_.Insert(bytes, id)) {
    return BadLine("has the token of another line");
  }
  // Its name is what it stands for.
  const std::string name = bytes;
  SetToken(id, name, std::move(bytes), /*special=*/false);
  return absl::OkStatus();
}

absl::Status RwkvTokenizer::Init(std::string_view contents,
                                 std::string_view file) {
  if (contents.size() > kMaxVocabularyBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(ToAbsl(file), " has ", contents.size(), " bytes (at most ",
                     kMaxVocabularyBytes, ")"));
  }
  SetToken(kEndOfTextId, kEndOfText, std::string(kEndOfText),
           /*special=*/true);
  size_t number = 1;
  for (std::string_view rest = contents; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const absl::Status status = AddLine(line); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToAbsl(file), " line ", number, " ", status.message()));
    }
  }
  seen_.clear();
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    if (!Encode(std::string_view(&text, 1), /*allow_special=*/false).ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToAbsl(file), " has no token for byte ", byte));
    }
  }
  SetFingerprint(TokenizerFingerprint(absl::StrCat("rwkv", ToAbsl(contents))));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> RwkvTokenizer::EncodeUpTo(
    std::string_view text, bool allow_special, size_t max_tokens) const {
  RETURN_IF_ERROR(CheckTextSize(text));
  std::vector<int32_t> ids;
  while (!text.empty()) {
    if (ids.size() == max_tokens) return TooManyTokensError(max_tokens);
    if (allow_special && text.starts_with(kEndOfText)) {
      ids.push_back(kEndOfTextId);
      text.remove_prefix(kEndOfText.size());
      continue;
    }
    size_t longest = 0;
    int32_t token = 0;
    trie_.ForEachPrefix(text, [&](size_t size, int32_t id) {
      longest = size;
      token = id;
    });
    // Only while Init looks for missing bytes.
    if (longest == 0) return BadLine("a byte has no token");
    ids.push_back(token);
    text.remove_prefix(longest);
  }
  return ids;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> CreateRwkvTokenizer(
    std::string_view contents, std::string_view file, int64_t vocab_size) {
  auto tokenizer = std::make_unique<RwkvTokenizer>(vocab_size);
  RETURN_IF_ERROR(tokenizer->Init(contents, file));
  return tokenizer;
}

}  // namespace reprise
