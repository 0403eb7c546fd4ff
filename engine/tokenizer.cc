#include "engine/tokenizer.h"

#include <array>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/bpe_tokenizer.h"
#include "engine/tokenizer_json.h"

namespace reprise {
namespace {

// The 256 one-byte strings.
constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

// Token id = byte; ids past 255 have none.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}

  absl::StatusOr<std::vector<int32_t>> Encode(
      std::string_view text, bool /*allow_special*/) const override {
    if (text.size() > kMaxTextBytes) {
      return absl::InvalidArgumentError(absl::StrCat(
          "text has ", text.size(), " bytes (at most ", kMaxTextBytes, ")"));
    }
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }
  std::string_view TokenBytes(int32_t id) const override {
    if (id < 0 || id >= std::ssize(kBytes)) return {};
    return std::string_view(&kBytes[id], 1);
  }
  bool IsSpecial(int32_t /*id*/) const override { return false; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> FindToken(std::string_view name) const override {
    if (name.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(name[0]);
  }
  uint64_t fingerprint() const override { return 0x7365747962; /* "bytes" */ }
  std::string_view kind() const override { return "bytes"; }

 private:
  const int64_t vocab_size_;
};

// Files of other tokenizers: a model that has one of them and no tokenizer.json
// was not trained on bytes, and reading it so would only make noise.
constexpr const char* kOtherTokenizers[] = {"tokenizer.model", "vocab.json",
                                            "vocab.txt", "merges.txt",
                                            "rwkv_vocab_v20230424.txt"};

// The largest vocabularies in use need about 20 MB.
constexpr uintmax_t kMaxFileBytes = 64 << 20;

absl::StatusOr<std::string> ReadFile(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), " is not a regular file"));
  }
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size > kMaxFileBytes) {
    return absl::InvalidArgumentError(
        error ? absl::StrCat(path.string(), ": ", error.message())
              : absl::StrCat(path.string(), " has ", size, " bytes (at most ",
                             kMaxFileBytes, ")"));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  contents << file.rdbuf();
  if (!file.good() && !file.eof()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path.string(), " cannot be read"));
  }
  return std::move(contents).str();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir, int64_t vocab_size) {
  const std::filesystem::path dir(model_dir);
  std::error_code error;
  if (std::filesystem::exists(dir / "tokenizer.json", error)) {
    ASSIGN_OR_RETURN(const std::string json, ReadFile(dir / "tokenizer.json"));
    ASSIGN_OR_RETURN(const BpeSpec spec, ParseTokenizerJson(json, vocab_size));
    return CreateBpeTokenizer(spec, vocab_size);
  }
  for (const char* name : kOtherTokenizers) {
    if (!std::filesystem::exists(dir / name, error)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(model_dir, " has a ", name,
                     ", which is not supported, and no tokenizer.json"));
  }
  if (vocab_size < std::ssize(kBytes)) {
    return absl::NotFoundError(absl::StrCat(
        model_dir, " has no tokenizer.json, and its vocabulary of ", vocab_size,
        " is too small for raw bytes (256)"));
  }
  if (vocab_size > kMaxByteVocabulary) {
    return absl::NotFoundError(absl::StrCat(
        model_dir, " has no tokenizer.json, and its vocabulary of ", vocab_size,
        " is too large for raw bytes (", kMaxByteVocabulary, ")"));
  }
  return std::make_unique<ByteTokenizer>(vocab_size);
}

std::string Decode(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                   bool keep_special) {
  std::string bytes;
  for (const int32_t id : ids) {
    if (!keep_special && tokenizer.IsSpecial(id)) continue;
    bytes += tokenizer.TokenBytes(id);
  }
  std::string text;
  text.reserve(bytes.size());
  if (AppendValidUtf8(bytes, &text) > 0) text += kReplacementCharacter;
  return text;
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer,
                             std::string_view pending)
    : tokenizer_(&tokenizer), pending_(pending) {}

std::string StreamDecoder::Push(int32_t token, bool keep_special) {
  if (!keep_special && tokenizer_->IsSpecial(token)) return {};
  pending_ += tokenizer_->TokenBytes(token);
  std::string text;
  const size_t unfinished = AppendValidUtf8(pending_, &text);
  pending_.erase(0, pending_.size() - unfinished);
  return text;
}

}  // namespace reprise
