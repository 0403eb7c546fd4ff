// Declares the options of a command line. For options.cc alone.
#ifndef SERVER_OPTIONS_FLAGS_H_
#define SERVER_OPTIONS_FLAGS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace reprise {

// Adds options to a CLI::App, which must outlive it. Each writes straight to
// its field; a check answers with what is wrong with the value, to which CLI11
// adds the flag. The help ends with the default, in brackets.
class Flags {
 public:
  using Check = std::function<std::string(std::string&)>;
  struct Range {
    int64_t min;
    int64_t max;
  };

  explicit Flags(CLI::App& app) : app_(app) {}
  // The heading above the options that follow.
  void Group(const char* name) { group_ = name; }

  CLI::Option* Text(const char* flag, const char* value, std::string& field,
                    const std::string& help, const Check& check = nullptr);
  void Count(const char* flag, int64_t& field, Range range,
             const std::string& help, int64_t multiple_of = 1);
  void Duration(const char* flag, int64_t& field, Range range,
                const std::string& help);
  void Bytes(const char* flag, int64_t& field, Range range,
             const std::string& help);

  // One of a few words; `field` is set to the value beside it. If it has none
  // of these values, the help says itself what is the default.
  template <typename Enum>
  void Choice(const char* flag, Enum& field,
              std::vector<std::pair<std::string, Enum>> choices,
              const std::string& help) {
    std::string names;
    std::string shown;
    for (const auto& [name, value] : choices) {
      names += (names.empty() ? "" : "|") + name;
      if (value == field) shown = " [" + name + "]";
    }
    const auto set = [=, &field](const std::string& text) {
      for (const auto& [name, value] : choices) {
        if (name == text) field = value;
      }
    };
    const Check check = [=](std::string& text) -> std::string {
      for (const auto& [name, value] : choices) {
        if (name == text) return "";
      }
      return "'" + text + "' is not one of " + names;
    };
    Finish(app_.add_option_function<std::string>(flag, set, help + shown),
           names, check);
  }

 private:
  template <typename T>
  CLI::Option* Add(const char* flag, const char* value, T& field,
                   const std::string& help, const Check& check) {
    return Finish(app_.add_option(flag, field, help), value, check);
  }

  CLI::Option* Finish(CLI::Option* option, const std::string& value,
                      const Check& check);

  CLI::App& app_;
  std::string group_;
};

}  // namespace reprise

#endif  // SERVER_OPTIONS_FLAGS_H_
