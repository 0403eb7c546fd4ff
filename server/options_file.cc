#include "server/options_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace reprise {
namespace {

// Reads the whole file into `text`, or says why not.
std::string ReadRegularFile(int fd, std::string& text) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return std::strerror(errno);
  if (!S_ISREG(info.st_mode)) return "it is not a regular file";
  char chunk[1 << 12];
  while (true) {
    const ssize_t size = read(fd, chunk, sizeof(chunk));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return std::strerror(errno);
    if (size == 0) return "";
    text.append(chunk, static_cast<size_t>(size));
    // Not the size of fstat: files of /proc have none.
    if (text.size() > kMaxOptionsFileBytes) {
      return absl::StrCat("it is longer than ", kMaxOptionsFileBytes, " bytes");
    }
  }
}

std::string Trim(const std::string& text) {
  constexpr const char* kBlanks = " \t\r\v\f";
  const size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

// `value` is trimmed and has no comment. A list would go on over the lines that
// follow, and no option takes one.
std::string CheckValue(const std::string& name, const std::string& value) {
  if (value.empty()) return name + " has no value";
  if (value[0] == '[') return "a value that begins with [ must stand in quotes";
  const bool quoted = value[0] == '"' || value[0] == '\'';
  if (quoted && (value.size() < 2 || value.back() != value[0])) {
    return "the quote of " + name + " is not closed";
  }
  if (quoted && value.size() == 2) return name + " has no value";
  return "";
}

// Remembers in `lines`, by the names of the options, where they were set.
std::string CheckLine(const std::string& line, int number,
                      absl::FunctionRef<bool(const std::string&)> is_option,
                      std::map<std::string, int>& lines) {
  if (line.empty() || line[0] == '#' || line[0] == ';') return "";
  const size_t equals = line.find('=');
  if (equals == std::string::npos) return "'" + line + "' is not NAME = VALUE";
  const std::string name = Trim(line.substr(0, equals));
  if (!is_option(name)) return "'" + name + "' is no option";
  const auto [first, is_new] = lines.emplace(name, number);
  if (!is_new) {
    return absl::StrCat(name, " is set a second time, after line ",
                        first->second);
  }
  const std::string value = line.substr(equals + 1);
  return CheckValue(name, Trim(value.substr(0, value.find('#'))));
}

}  // namespace

std::string CheckOptionsFile(
    const std::string& path,
    absl::FunctionRef<bool(const std::string&)> is_option) {
  // A fifo without a writer would block, a terminal become ours.
  const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY);
  std::string text;
  std::string wrong = std::strerror(errno);
  if (fd >= 0) {
    wrong = ReadRegularFile(fd, text);
    close(fd);
  }
  if (!wrong.empty()) return "cannot read " + path + ": " + wrong;
  std::istringstream lines(text);
  int number = 0;
  std::map<std::string, int> set;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    wrong = CheckLine(Trim(line), number, is_option, set);
    if (!wrong.empty()) return absl::StrCat(path, ":", number, ": ", wrong);
  }
  return "";
}

}  // namespace reprise
