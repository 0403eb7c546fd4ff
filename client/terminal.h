// Where the command line writes: results to stdout, everything else to stderr.
// What is a terminal gets colour and only harmless characters; a pipe gets the
// bytes as they are.
#ifndef CLIENT_TERMINAL_H_
#define CLIENT_TERMINAL_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "engine/base/mutex.h"

namespace reprise {

// Descriptors are borrowed. The defaults are a pipe's.
struct TerminalOptions {
  int out_fd = 1;
  int err_fd = 2;
  bool out_is_terminal = false;
  bool err_is_terminal = false;
  bool colour = false;  // on stderr
};

// Those of this process: isatty, and no colour with NO_COLOR or TERM=dumb.
TerminalOptions StandardTerminal();

// Used by one thread.
class Terminal {
 public:
  explicit Terminal(const TerminalOptions& options) : options_(options) {}

  // Writes to stdout, at once. The first failure is remembered and ends all
  // later writes.
  void Print(std::string_view text);
  // A newline to stdout unless it stands at the beginning of a line.
  void EndLine();

  // Lines on stderr; a newline is added. Note is dimmed.
  void Note(std::string_view text);
  void Error(std::string_view text);
  // Text on stderr without a newline.
  void Prompt(std::string_view text);

  // A line on stderr that the next one is written over, if that is a terminal;
  // otherwise nothing. An empty one takes it away: do that before anything else
  // is written.
  void Progress(std::string_view text);

  bool out_is_terminal() const { return options_.out_is_terminal; }
  // Someone looks at both streams: spinners and summaries are welcome.
  bool interactive() const {
    return options_.out_is_terminal && options_.err_is_terminal;
  }
  const TerminalOptions& options() const { return options_; }

  // The reader of stdout has gone (`| head`): end quietly.
  bool out_closed() const;
  // OK while stdout can be written to, or after its reader has gone; else
  // Unknown with the first failure ("No space left on device").
  absl::Status status() const;

 private:
  void WriteError(std::string_view text, bool dim);

  const TerminalOptions options_;
  int out_errno_ = 0;  // of the first failed write
  bool at_line_start_ = true;
  size_t progress_size_ = 0;  // characters of the line that stands there
};

// A turning bar on stderr from construction to destruction or Stop, if the
// terminal is interactive; otherwise nothing. Nothing else may write meanwhile.
class Spinner {
 public:
  explicit Spinner(const Terminal& terminal);
  ~Spinner() { Stop(); }
  Spinner(const Spinner&) = delete;
  Spinner& operator=(const Spinner&) = delete;

  // Takes the bar away. May be called again.
  void Stop();

 private:
  void Turn();

  const int fd_;
  Mutex mu_;
  CondVar stopped_changed_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace reprise

#endif  // CLIENT_TERMINAL_H_
