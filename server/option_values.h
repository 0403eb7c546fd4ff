// The values of options as people write them: sizes, times, addresses.
#ifndef SERVER_OPTION_VALUES_H_
#define SERVER_OPTION_VALUES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace reprise {

// A whole number; nothing else around it.
std::optional<int64_t> ParseWhole(std::string_view text);

// "500ms", "30s", "10m", "2h", "7d", or "30" (seconds): milliseconds.
std::optional<int64_t> ParseDurationMs(std::string_view text);
// In the largest unit that divides it.
std::string FormatDurationMs(int64_t ms);

// "64KiB", "512MiB", "2GiB", "4096": bytes. "K", "MB" and the like mean the
// same powers of two.
std::optional<int64_t> ParseBytes(std::string_view text);
std::string FormatBytes(int64_t bytes);

// What is wrong with a value of a `kind` ("a time") outside its range. How one
// is written (`examples`) is no help to whoever wrote one: `readable`.
std::string NotWithin(const std::string& text, bool readable,
                      const std::string& kind, const std::string& min,
                      const std::string& max, const std::string& examples);

// HOST:PORT; an IPv6 address stands in brackets.
struct HostPort {
  std::string host;  // with its brackets
  int port = 0;
};
std::optional<HostPort> ParseHostPort(std::string_view text);

// What is wrong with a path that no shell has expanded; empty if nothing is.
std::string CheckPath(const std::string& path);

// What is wrong with a tenant's name; empty if nothing is.
std::string CheckTenant(std::string& tenant);

}  // namespace reprise

#endif  // SERVER_OPTION_VALUES_H_
