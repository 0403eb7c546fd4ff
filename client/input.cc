#include "client/input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

// Room for `size` bytes more: twice as much as before, up to the limit, where
// the string alone would make room for twice as much as may come.
absl::Status MakeRoom(size_t size, size_t limit, std::string& buffer) {
  const size_t needed = buffer.size() + size;
  if (needed <= buffer.capacity()) return absl::OkStatus();
  const size_t twice = std::min(2 * buffer.capacity(), limit);
  try {
    std::string larger;  // reserve() would take twice as much as there is
    larger.reserve(std::max(needed, twice));
    larger.append(buffer);
    buffer = std::move(larger);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("there is no memory for more than " +
                                        std::to_string(buffer.size()) +
                                        " bytes of the input");
  }
  return absl::OkStatus();
}

// Appends what can be read now; waits if there is nothing. Returns false at the
// end.
absl::StatusOr<bool> ReadMore(int fd, std::string& buffer,
                              size_t limit = kMaxInputBytes) {
  char chunk[1 << 14];
  ssize_t size = 0;
  do {
    size = read(fd, chunk, sizeof(chunk));
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    return absl::UnknownError(std::string("cannot read the input: ") +
                              std::strerror(errno));
  }
  const auto more = static_cast<size_t>(size);
  if (more > limit - buffer.size()) {
    return absl::ResourceExhaustedError("the input is longer than " +
                                        std::to_string(limit) + " bytes");
  }
  RETURN_IF_ERROR(MakeRoom(more, limit, buffer));
  buffer.append(chunk, more);
  return size > 0;
}

}  // namespace

absl::StatusOr<std::string> ReadAll(int fd, size_t limit) {
  std::string text;
  while (true) {
    ASSIGN_OR_RETURN(const bool more, ReadMore(fd, text, limit));
    if (!more) return text;
  }
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    return absl::UnknownError("cannot open " + path + ": " +
                              std::strerror(errno));
  }
  absl::StatusOr<std::string> text = ReadAll(fd);
  close(fd);
  if (!text.ok()) {
    return absl::Status(text.status().code(),
                        path + ": " + std::string(text.status().message()));
  }
  RETURN_IF_ERROR(CheckUtf8(*text, path));
  return text;
}

absl::Status CheckUtf8(std::string_view text, const std::string& what) {
  const size_t invalid = FindInvalidUtf8(text);
  if (invalid == std::string_view::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(
      what + " is not UTF-8: byte " + std::to_string(invalid + 1) + " of " +
      std::to_string(text.size()) + " does not belong to a character");
}

absl::StatusOr<InputLine> LineReader::Next() {
  size_t searched = 0;
  while (true) {
    const size_t newline = buffer_.find('\n', searched);
    searched = buffer_.size();
    if (newline != std::string::npos) {
      InputLine line = {InputLine::Kind::kLine, buffer_.substr(0, newline)};
      buffer_.erase(0, newline + 1);
      return line;
    }
    if (ended_) {
      if (buffer_.empty()) return InputLine{InputLine::Kind::kEnd, ""};
      InputLine line = {InputLine::Kind::kLine, std::move(buffer_)};
      buffer_.clear();
      return line;
    }
    pollfd fds[] = {{fd_, POLLIN, 0}, {interrupt_fd_, POLLIN, 0}};
    if (poll(fds, 2, /*timeout=*/-1) < 0) continue;  // EINTR
    if (fds[1].revents != 0) {
      buffer_.clear();
      return InputLine{InputLine::Kind::kInterrupted, ""};
    }
    ASSIGN_OR_RETURN(const bool more, ReadMore(fd_, buffer_));
    ended_ = !more;
  }
}

}  // namespace reprise
