// A child process with its standard streams in our hands.
#ifndef TESTS_SUPPORT_PROCESS_H_
#define TESTS_SUPPORT_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace reprise {

class Process {
 public:
  enum class Streams {
    kPipes,     // three pipes
    kTerminal,  // all three are one new terminal, its output is out
  };

  // Starts arguments[0] with `arguments`.
  Process(const std::vector<std::string>& arguments, Streams streams);
  // Kills the process if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Write(std::string_view text);
  void CloseInput();
  // Stops reading: the process writes to a closed pipe from now on.
  void CloseOutput();
  void Signal(int signal);

  // Reads stdout (or the terminal) until `text` was seen or it ends; returns
  // whether it was. What was read stays in out().
  bool ReadUntil(std::string_view text);
  // Reads the rest of stdout and stderr, waits, and returns the exit code, or
  // 128 and the number of the signal that ended it.
  int Wait();

  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  // Appends what is there to `text`; false at the end.
  static bool ReadMore(int fd, std::string& text);

  pid_t pid_ = -1;
  int in_fd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;  // none at a terminal
  std::string out_;
  std::string err_;
  size_t searched_ = 0;  // of out_, by ReadUntil
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_PROCESS_H_
