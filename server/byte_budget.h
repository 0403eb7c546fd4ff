// A limit on the bytes that several calls hold together.
#ifndef SERVER_BYTE_BUDGET_H_
#define SERVER_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <utility>

namespace reprise {

// Thread-safe. Must outlive its shares.
class ByteBudget {
 public:
  explicit ByteBudget(int64_t limit) : limit_(limit) {}

  // What one call holds; gives it back when destroyed. Movable, used by one
  // thread at a time.
  class Share {
   public:
    Share() = default;  // of no budget: holds nothing
    explicit Share(ByteBudget& budget) : budget_(&budget) {}
    ~Share() { Release(); }
    Share(Share&& other) noexcept
        : budget_(other.budget_), bytes_(std::exchange(other.bytes_, 0)) {}
    Share& operator=(Share&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      other.Release();
      return *this;
    }

    // False, and nothing is added, if there is no room for `bytes` more. Of a
    // share of a budget.
    bool Add(int64_t bytes) {
      if (budget_->used_.fetch_add(bytes) + bytes > budget_->limit_) {
        budget_->used_ -= bytes;
        return false;
      }
      bytes_ += bytes;
      return true;
    }

    void Release() {
      if (bytes_ > 0) budget_->used_ -= std::exchange(bytes_, 0);
    }

   private:
    ByteBudget* budget_ = nullptr;
    int64_t bytes_ = 0;
  };

  int64_t limit() const { return limit_; }
  int64_t used() const { return used_; }

 private:
  const int64_t limit_;
  std::atomic<int64_t> used_{0};
};

}  // namespace reprise

#endif  // SERVER_BYTE_BUDGET_H_
