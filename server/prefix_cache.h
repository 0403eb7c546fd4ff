// States of the beginnings of prompts: what many prompts begin with is computed
// once. For prompts that begin a conversation, with or without a session.
//
// A state is kept where a tile of the prompt ends (kTileRows tokens each,
// counted from the first), since a prompt may be cut nowhere else:
//
//  * at the last such place of every prompt, for the same prompt, or a longer
//    one that begins with it, to come;
//  * at the last place up to which a prompt is known from another one. That a
//    beginning is common is seen at its second coming, so its third is a hit.
//
// A state is a function of the tokens alone, so a hit changes no bit.
#ifndef SERVER_PREFIX_CACHE_H_
#define SERVER_PREFIX_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "engine/state/state_copy.h"
#include "engine/state/state_layout.h"
#include "server/metrics.h"

namespace reprise {

// What Find says of a prompt.
struct PrefixFound {
  int64_t tokens = 0;  // of the prompt, that the state has consumed; 0 = a miss
  PrefixMiss miss = PrefixMiss::kUnknown;  // why, if it is one
  // After how many tokens of the prompt its state should be put, ascending.
  std::vector<int64_t> save;
};

// Used by the scheduler's thread only. What one tenant puts no other finds.
class PrefixCache {
 public:
  // `layout` must outlive the cache. Nothing is kept if `capacity_bytes` is 0.
  PrefixCache(const StateLayout& layout, int64_t capacity_bytes)
      : layout_(layout), capacity_bytes_(capacity_bytes) {}

  bool enabled() const { return capacity_bytes_ > 0; }

  // Looks for the longest state that begins `prompt` and leaves a token of it
  // to be read. RestoreFound writes that state to a zeroed slot; call it before
  // the next Find or Put. CHECKs that it was a hit.
  PrefixFound Find(const std::string& tenant, std::span<const int32_t> prompt);
  void RestoreFound(std::byte* slot) const;

  // Keeps the state in `slot`, which has consumed the first `tokens` of
  // `prompt`; others go for it, the least recently used first. Not if it alone
  // would pass the capacity.
  void Put(const std::string& tenant, std::span<const int32_t> prompt,
           int64_t tokens, const std::byte* slot);

  int64_t bytes() const { return bytes_; }
  int64_t capacity_bytes() const { return capacity_bytes_; }

 private:
  struct Key {
    std::string tenant;
    std::vector<int32_t> tokens;
  };
  struct Item {
    Key key;
    uint64_t hash = 0;
    StateImage state;
  };
  using Items = std::list<Item>;  // least recently used first

  std::vector<uint64_t> TileHashes(const std::string& tenant,
                                   std::span<const int32_t> prompt) const;
  Items::iterator Lookup(uint64_t hash, const std::string& tenant,
                         std::span<const int32_t> tokens);
  bool Seen(uint64_t hash) const;
  void Remember(const std::vector<uint64_t>& hashes);
  void Erase(Items::iterator item);

  const StateLayout& layout_;
  const int64_t capacity_bytes_;
  Items items_;
  std::multimap<uint64_t, Items::iterator> by_hash_;
  Items::iterator found_ = items_.end();
  int64_t bytes_ = 0;

  // Beginnings that came by lately, in two generations: when the younger one is
  // full it becomes the older.
  std::unordered_set<uint64_t> seen_, seen_before_;
};

}  // namespace reprise

#endif  // SERVER_PREFIX_CACHE_H_
