// Numbers, times and tables for people to read.
#ifndef CLIENT_FORMAT_H_
#define CLIENT_FORMAT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace reprise {

// "850 us", "8.3 ms", "1.24 s".
std::string FormatDuration(uint64_t microseconds);
// "512 B", "96.3 KiB", "1.5 GiB".
std::string FormatBytes(uint64_t bytes);
// "3.14" of 3.14159 with 2 decimals.
std::string FormatDecimals(double value, int decimals);
// "31,102".
std::string FormatCount(uint64_t count);
// "1 token", "31,102 tokens".
std::string FormatTokens(uint64_t count);
// "2026-01-31 12:00:05" in local time.
std::string FormatTime(int64_t unix_ms);
// One token's bytes in double quotes; what is not printable ASCII or a whole
// UTF-8 character is written \n, \t or \xNN.
std::string QuoteBytes(std::string_view bytes);

// What the user is told of an error, a line without its newline:
// "reprise: NOT_FOUND: no session 'a'", or if `json`
// {"error":{"code":"NOT_FOUND","message":...}}. Unknown is what went wrong
// here, not at the server; the text leaves it out.
std::string FormatError(const absl::Status& status, bool json);
// The same of what the user should know: "reprise: ..." or {"notice":...}.
std::string FormatNotice(const std::string& notice, bool json);

enum class Align { kLeft, kRight };

// Rows under a header, in columns as wide as their widest cell and two spaces
// apart. Widths are counted in characters, so cells should be ASCII.
class Table {
 public:
  explicit Table(std::vector<std::pair<std::string, Align>> columns);
  // `cells` must be as many as the columns.
  void AddRow(std::vector<std::string> cells);
  std::string ToString() const;

 private:
  std::vector<Align> alignment_;
  std::vector<std::vector<std::string>> rows_;  // the header first
};

// "name:  value" lines with the values under each other.
std::string FormatProperties(
    const std::vector<std::pair<std::string, std::string>>& properties);

}  // namespace reprise

#endif  // CLIENT_FORMAT_H_
