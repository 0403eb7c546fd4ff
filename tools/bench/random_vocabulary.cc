#include "tools/bench/random_vocabulary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/base/utf8.h"

namespace reprise::bench {
namespace {

constexpr int64_t kBytes = 256;
constexpr char kEndOfText[] = "<|endoftext|>";
constexpr char kSpaceName[] = "\xC4\xA0";  // U+0120, GPT-2's for a space

// In the order of length, then the alphabet's: a, b, ..., aa, ab, ...
std::string Word(int64_t index) {
  std::string word;
  for (int64_t rest = index + 1; rest > 0; rest = (rest - 1) / 26) {
    word += static_cast<char>('a' + (rest - 1) % 26);
  }
  std::reverse(word.begin(), word.end());
  return word;
}

// GPT-2's names of bytes: what can be seen stands for itself, the others are
// the characters from 256 on.
void AddByteNames(nlohmann::json& vocab) {
  char32_t next = kBytes;
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    const bool visible = (byte >= '!' && byte <= '~') ||
                         (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    std::string name;
    AppendUtf8(visible ? static_cast<char32_t>(byte) : next++, &name);
    vocab[name] = 1 + byte;
  }
}

}  // namespace

std::string BytePairTokenizerJson(int64_t vocab_size) {
  // Not ordered_json, which looks through all keys for every new one.
  nlohmann::json vocab = {{kEndOfText, 0}};
  AddByteNames(vocab);
  for (int64_t id = 1 + kBytes; id < vocab_size; ++id) {
    vocab[kSpaceName + Word(id - 1 - kBytes)] = id;
  }
  const nlohmann::json end = {
      {"id", 0},         {"content", kEndOfText}, {"single_word", false},
      {"lstrip", false}, {"rstrip", false},       {"normalized", false},
      {"special", true}};
  const nlohmann::json bytes = {{"type", "ByteLevel"},
                                {"add_prefix_space", false},
                                {"trim_offsets", true},
                                {"use_regex", true}};
  const nlohmann::json tokenizer = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", nlohmann::json::array({end})},
      {"normalizer", nullptr},
      {"pre_tokenizer", bytes},
      {"post_processor", nullptr},
      {"decoder", bytes},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", std::move(vocab)},
        {"merges", nlohmann::json::array()}}}};
  return tokenizer.dump();
}

std::string RwkvVocabulary(int64_t vocab_size) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string lines;
  for (int64_t byte = 0; byte < kBytes; ++byte) {
    absl::StrAppend(&lines, 1 + byte, " b'\\x", std::string(1, kHex[byte / 16]),
                    std::string(1, kHex[byte % 16]), "' 1\n");
  }
  for (int64_t id = 1 + kBytes; id < vocab_size; ++id) {
    const std::string word = Word(id - 1 - kBytes);
    absl::StrAppend(&lines, id, " ' ", word, "' ", word.size() + 1, "\n");
  }
  return lines;
}

}  // namespace reprise::bench
