#include "server/token_stream.h"

#include <utility>

namespace reprise {

// Callbacks are copied under the lock and called outside it: a reader may pop
// from inside its wakeup, and what a callback holds lives until it returns.

void TokenStream::Push(StreamEvent event) {
  std::function<void()> wakeup;
  {
    MutexLock lock(mu_);
    if (final_.has_value()) return;
    if (events_.empty()) wakeup = wakeup_;
    if (std::holds_alternative<DeltaEvent>(event)) ++deltas_;
    events_.push_back(std::move(event));
  }
  if (wakeup) wakeup();
}

void TokenStream::Close(absl::Status status) {
  std::function<void()> wakeup;
  {
    MutexLock lock(mu_);
    if (final_.has_value()) return;
    final_ = std::move(status);
    wakeup = wakeup_;
  }
  if (wakeup) wakeup();
}

bool TokenStream::full() const {
  MutexLock lock(mu_);
  return deltas_ >= max_deltas_;
}

void TokenStream::SetReaderWakeup(std::function<void()> wakeup) {
  MutexLock lock(mu_);
  reader_wakeup_ = std::move(wakeup);
}

void TokenStream::SetWakeup(std::function<void()> wakeup) {
  MutexLock lock(mu_);
  wakeup_ = std::move(wakeup);
}

std::optional<StreamEvent> TokenStream::Pop() {
  std::function<void()> wakeup;
  std::optional<StreamEvent> event;
  {
    MutexLock lock(mu_);
    if (events_.empty()) return std::nullopt;
    event = std::move(events_.front());
    events_.pop_front();
    if (std::holds_alternative<DeltaEvent>(*event)) {
      --deltas_;
      if (deltas_ == max_deltas_ - 1) wakeup = reader_wakeup_;
    }
  }
  if (wakeup) wakeup();
  return event;
}

std::optional<absl::Status> TokenStream::FinalStatus() const {
  MutexLock lock(mu_);
  if (!events_.empty()) return std::nullopt;
  return final_;
}

bool TokenStream::closed() const {
  MutexLock lock(mu_);
  return final_.has_value();
}

void TokenStream::Cancel(CancelCause cause) {
  std::function<void()> wakeup;
  {
    MutexLock lock(mu_);
    if (cancelled_.has_value()) return;
    cancelled_ = cause;
    wakeup = reader_wakeup_;
  }
  if (wakeup) wakeup();
}

std::optional<CancelCause> TokenStream::cancelled() const {
  MutexLock lock(mu_);
  return cancelled_;
}

}  // namespace reprise
