#include "server/turn_queue.h"

#include <algorithm>
#include <utility>

#include "engine/base/log.h"

namespace reprise {

void TurnQueue::Count(const Turn& turn, int64_t sign) {
  size_ += sign;
  prompt_tokens_ += sign * PromptTokens(turn.request);
}

void TurnQueue::Push(std::unique_ptr<Turn> turn) {
  Count(*turn, 1);
  turn->number = next_number_++;
  const std::string& tenant = turn->request.tenant;
  auto [entry, added] = tenants_.try_emplace(tenant);
  if (added) rotation_.push_back(tenant);
  entry->second.push_back(std::move(turn));
}

void TurnQueue::PutBack(std::unique_ptr<Turn> turn) {
  Count(*turn, 1);
  const std::string& tenant = turn->request.tenant;
  std::erase(rotation_, tenant);
  rotation_.push_front(tenant);
  std::deque<std::unique_ptr<Turn>>& turns = tenants_[tenant];
  const auto place = std::find_if(
      turns.begin(), turns.end(),
      [&](const auto& other) { return other->number > turn->number; });
  turns.insert(place, std::move(turn));
}

const Turn* TurnQueue::Front() const {
  if (rotation_.empty()) return nullptr;
  return tenants_.at(rotation_.front()).front().get();
}

std::unique_ptr<Turn> TurnQueue::Pop() {
  if (rotation_.empty()) return nullptr;
  const auto entry = tenants_.find(rotation_.front());
  CHECK(entry != tenants_.end());
  std::unique_ptr<Turn> turn = std::move(entry->second.front());
  entry->second.pop_front();
  if (entry->second.empty()) {
    tenants_.erase(entry);
  } else {
    rotation_.push_back(entry->first);
  }
  rotation_.pop_front();
  Count(*turn, -1);
  return turn;
}

std::vector<std::unique_ptr<Turn>> TurnQueue::RemoveIf(
    const std::function<bool(const Turn&)>& condition) {
  std::vector<std::unique_ptr<Turn>> removed;
  for (auto entry = tenants_.begin(); entry != tenants_.end();) {
    std::deque<std::unique_ptr<Turn>>& turns = entry->second;
    for (std::unique_ptr<Turn>& turn : turns) {
      if (!condition(*turn)) continue;
      Count(*turn, -1);
      removed.push_back(std::move(turn));
    }
    std::erase(turns, nullptr);
    if (turns.empty()) {
      std::erase(rotation_, entry->first);
      entry = tenants_.erase(entry);
    } else {
      ++entry;
    }
  }
  return removed;
}

}  // namespace reprise
