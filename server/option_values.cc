#include "server/option_values.h"

#include <charconv>
#include <limits>
#include <span>

namespace reprise {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;
};

// Largest first: the first that divides a value is the one to print it in.
constexpr Unit kDurations[] = {
    {"d", 86'400'000}, {"h", 3'600'000}, {"m", 60'000}, {"s", 1000}, {"ms", 1}};
constexpr Unit kSizes[] = {{"TiB", int64_t{1} << 40},
                           {"GiB", 1 << 30},
                           {"MiB", 1 << 20},
                           {"KiB", 1 << 10},
                           {"B", 1},  // printed
                           {"TB", int64_t{1} << 40},
                           {"GB", 1 << 30},
                           {"MB", 1 << 20},
                           {"KB", 1 << 10},
                           {"T", int64_t{1} << 40},
                           {"G", 1 << 30},
                           {"M", 1 << 20},
                           {"K", 1 << 10}};  // only read

// A number and one of `units`; `bare` is the factor of a number without.
std::optional<int64_t> ParseWithUnit(std::string_view text,
                                     std::span<const Unit> units,
                                     int64_t bare) {
  const size_t digits = text.find_first_not_of("0123456789");
  const std::optional<int64_t> number = ParseWhole(text.substr(0, digits));
  if (!number.has_value()) return std::nullopt;
  int64_t factor = digits == std::string_view::npos ? bare : 0;
  for (const Unit& unit : units) {
    if (factor == 0 && text.substr(digits) == unit.name) factor = unit.factor;
  }
  if (factor == 0 || *number > std::numeric_limits<int64_t>::max() / factor) {
    return std::nullopt;
  }
  return *number * factor;
}

std::string Format(int64_t value, std::span<const Unit> units) {
  for (const Unit& unit : units) {
    if (value != 0 && value % unit.factor == 0) {
      return std::to_string(value / unit.factor) + std::string(unit.name);
    }
  }
  return "0";
}

}  // namespace

std::optional<int64_t> ParseWhole(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || rest != end) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseDurationMs(std::string_view text) {
  return ParseWithUnit(text, kDurations, /*bare=*/1000);
}

std::string FormatDurationMs(int64_t ms) { return Format(ms, kDurations); }

std::optional<int64_t> ParseBytes(std::string_view text) {
  return ParseWithUnit(text, kSizes, /*bare=*/1);
}

std::string FormatBytes(int64_t bytes) { return Format(bytes, kSizes); }

std::string NotWithin(const std::string& text, bool readable,
                      const std::string& kind, const std::string& min,
                      const std::string& max, const std::string& examples) {
  const std::string range = min + " to " + max;
  if (readable) return "'" + text + "' is not within " + range;
  return "'" + text + "' is not " + kind + " from " + range + " (as in " +
         examples + ")";
}

std::optional<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return std::nullopt;
  const std::string_view host = text.substr(0, colon);
  const std::optional<int64_t> port = ParseWhole(text.substr(colon + 1));
  if (!port.has_value() || *port < 0 || *port > 65535) return std::nullopt;
  const bool bracketed =
      host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (!bracketed && host.find_first_of(":[], \t") != std::string_view::npos) {
    return std::nullopt;
  }
  return HostPort{std::string(host), static_cast<int>(*port)};
}

std::string CheckPath(const std::string& path) {
  if (!path.starts_with('~')) return "";
  return "'" + path +
         "' begins with ~, which the shell does not expand there: write the "
         "whole path";
}

std::string CheckTenant(std::string& tenant) {
  const bool plain = tenant.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0"
                         "123456789._-") == std::string::npos;
  if (plain && !tenant.empty() && tenant.size() <= 128 && tenant[0] != '.') {
    return "";
  }
  return "'" + tenant +
         "' is not 1 to 128 of A-Z a-z 0-9 . _ - without a dot in front";
}

}  // namespace reprise
