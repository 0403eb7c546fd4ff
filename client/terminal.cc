#include "client/terminal.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "client/sanitise.h"

namespace reprise {
namespace {

constexpr int64_t kSpinnerPeriodMs = 100;

// Returns 0, or errno of the write that failed.
int WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

TerminalOptions StandardTerminal() {
  TerminalOptions options;
  options.out_is_terminal = isatty(options.out_fd) == 1;
  options.err_is_terminal = isatty(options.err_fd) == 1;
  options.colour = options.err_is_terminal && Environment("NO_COLOR").empty() &&
                   Environment("TERM") != "dumb";
  return options;
}

void Terminal::Print(std::string_view text) {
  if (text.empty() || out_errno_ != 0) return;
  at_line_start_ = text.back() == '\n';
  out_errno_ = options_.out_is_terminal
                   ? WriteAll(options_.out_fd, SanitiseForTerminal(text))
                   : WriteAll(options_.out_fd, text);
}

void Terminal::EndLine() {
  if (!at_line_start_) Print("\n");
}

void Terminal::WriteError(std::string_view text, bool dim) {
  const std::string shown =
      options_.err_is_terminal ? SanitiseForTerminal(text) : std::string(text);
  // Nobody is left to tell if this fails.
  WriteAll(options_.err_fd,
           dim && options_.colour ? "\x1b[2m" + shown + "\x1b[0m" : shown);
}

void Terminal::Note(std::string_view text) {
  if (interactive()) EndLine();
  WriteError(text, /*dim=*/true);
  WriteError("\n", /*dim=*/false);
}

void Terminal::Error(std::string_view text) {
  if (interactive()) EndLine();
  WriteError(std::string(text) + "\n", /*dim=*/false);
}

void Terminal::Prompt(std::string_view text) {
  if (interactive()) EndLine();
  WriteError(text, /*dim=*/true);
}

void Terminal::Progress(std::string_view text) {
  if (!options_.err_is_terminal || (text.empty() && progress_size_ == 0)) {
    return;
  }
  // Spaces over what is left of the line before; a terminal needs to know no
  // more than carriage return.
  std::string line(text);
  line.resize(std::max(line.size(), progress_size_), ' ');
  progress_size_ = text.size();
  WriteError(line, /*dim=*/true);
  WriteAll(options_.err_fd, "\r");
}

bool Terminal::out_closed() const { return out_errno_ == EPIPE; }

absl::Status Terminal::status() const {
  if (out_errno_ == 0 || out_closed()) return absl::OkStatus();
  return absl::UnknownError(std::string("cannot write to stdout: ") +
                            std::strerror(out_errno_));
}

Spinner::Spinner(const Terminal& terminal) : fd_(terminal.options().err_fd) {
  if (terminal.interactive()) thread_ = std::thread([this] { Turn(); });
}

void Spinner::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mu_);
    stopped_ = true;
    stopped_changed_.NotifyAll();
  }
  thread_.join();
}

void Spinner::Turn() {
  // Each frame leaves the cursor on the bar, so that it can stand at any column
  // and needs no terminal but one that knows backspace.
  constexpr std::string_view kFrames = "|/-\\";
  size_t frame = 0;
  MutexLock lock(mu_);
  while (!stopped_) {
    const char text[] = {kFrames[frame], '\b'};
    WriteAll(fd_, std::string_view(text, sizeof(text)));
    frame = (frame + 1) % kFrames.size();
    stopped_changed_.WaitFor(mu_, kSpinnerPeriodMs);
  }
  WriteAll(fd_, " \b");
}

}  // namespace reprise
