// The reprise-server binary as a child process.
#ifndef TESTS_SUPPORT_SERVER_PROCESS_H_
#define TESTS_SUPPORT_SERVER_PROCESS_H_

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "proto/inference.grpc.pb.h"
#include "tests/support/eventually.h"
#include "tests/support/temp_dir.h"

namespace reprise {

inline std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// Killed, if it still runs, when the test is over.
class ServerProcess {
 public:
  // Starts the binary on free ports with `arguments` added; without a stdin if
  // it is to be closed.
  explicit ServerProcess(std::vector<std::string> arguments,
                         bool close_stdin = false) {
    const std::string binary = REPRISE_BINARY_DIR "/reprise-server";
    std::vector<std::string> all = {
        binary, "--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
        "--port-file=" + dir_.path() + "/ports", "--threads=1"};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& argument : all) argv.push_back(argument.data());
    argv.push_back(nullptr);
    const std::string log = dir_.path() + "/log";
    pid_ = fork();
    if (pid_ == 0) {
      const int fd = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
      dup2(fd, STDOUT_FILENO);
      dup2(fd, STDERR_FILENO);
      if (close_stdin) close(STDIN_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~ServerProcess() {
    if (running_) {
      Signal(SIGKILL);
      Wait();
    }
  }
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Waits until it serves; false, with its log in the test's output, if it
  // ended instead.
  bool AwaitReady() {
    const bool ready = Eventually([this] {
      std::istringstream ports(ReadFile(dir_.path() + "/ports"));
      std::string name;
      while (ports >> name) ports >> (name == "grpc" ? grpc_port_ : metrics_);
      return grpc_port_ > 0 || Ended();
    });
    if (ready && grpc_port_ > 0) return true;
    ADD_FAILURE() << "not ready; its log:\n" << Log();
    return false;
  }

  void Signal(int signal) const { kill(pid_, signal); }
  // The exit code; 128 and the signal if one ended it; -1 after a minute.
  int Wait() {
    if (!Eventually([this] { return Ended(); })) return -1;
    return code_;
  }
  // Waits until the log has `text`.
  bool AwaitLog(const std::string& text) const {
    return Eventually([&] { return Log().find(text) != std::string::npos; });
  }

  std::string Log() const { return ReadFile(dir_.path() + "/log"); }
  pid_t pid() const { return pid_; }
  int grpc_port() const { return grpc_port_; }
  int metrics_port() const { return metrics_; }

  std::unique_ptr<v1::Inference::Stub> NewStub() const {
    return v1::Inference::NewStub(NewChannel());
  }
  std::unique_ptr<v1::Sessions::Stub> NewSessionsStub() const {
    return v1::Sessions::NewStub(NewChannel());
  }

 private:
  std::shared_ptr<grpc::Channel> NewChannel() const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(grpc_port_),
                                     grpc::InsecureChannelCredentials(),
                                     arguments);
  }

  bool Ended() {
    int status = 0;
    if (running_ && waitpid(pid_, &status, WNOHANG) == pid_) {
      running_ = false;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return !running_;
  }

  TempDir dir_;
  pid_t pid_ = -1;
  bool running_ = true;
  int code_ = -1;
  int grpc_port_ = 0;
  int metrics_ = 0;
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_SERVER_PROCESS_H_
