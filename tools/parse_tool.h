// The command line of the tools: what is wrong with it is told as reprise and
// reprise-server tell it.
#ifndef TOOLS_PARSE_TOOL_H_
#define TOOLS_PARSE_TOOL_H_

#include <CLI/CLI.hpp>
#include <optional>
#include <string_view>

namespace reprise {

// Says what is wrong, and where help is, on stderr. Returns 2, the exit code.
int UsageError(const CLI::App& app, std::string_view wrong);

// Parses the arguments into what `app` is bound to. An exit code if the program
// is to end with it: 0 after --help, which is printed to stdout (1 if that
// cannot be written), 2 after a usage error.
std::optional<int> ParseTool(CLI::App& app, int argc, char** argv);

}  // namespace reprise

#endif  // TOOLS_PARSE_TOOL_H_
