// Looks through the arguments of a program before CLI11 does, which takes the
// argument behind `--name=` or `--name` for the value whatever it is: with
// `--session= --json` it would make a session of the name "--json".
//
// Arguments behind a bare `--` are not options and are left alone.
#ifndef ENGINE_BASE_ARGUMENTS_H_
#define ENGINE_BASE_ARGUMENTS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"

namespace reprise {

// A sentence about the first option without a value: `--name=` with nothing
// behind it, or `--name` with another option behind it. Empty if there is none.
// `args` are those of main without the program's name; `takes_value` says
// whether an option, named with its dashes, must have a value.
std::string FindMissingValue(
    const std::vector<std::string>& args,
    absl::FunctionRef<bool(std::string_view)> takes_value);

// Whether `flag`, as in "--json", is among `args`. Needs no look at values:
// those that are options are wrong.
bool HasFlag(const std::vector<std::string>& args, std::string_view flag);

}  // namespace reprise

#endif  // ENGINE_BASE_ARGUMENTS_H_
