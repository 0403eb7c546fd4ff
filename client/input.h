// Text from stdin: whole, or a line at a time with Ctrl-C.
#ifndef CLIENT_INPUT_H_
#define CLIENT_INPUT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise {

// More than any server takes; keeps `reprise complete - </dev/zero` from eating
// the memory.
constexpr size_t kMaxInputBytes = 64 << 20;

// All bytes up to the end. ResourceExhausted beyond `limit`, for more than that
// no room is made, or if there is no memory; Unknown if reading fails.
absl::StatusOr<std::string> ReadAll(int fd, size_t limit = kMaxInputBytes);

// The text in a file. Unknown if it cannot be opened; the errors of ReadAll,
// naming the file, and CheckUtf8.
absl::StatusOr<std::string> ReadTextFile(const std::string& path);

// InvalidArgument, naming `what` and the place, if `text` is not UTF-8: the
// protocol carries nothing else, and protobuf complains on stderr.
absl::Status CheckUtf8(std::string_view text,
                       const std::string& what = "the text");

struct InputLine {
  enum class Kind { kLine, kEnd, kInterrupted };
  Kind kind = Kind::kEnd;
  std::string text;  // without its newline
};

class LineReader {
 public:
  // Reads `fd`, and gives up a line when `interrupt_fd` is readable. Both are
  // borrowed.
  LineReader(int fd, int interrupt_fd) : fd_(fd), interrupt_fd_(interrupt_fd) {}

  // Blocks for the next line. What stands after the last newline is a line too.
  // After kInterrupted what was typed of the line is dropped. Errors are those
  // of ReadAll.
  absl::StatusOr<InputLine> Next();

 private:
  const int fd_;
  const int interrupt_fd_;
  std::string buffer_;  // read, not yet returned
  bool ended_ = false;
};

}  // namespace reprise

#endif  // CLIENT_INPUT_H_
