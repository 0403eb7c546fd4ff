#include "engine/load_tokenizer.h"

#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/bpe_tokenizer.h"
#include "engine/byte_tokenizer.h"
#include "engine/model/mapped_file.h"
#include "engine/rwkv_tokenizer.h"
#include "engine/sentencepiece_tokenizer.h"
#include "engine/tokenizer_json.h"

namespace reprise {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLookedFor =
    "tokenizer.json, tokenizer.model or rwkv_vocab_*.txt";

// Files of other tokenizers: a model that has one of them and none of ours was
// not trained on bytes, and reading it so would only make noise.
constexpr const char* kOtherTokenizers[] = {
    "vocab.json",  "vocab.txt",    "merges.txt",
    "tekken.json", "spiece.model", "tokenizer.model.v3"};

bool Exists(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The vocabulary of RWKV World in `dir`, if there is one.
absl::StatusOr<std::optional<fs::path>> FindRwkvVocabulary(
    const fs::path& dir) {
  std::optional<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (!name.starts_with("rwkv_vocab_") || !name.ends_with(".txt")) continue;
    if (found.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat(dir.string(), " has two vocabularies of RWKV: ",
                       found->filename().string(), " and ", name));
    }
    found = it->path();
  }
  return found;
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadJson(const fs::path& path,
                                                    int64_t vocab_size) {
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path.string()));
  ASSIGN_OR_RETURN(const BpeSpec spec,
                   ParseTokenizerJson(file.bytes(), vocab_size));
  return CreateBpeTokenizer(spec, vocab_size);
}

// For a folder without any tokenizer.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBytes(const fs::path& dir,
                                                     int64_t vocab_size) {
  for (const char* name : kOtherTokenizers) {
    if (!Exists(dir / name)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(dir.string(), " has a ", name,
                     ", which is not supported, and no ", ToAbsl(kLookedFor)));
  }
  if (vocab_size < 256 || vocab_size > kMaxByteVocabulary) {
    return absl::NotFoundError(absl::StrCat(
        dir.string(), " has no ", ToAbsl(kLookedFor),
        ", and its vocabulary of ", vocab_size, " is not that of raw bytes (",
        256, " to ", kMaxByteVocabulary, ")"));
  }
  return CreateByteTokenizer(vocab_size);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(
    const std::string& model_dir, int64_t vocab_size) {
  const fs::path dir(model_dir);
  if (Exists(dir / "tokenizer.json")) {
    return LoadJson(dir / "tokenizer.json", vocab_size);
  }
  if (Exists(dir / "tokenizer.model")) {
    ASSIGN_OR_RETURN(const MappedFile file,
                     MappedFile::Open((dir / "tokenizer.model").string()));
    return CreateSentencePieceTokenizer(file.bytes(), vocab_size);
  }
  ASSIGN_OR_RETURN(const std::optional<fs::path> vocabulary,
                   FindRwkvVocabulary(dir));
  if (!vocabulary.has_value()) return LoadBytes(dir, vocab_size);
  ASSIGN_OR_RETURN(const MappedFile file,
                   MappedFile::Open(vocabulary->string()));
  return CreateRwkvTokenizer(file.bytes(), vocabulary->filename().string(),
                             vocab_size);
}

}  // namespace reprise
