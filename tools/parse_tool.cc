#include "tools/parse_tool.h"

#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/arguments.h"
#include "engine/base/standard_streams.h"

namespace reprise {

int UsageError(const CLI::App& app, std::string_view wrong) {
  const std::string& name = app.get_name();
  std::fprintf(stderr, "%s: %s\nTry %s --help\n", name.c_str(),
               std::string(wrong).c_str(), name.c_str());
  return 2;
}

std::optional<int> ParseTool(CLI::App& app, int argc, char** argv) {
  const std::string missing = FindMissingValue(
      std::vector<std::string>(argv + 1, argv + argc),
      [&app](std::string_view flag) {
        const CLI::Option* option = app.get_option_no_throw(std::string(flag));
        return option != nullptr && option->get_items_expected_max() > 0;
      });
  if (!missing.empty()) return UsageError(app, missing);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return FinishStdout(app.get_name().c_str(), app.help(), 0);
  } catch (const CLI::ParseError& error) {
    return UsageError(app, error.what());
  }
  return std::nullopt;
}

}  // namespace reprise
