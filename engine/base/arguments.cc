#include "engine/base/arguments.h"

#include <algorithm>
#include <cctype>

namespace reprise {
namespace {

constexpr std::string_view kEndOfOptions = "--";

// Not "-" (stdin) and not "-1" or "-.5".
bool LooksLikeOption(std::string_view arg) {
  return arg.size() >= 2 && arg[0] == '-' &&
         (arg[1] == '-' || std::isalpha(static_cast<unsigned char>(arg[1])));
}

}  // namespace

std::string FindMissingValue(
    const std::vector<std::string>& args,
    absl::FunctionRef<bool(std::string_view)> takes_value) {
  for (size_t i = 0; i < args.size() && args[i] != kEndOfOptions; ++i) {
    const std::string& arg = args[i];
    if (!arg.starts_with("--")) continue;
    const size_t equals = arg.find('=');
    if (equals + 1 == arg.size()) {
      return arg.substr(0, equals) + ": there is nothing behind the =";
    }
    if (equals != std::string::npos || !takes_value(arg)) continue;
    // That a value is missing at the very end, CLI11 sees itself.
    if (++i < args.size() && LooksLikeOption(args[i])) {
      return arg + ": the value is missing, " + args[i] +
             " is an option (if it is meant, write " + arg + "=" + args[i] +
             ")";
    }
  }
  return "";
}

bool HasFlag(const std::vector<std::string>& args, std::string_view flag) {
  const auto end = std::find(args.begin(), args.end(), kEndOfOptions);
  return std::find(args.begin(), end, flag) != end;
}

}  // namespace reprise
