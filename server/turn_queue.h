// Requests that wait for their turn: one after the other of each tenant, the
// tenants in rotation, so that a tenant with a thousand requests does not keep
// another's single one waiting.
#ifndef SERVER_TURN_QUEUE_H_
#define SERVER_TURN_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/turn.h"

namespace reprise {

// Needs a lock around it.
class TurnQueue {
 public:
  void Push(std::unique_ptr<Turn> turn);
  // Puts a turn that was popped back: before those of its tenant that came
  // later, and its tenant is the next.
  void PutBack(std::unique_ptr<Turn> turn);

  // The next one; nullptr if there is none.
  const Turn* Front() const;
  std::unique_ptr<Turn> Pop();

  // Takes out those for which `condition` holds.
  std::vector<std::unique_ptr<Turn>> RemoveIf(
      const std::function<bool(const Turn&)>& condition);

  int64_t size() const { return size_; }
  int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  void Count(const Turn& turn, int64_t sign);

  // A tenant is in both as long as it has a turn here.
  std::map<std::string, std::deque<std::unique_ptr<Turn>>> tenants_;
  std::deque<std::string> rotation_;
  int64_t next_number_ = 1;
  int64_t size_ = 0;
  int64_t prompt_tokens_ = 0;
};

}  // namespace reprise

#endif  // SERVER_TURN_QUEUE_H_
