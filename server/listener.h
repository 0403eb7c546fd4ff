// The TCP port of the gRPC service. gRPC 1.51 could listen itself, but stops to
// accept for ever once descriptors ran out, and names a port that is taken only
// in the lines of its own log.
//
// Bound early, so that nobody waits for a model only to learn that the port is
// taken; listening late, so that connections are refused until they would be
// served.
#ifndef SERVER_LISTENER_H_
#define SERVER_LISTENER_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct addrinfo;

namespace reprise {

// Used by one thread.
class Listener {
 public:
  // Gets a connection, not blocking, and owns it; on the listener's thread.
  using Take = std::function<void(int fd)>;

  // Binds every address that `address`, HOST:PORT, stands for; port 0 takes a
  // free one, the same for all. Unavailable, naming the address and the
  // system's reason, if there is none or not one of them can be bound.
  static absl::StatusOr<std::unique_ptr<Listener>> Bind(
      const std::string& address);
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int port() const { return port_; }

  // Listens, and accepts connections on a thread of its own until Stop.
  // Unavailable if somebody else listens by now; std::system_error if there is
  // no thread. Called once.
  //
  // Some descriptors are left to the rest of the process (the store must be
  // able to commit): connections beyond are closed at once. If there are none
  // all the same, connections wait until there are.
  absl::Status Start(Take take);
  // Closes the port. No `take` runs when it returns.
  void Stop();

 private:
  Listener() = default;
  absl::Status BindOne(const addrinfo& info);
  void Work(const Take& take);
  void AcceptSome(int listening_fd, const Take& take);
  // Sleeps for a short while, or until Stop.
  void Pause() const;

  std::string address_;
  int port_ = 0;
  std::vector<int> fds_;
  int stop_fd_ = -1;  // an eventfd, readable from Stop on
  std::thread thread_;
};

}  // namespace reprise

#endif  // SERVER_LISTENER_H_
