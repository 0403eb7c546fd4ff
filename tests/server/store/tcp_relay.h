// A relay in front of a server on 127.0.0.1 that loses answers or holds
// requests back when told to.
#ifndef TESTS_SERVER_STORE_TCP_RELAY_H_
#define TESTS_SERVER_STORE_TCP_RELAY_H_

#include <array>
#include <atomic>
#include <functional>
#include <list>
#include <string>
#include <thread>

namespace reprise {

// One thread carries all connections.
class TcpRelay {
 public:
  explicit TcpRelay(int server_port);
  ~TcpRelay();

  int port() const { return port_; }

  // The next request with `sign` in it is carried, but not what the server
  // answers: that connection ends. `meanwhile`, if given, runs before it ends.
  void LoseAnswerTo(const std::string& sign,
                    std::function<void()> meanwhile = nullptr) {
    Arm(sign, /*lose=*/true, std::move(meanwhile));
  }
  // The next request with `sign` in it is held back until `first` has run.
  void RunBefore(const std::string& sign, std::function<void()> first) {
    Arm(sign, /*lose=*/false, std::move(first));
  }
  // Whether such a request came since.
  bool happened() const { return !armed_; }

 private:
  struct Pair {
    int client = -1;
    int server = -1;
    bool doomed = false;
  };

  void Arm(const std::string& sign, bool lose, std::function<void()> run);
  void Accept();
  bool Step(Pair& pair, bool client_ready, bool server_ready);
  void Fire();
  void Carry();

  const int server_port_;
  int port_ = 0;
  int listener_ = -1;
  std::array<int, 2> wake_ = {-1, -1};
  std::list<Pair> pairs_;  // the thread's
  std::string sign_;
  bool lose_ = false;
  std::function<void()> run_;
  std::atomic<bool> armed_{false};  // orders the three above
  std::thread thread_;              // last: it uses the others
};

}  // namespace reprise

#endif  // TESTS_SERVER_STORE_TCP_RELAY_H_
