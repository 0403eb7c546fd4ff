// Byte strings to look for at the beginning of a text.
#ifndef ENGINE_BYTE_TRIE_H_
#define ENGINE_BYTE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"

namespace reprise {

// Once filled it is not changed, and then thread-safe.
class ByteTrie {
 public:
  ByteTrie() : value_of_node_(1, kNone) {}

  // `key` is not empty, `value` not negative. False, and nothing done, if the
  // key is there already.
  bool Insert(std::string_view key, int32_t value);

  // Calls `found` for each key that `text` begins with, the shortest first.
  // Takes a look-up for each byte of the longest beginning of any key.
  void ForEachPrefix(
      std::string_view text,
      absl::FunctionRef<void(size_t size, int32_t value)> found) const;

 private:
  static constexpr int32_t kNone = -1;

  // (node, byte) -> node; node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> children_;
  std::vector<int32_t> value_of_node_;
  std::array<bool, 256> starts_ = {};  // bytes that some key begins with
};

}  // namespace reprise

#endif  // ENGINE_BYTE_TRIE_H_
