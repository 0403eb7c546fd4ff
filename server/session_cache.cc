#include "server/session_cache.h"

#include <utility>

namespace reprise {
namespace {

// About a megabyte of them.
constexpr size_t kMaxNotes = 4096;

}  // namespace

bool SessionCache::Fits(uint64_t bytes) const {
  return bytes <= static_cast<uint64_t>(capacity_bytes_);
}

void SessionCache::Put(const SessionKey& key, const StoredSession& stored,
                       std::string snapshot, const std::string& note) {
  if (!Fits(snapshot.size())) return Note(key, note);
  auto shared = std::make_shared<const std::string>(std::move(snapshot));
  MutexLock lock(mu_);
  EraseLocked(key);
  Item& item = items_[key];
  bytes_ += static_cast<int64_t>(shared->size());
  item.cached = {stored, std::move(shared), note};
  Link(key, item);
  Shrink();
}

void SessionCache::Note(const SessionKey& key, const std::string& note) {
  MutexLock lock(mu_);
  const auto [it, added] = items_.try_emplace(key);
  it->second.cached.note = note;
  if (added) Link(key, it->second);
  Shrink();
}

void SessionCache::UpdateStored(const SessionKey& key,
                                const StoredSession& stored) {
  MutexLock lock(mu_);
  const auto it = items_.find(key);
  if (it == items_.end() || it->second.cached.snapshot == nullptr) return;
  it->second.cached.stored = stored;
}

void SessionCache::Erase(const SessionKey& key) {
  MutexLock lock(mu_);
  EraseLocked(key);
}

std::optional<SessionCache::Cached> SessionCache::Find(const SessionKey& key) {
  MutexLock lock(mu_);
  const auto it = items_.find(key);
  if (it == items_.end()) return std::nullopt;
  Item& item = it->second;
  std::list<SessionKey>& list =
      item.cached.snapshot != nullptr ? snapshots_ : notes_;
  list.splice(list.end(), list, item.place);
  return item.cached;
}

bool SessionCache::HasSnapshot(const SessionKey& key) const {
  MutexLock lock(mu_);
  const auto it = items_.find(key);
  return it != items_.end() && it->second.cached.snapshot != nullptr;
}

bool SessionCache::complete() const {
  MutexLock lock(mu_);
  return complete_;
}

int64_t SessionCache::bytes() const {
  MutexLock lock(mu_);
  return bytes_;
}

void SessionCache::EraseLocked(const SessionKey& key) {
  const auto it = items_.find(key);
  if (it == items_.end()) return;
  const Cached& cached = it->second.cached;
  if (cached.snapshot != nullptr) {
    bytes_ -= static_cast<int64_t>(cached.snapshot->size());
    snapshots_.erase(it->second.place);
  } else {
    notes_.erase(it->second.place);
  }
  items_.erase(it);
}

void SessionCache::Link(const SessionKey& key, Item& item) {
  std::list<SessionKey>& list =
      item.cached.snapshot != nullptr ? snapshots_ : notes_;
  item.place = list.insert(list.end(), key);
}

void SessionCache::Shrink() {
  while (bytes_ > capacity_bytes_) {
    const SessionKey key = snapshots_.front();
    const std::string note = items_.at(key).cached.note;
    EraseLocked(key);
    Item& item = items_[key];
    item.cached.note = note + "; other snapshots took its place in memory";
    Link(key, item);
  }
  while (notes_.size() > kMaxNotes) {
    complete_ = false;
    EraseLocked(SessionKey(notes_.front()));
  }
}

}  // namespace reprise
