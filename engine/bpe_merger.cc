#include "engine/bpe_merger.h"

#include <algorithm>

namespace reprise {

void BpeMerger::Start(size_t size) {
  symbols_.clear();
  symbols_.reserve(size);
  heap_.clear();
}

void BpeMerger::Add(int32_t id) {
  const auto at = static_cast<int32_t>(symbols_.size());
  symbols_.push_back({id, at - 1, at + 1});
}

void BpeMerger::Finish(std::vector<int32_t>* ids) {
  if (symbols_.empty()) return;
  symbols_.back().next = -1;
  for (size_t i = 0; i + 1 < symbols_.size(); ++i) {
    Propose(static_cast<int32_t>(i));
  }
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), After);
    const Candidate best = heap_.back();
    heap_.pop_back();
    Apply(best);
  }
  // The first symbol is never merged into one before it.
  for (int32_t at = 0; at >= 0; at = symbols_[at].next) {
    ids->push_back(symbols_[at].id);
  }
}

// Enters the merge of the symbol at `at` and the next, if there is one.
void BpeMerger::Propose(int32_t at) {
  const int32_t left = symbols_[at].id;
  const int32_t right = symbols_[symbols_[at].next].id;
  const BpeMerge* merge = merges_.Find(left, right);
  if (merge == nullptr) return;
  heap_.push_back({*merge, at, left, right});
  std::push_heap(heap_.begin(), heap_.end(), After);
}

void BpeMerger::Apply(const Candidate& candidate) {
  Symbol& left = symbols_[candidate.at];
  if (left.id != candidate.left || left.next < 0) return;
  Symbol& right = symbols_[left.next];
  if (right.id != candidate.right) return;
  left.id = candidate.merge.id;
  right.id = -1;
  left.next = right.next;
  if (left.next >= 0) {
    symbols_[left.next].previous = candidate.at;
    Propose(candidate.at);
  }
  if (left.previous >= 0) Propose(left.previous);
}

}  // namespace reprise
