#include "engine/byte_trie.h"

namespace reprise {
namespace {

uint64_t ChildKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

bool ByteTrie::Insert(std::string_view key, int32_t value) {
  uint32_t node = 0;
  for (const char byte : key) {
    const auto next = static_cast<uint32_t>(value_of_node_.size());
    const auto [it, added] = children_.try_emplace(ChildKey(node, byte), next);
    if (added) value_of_node_.push_back(kNone);
    node = it->second;
  }
  if (value_of_node_[node] != kNone) return false;
  value_of_node_[node] = value;
  starts_[static_cast<uint8_t>(key[0])] = true;
  return true;
}

void ByteTrie::ForEachPrefix(
    std::string_view text,
    absl::FunctionRef<void(size_t size, int32_t value)> found) const {
  if (text.empty() || !starts_[static_cast<uint8_t>(text[0])]) return;
  uint32_t node = 0;
  for (size_t size = 1; size <= text.size(); ++size) {
    const auto it = children_.find(ChildKey(node, text[size - 1]));
    if (it == children_.end()) return;
    node = it->second;
    if (value_of_node_[node] != kNone) found(size, value_of_node_[node]);
  }
}

}  // namespace reprise
