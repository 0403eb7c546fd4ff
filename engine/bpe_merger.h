// The merging of byte-pair encoding (Sennrich et al. 2016, "Neural Machine
// Translation of Rare Words with Subword Units", algorithm 1).
#ifndef ENGINE_BPE_MERGER_H_
#define ENGINE_BPE_MERGER_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace reprise {

struct BpeMerge {
  int32_t rank = 0;  // the least is done first
  int32_t id = 0;    // of the merged token
};

// What two neighbours become. Once filled it is not changed, and thread-safe.
class BpeMerges {
 public:
  void Reserve(size_t size) { merges_.reserve(size); }
  // Of two equal pairs the later one counts.
  void Add(int32_t left, int32_t right, BpeMerge merge) {
    merges_[Key(left, right)] = merge;
  }
  // Null if the two do not merge.
  const BpeMerge* Find(int32_t left, int32_t right) const {
    const auto it = merges_.find(Key(left, right));
    return it == merges_.end() ? nullptr : &it->second;
  }

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 |
           static_cast<uint32_t>(right);
  }
  absl::flat_hash_map<uint64_t, BpeMerge> merges_;
};

// Merges the tokens of one piece until no merge applies, always the best one
// and of equal ones the leftmost. A linked list of tokens and a heap of the
// merges that were possible when they were found: n log n steps for n tokens.
// Reused for all pieces of a text; used by one thread.
class BpeMerger {
 public:
  // `merges` must outlive the merger.
  explicit BpeMerger(const BpeMerges& merges) : merges_(merges) {}

  // Begins a piece of about `size` tokens.
  void Start(size_t size);
  // Appends a token; `id` is not negative.
  void Add(int32_t id);
  // Merges, and appends what is left to `ids`.
  void Finish(std::vector<int32_t>* ids);

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the one before
    int32_t previous, next;
  };
  struct Candidate {
    BpeMerge merge;
    int32_t at;           // the left symbol
    int32_t left, right;  // ids; it is stale if they changed
  };

  static bool After(const Candidate& a, const Candidate& b) {
    return std::pair(a.merge.rank, a.at) > std::pair(b.merge.rank, b.at);
  }
  void Propose(int32_t at);
  void Apply(const Candidate& candidate);

  const BpeMerges& merges_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace reprise

#endif  // ENGINE_BPE_MERGER_H_
