// Options whose value is a number. Not CLI11's own conversion, which takes -1
// for 2^64 - 1, 010 for 8 and cuts what is too large.
#ifndef CLIENT_NUMBER_OPTION_H_
#define CLIENT_NUMBER_OPTION_H_

#include <CLI/App.hpp>
#include <concepts>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/numbers.h"

namespace reprise {

inline bool ParseNumber(const std::string& text, float& value) {
  return absl::SimpleAtof(text, &value);
}
template <std::integral T>
bool ParseNumber(const std::string& text, T& value) {
  return absl::SimpleAtoi(text, &value);
}

template <typename T>
struct NumberRange {
  T min = std::numeric_limits<T>::lowest();
  T max = std::numeric_limits<T>::max();
};

// "'-1' is not a whole number from 0 to 9", or empty if it is. Infinity is for
// the server to refuse: which numbers it takes there, it says itself.
template <typename T>
std::string CheckNumber(const std::string& text, NumberRange<T> range = {}) {
  T value = 0;
  const bool is_number = ParseNumber(text, value);
  if constexpr (std::is_floating_point_v<T>) {
    return is_number ? "" : "'" + text + "' is not a number";
  } else {
    if (is_number && value >= range.min && value <= range.max) return "";
    return "'" + text + "' is not a whole number from " +
           std::to_string(range.min) + " to " + std::to_string(range.max);
  }
}

// Calls `set` if the option is given.
template <typename T>
CLI::Option* AddNumber(CLI::App& app, const std::string& group,
                       const std::string& name, const std::string& description,
                       std::function<void(T)> set, NumberRange<T> range = {}) {
  auto convert = [set = std::move(set)](const CLI::results_t& values) {
    T value = 0;
    if (!ParseNumber(values[0], value)) return false;
    set(value);
    return true;
  };
  const auto check = [range](std::string& text) {
    return CheckNumber(text, range);
  };
  return app.add_option(name, std::move(convert), description)
      ->type_name(std::is_floating_point_v<T> ? "X" : "N")
      ->group(group)
      ->check(CLI::Validator(check, ""));
}

}  // namespace reprise

#endif  // CLIENT_NUMBER_OPTION_H_
