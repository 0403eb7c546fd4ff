#include "engine/added_tokens.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

// Unicode's White_Space property.
bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t LeadingSpaceBytes(std::string_view text) {
  size_t bytes = 0;
  while (bytes < text.size()) {
    const size_t size = NextUtf8(text.substr(bytes)).size;
    if (!IsWhiteSpace(DecodeUtf8Character(text.substr(bytes, size)))) break;
    bytes += size;
  }
  return bytes;
}

size_t TrailingSpaceBytes(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t begin = end - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    if (!IsWhiteSpace(DecodeUtf8Character(text.substr(begin, end - begin)))) {
      break;
    }
    end = begin;
  }
  return text.size() - end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), token_of_node_(1, -1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string& content = tokens_[i].content;
    uint32_t node = 0;
    for (const char byte : content) {
      const auto next = static_cast<uint32_t>(token_of_node_.size());
      const auto [it, added] =
          children_.try_emplace(ChildKey(node, byte), next);
      if (added) token_of_node_.push_back(-1);
      node = it->second;
    }
    token_of_node_[node] = static_cast<int32_t>(i);
    starts_[static_cast<uint8_t>(content[0])] = true;
  }
}

const AddedToken* AddedTokenMatcher::Longest(std::string_view text,
                                             bool allow_special) const {
  const AddedToken* longest = nullptr;
  uint32_t node = 0;
  for (const char byte : text) {
    const auto it = children_.find(ChildKey(node, byte));
    if (it == children_.end()) break;
    node = it->second;
    if (token_of_node_[node] < 0) continue;
    const AddedToken& token = tokens_[token_of_node_[node]];
    if (allow_special || !token.special) longest = &token;
  }
  return longest;
}

absl::Status AddedTokenMatcher::Split(
    std::string_view text, bool allow_special,
    absl::FunctionRef<absl::Status(std::string_view, std::optional<int32_t>)>
        piece) const {
  size_t done = 0;  // everything before has been given to `piece`
  size_t at = 0;
  while (at < text.size()) {
    const AddedToken* token = starts_[static_cast<uint8_t>(text[at])]
                                  ? Longest(text.substr(at), allow_special)
                                  : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::string_view before = text.substr(done, at - done);
    if (token->lstrip) before.remove_suffix(TrailingSpaceBytes(before));
    if (!before.empty()) RETURN_IF_ERROR(piece(before, std::nullopt));
    at += token->content.size();
    if (token->rstrip) at += LeadingSpaceBytes(text.substr(at));
    done = at;
    RETURN_IF_ERROR(piece(token->content, token->id));
  }
  if (done == text.size()) return absl::OkStatus();
  return piece(text.substr(done), std::nullopt);
}

}  // namespace reprise
