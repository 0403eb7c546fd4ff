// A small tokenizer.json to change and load: the 256 bytes (id = byte), then
// one token for each merge, then the added tokens.
#ifndef TESTS_SUPPORT_BPE_JSON_H_
#define TESTS_SUPPORT_BPE_JSON_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/bpe_tokenizer.h"
#include "engine/tokenizer_json.h"
#include "tests/support/json.h"

namespace reprise {

using Merges = std::vector<std::pair<std::string, std::string>>;

// The name of a byte in the vocabularies of GPT-2 and its kin.
inline std::string ByteName(int byte) {
  int code = byte;
  if (byte <= 0x20) {
    code = 0x100 + byte;
  } else if (byte >= 0x7F && byte <= 0xA0) {
    code = 0x121 + byte - 0x7F;
  } else if (byte == 0xAD) {
    code = 0x143;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | code >> 6),
          static_cast<char>(0x80 | (code & 0x3F))};
}

// The name of bytes in such a vocabulary.
inline std::string ByteNames(std::string_view bytes) {
  std::string names;
  for (const char byte : bytes) names += ByteName(static_cast<uint8_t>(byte));
  return names;
}

// Merges are given in bytes, not names.
inline Json BpeJson(const Merges& merges = {}) {
  Json json = JsonOf(R"({
      "version": "1.0",
      "added_tokens": [],
      "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "decoder": {"type": "ByteLevel"},
      "model": {"type": "BPE", "vocab": {}, "merges": []}})");
  Json& vocab = json["model"]["vocab"];
  Json& lines = json["model"]["merges"];
  int next = 0;
  for (; next < 256; ++next) vocab[ByteName(next)] = next;
  for (const auto& [left, right] : merges) {
    const std::string name = ByteNames(left + right);
    if (!vocab.contains(name)) vocab[name] = next++;
    lines.push_back(ByteNames(left) + " " + ByteNames(right));
  }
  return json;
}

inline Json AddedTokenJson(int id, const std::string& content, bool special) {
  Json token;
  token["id"] = id;
  token["content"] = content;
  token["special"] = special;
  return token;
}

inline absl::StatusOr<std::unique_ptr<Tokenizer>> LoadBpe(
    const Json& json, int64_t vocab_size = 1000) {
  ASSIGN_OR_RETURN(const BpeSpec spec,
                   ParseTokenizerJson(JsonText(json), vocab_size));
  return CreateBpeTokenizer(spec, vocab_size);
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_BPE_JSON_H_
