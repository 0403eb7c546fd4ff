// What every tokenizer with a vocabulary knows of its tokens.
#ifndef ENGINE_TOKEN_TABLE_H_
#define ENGINE_TOKEN_TABLE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "engine/tokenizer.h"

namespace reprise {

// Of the description of a tokenizer: its Fnv1a.
uint64_t TokenizerFingerprint(std::string_view description);

// A tokenizer but for EncodeUpTo. Its maker fills it, then it is immutable and
// thread-safe.
class TableTokenizer : public Tokenizer {
 public:
  std::string_view TokenBytes(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> FindToken(std::string_view name) const override;
  uint64_t fingerprint() const override { return fingerprint_; }
  DecodingRules decoding_rules() const override { return rules_; }

 protected:
  explicit TableTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}

  // `id` is in [0, vocab_size). What the id had before is replaced; of two ids
  // with one name the first keeps it.
  void SetToken(int32_t id, std::string_view name, std::string bytes,
                bool special);
  void SetRules(const DecodingRules& rules) { rules_ = rules; }
  void SetFingerprint(uint64_t fingerprint) { fingerprint_ = fingerprint; }

 private:
  struct Token {
    std::string bytes;
    bool special = false;
  };

  const int64_t vocab_size_;
  uint64_t fingerprint_ = 0;
  DecodingRules rules_;
  std::vector<Token> tokens_;  // by id, as far as the vocabulary goes
  absl::flat_hash_map<std::string, int32_t> ids_;  // by name
};

}  // namespace reprise

#endif  // ENGINE_TOKEN_TABLE_H_
