#include "server/prefix_cache.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/log.h"
#include "engine/kernels/state_kernels.h"

namespace reprise {
namespace {

constexpr size_t kMostSeen = 1 << 16;  // of a generation, 64 tokens each

// 64-bit FNV-1a, carried on from tile to tile. Items are compared by their
// tokens: a collision costs a comparison.
constexpr uint64_t kHashStart = 0xcbf29ce484222325;

uint64_t HashBytes(uint64_t hash, std::span<const std::byte> bytes) {
  for (const std::byte byte : bytes) {
    hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

// Tokens up to the end of the `count`-th tile.
std::span<const int32_t> FirstTiles(std::span<const int32_t> prompt,
                                    size_t count) {
  return prompt.first(count * static_cast<size_t>(kTileRows));
}

}  // namespace

// One for each place where a state may be kept: whole tiles that leave a token.
std::vector<uint64_t> PrefixCache::TileHashes(
    const std::string& tenant, std::span<const int32_t> prompt) const {
  std::vector<uint64_t> hashes;
  if (prompt.empty()) return hashes;
  const size_t tiles = (prompt.size() - 1) / static_cast<size_t>(kTileRows);
  uint64_t hash = HashBytes(kHashStart, std::as_bytes(std::span(tenant)));
  for (size_t tile = 0; tile < tiles; ++tile) {
    hash = HashBytes(
        hash, std::as_bytes(prompt.subspan(tile * kTileRows, kTileRows)));
    hashes.push_back(hash);
  }
  return hashes;
}

PrefixCache::Items::iterator PrefixCache::Lookup(
    uint64_t hash, const std::string& tenant, std::span<const int32_t> tokens) {
  const auto [first, last] = by_hash_.equal_range(hash);
  for (auto it = first; it != last; ++it) {
    const Key& key = it->second->key;
    if (key.tenant == tenant &&
        std::equal(tokens.begin(), tokens.end(), key.tokens.begin(),
                   key.tokens.end())) {
      return it->second;
    }
  }
  return items_.end();
}

bool PrefixCache::Seen(uint64_t hash) const {
  return seen_.contains(hash) || seen_before_.contains(hash);
}

void PrefixCache::Remember(const std::vector<uint64_t>& hashes) {
  if (seen_.size() + hashes.size() > kMostSeen) {
    seen_before_ = std::exchange(seen_, {});
  }
  seen_.insert(hashes.begin(), hashes.end());
}

PrefixFound PrefixCache::Find(const std::string& tenant,
                              std::span<const int32_t> prompt) {
  PrefixFound found;
  found_ = items_.end();
  const std::vector<uint64_t> hashes = TileHashes(tenant, prompt);
  if (hashes.empty()) {
    found.miss = PrefixMiss::kShort;
    return found;
  }
  size_t hit = hashes.size();
  while (hit > 0 && found_ == items_.end()) {
    found_ = Lookup(hashes[hit - 1], tenant, FirstTiles(prompt, hit));
    if (found_ == items_.end()) --hit;
  }
  size_t known = hashes.size();
  while (known > 0 && !Seen(hashes[known - 1])) --known;
  if (hit > 0) {
    items_.splice(items_.end(), items_, found_);
    found.tokens = static_cast<int64_t>(found_->key.tokens.size());
  } else if (known > 0) {
    found.miss = PrefixMiss::kNotKept;
  }
  for (const size_t tiles : {known, hashes.size()}) {
    const int64_t tokens = static_cast<int64_t>(tiles) * kTileRows;
    const int64_t before =
        found.save.empty() ? found.tokens : found.save.back();
    if (tokens > before) found.save.push_back(tokens);
  }
  Remember(hashes);
  return found;
}

void PrefixCache::RestoreFound(std::byte* slot) const {
  CHECK(found_ != items_.end());
  found_->state.Restore(layout_, slot);
}

void PrefixCache::Put(const std::string& tenant,
                      std::span<const int32_t> prompt, int64_t tokens,
                      const std::byte* slot) {
  const std::span<const int32_t> beginning =
      prompt.first(static_cast<size_t>(tokens));
  const uint64_t hash =
      HashBytes(HashBytes(kHashStart, std::as_bytes(std::span(tenant))),
                std::as_bytes(beginning));
  // Another prompt that began alike may have been quicker.
  if (Lookup(hash, tenant, beginning) != items_.end()) return;
  Item item{{tenant, {beginning.begin(), beginning.end()}}, hash, {}};
  const int64_t size =
      StateImage::BytesOf(layout_, tokens) +
      static_cast<int64_t>(beginning.size_bytes() + sizeof(Item));
  if (size > capacity_bytes_) return;
  while (bytes_ + size > capacity_bytes_) Erase(items_.begin());
  item.state.Save(layout_, tokens, slot);
  items_.push_back(std::move(item));
  by_hash_.emplace(hash, std::prev(items_.end()));
  bytes_ += size;
}

void PrefixCache::Erase(Items::iterator item) {
  const auto [first, last] = by_hash_.equal_range(item->hash);
  by_hash_.erase(std::find_if(
      first, last, [item](const auto& entry) { return entry.second == item; }));
  const auto tokens = static_cast<int64_t>(item->key.tokens.size());
  bytes_ -= StateImage::BytesOf(layout_, tokens) +
            tokens * static_cast<int64_t>(sizeof(int32_t)) +
            static_cast<int64_t>(sizeof(Item));
  if (found_ == item) found_ = items_.end();
  items_.erase(item);
}

}  // namespace reprise
