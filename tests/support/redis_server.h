// redis-server as a child process, on a free port of 127.0.0.1 and a local
// socket, its files in a folder of the test's.
#ifndef TESTS_SUPPORT_REDIS_SERVER_H_
#define TESTS_SUPPORT_REDIS_SERVER_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/eventually.h"
#include "tests/support/free_port.h"
#include "tests/support/temp_dir.h"

namespace reprise {

// Killed, if it still runs, when the test is over. Writes a log that survives
// a kill, so that Start after Kill brings its data back. The program can be
// another one, such as valkey-server: $REPRISE_REDIS_SERVER names it.
class RedisServer {
 public:
  // Arguments to add, such as {"--requirepass", "secret"}.
  explicit RedisServer(std::vector<std::string> arguments = {})
      : arguments_(std::move(arguments)) {
    // Another program may take the port first.
    for (int tries = 0; tries < 20 && !running(); ++tries) {
      port_ = FreePort();
      Start();
    }
    EXPECT_TRUE(running()) << Log();
  }
  ~RedisServer() { Kill(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  // On the same port and data as before. Returns when it serves, or has ended.
  void Start() {
    const std::string ready = "eady to accept connections";
    std::ofstream(LogPath(), std::ios::trunc);
    std::vector<std::string> all = {
        Program(), "--port", std::to_string(port_), "--bind", "127.0.0.1",
        "--dir", dir_.path(), "--unixsocket", socket_path(), "--save", "",
        "--appendonly", "yes",
        // It is killed, and writes late if its disk is busy.
        "--appendfsync", "always", "--logfile", LogPath(),
        // Replicas of a test need not be waited for.
        "--repl-diskless-sync-delay", "0"};
    all.insert(all.end(), arguments_.begin(), arguments_.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      const int null = open("/dev/null", O_RDWR);
      dup2(null, STDOUT_FILENO);
      dup2(null, STDERR_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    EXPECT_TRUE(Eventually(
        [&] { return Log().find(ready) != std::string::npos || Ended(); }));
  }

  void Signal(int signal) const { kill(pid_, signal); }
  void Kill() {
    if (!running()) return;
    Signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  bool running() const { return pid_ > 0; }
  int port() const { return port_; }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  // As a store. `parameters` is what may follow the question mark.
  std::string Uri(const std::string& parameters = "") const {
    return "redis://" + address() +
           (parameters.empty() ? "" : "?" + parameters);
  }
  std::string socket_path() const { return dir_.Path("socket"); }
  std::string Log() const {
    std::ostringstream text;
    text << std::ifstream(LogPath()).rdbuf();
    return text.str();
  }

 private:
  static std::string Program() {
    const char* const program = std::getenv("REPRISE_REDIS_SERVER");
    return program != nullptr ? program : "redis-server";
  }
  std::string LogPath() const { return dir_.Path("log"); }

  bool Ended() {
    if (running() && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
    return !running();
  }

  const TempDir dir_;
  const std::vector<std::string> arguments_;
  int port_ = 0;
  pid_t pid_ = -1;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_REDIS_SERVER_H_
