#include "engine/token_table.h"

#include <utility>

#include "engine/base/bytes.h"
#include "engine/base/hash.h"
#include "engine/base/log.h"

namespace reprise {

uint64_t TokenizerFingerprint(std::string_view description) {
  return Fnv1a(description);
}

std::string_view TableTokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= std::ssize(tokens_)) return {};
  return tokens_[id].bytes;
}

bool TableTokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < std::ssize(tokens_) && tokens_[id].special;
}

std::optional<int32_t> TableTokenizer::FindToken(std::string_view name) const {
  const auto it = ids_.find(ToAbsl(name));
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

void TableTokenizer::SetToken(int32_t id, std::string_view name,
                              std::string bytes, bool special) {
  CHECK(id >= 0 && id < vocab_size_);
  if (id >= std::ssize(tokens_)) tokens_.resize(id + 1);
  tokens_[id] = {std::move(bytes), special};
  ids_.try_emplace(ToAbsl(name), id);
}

}  // namespace reprise
