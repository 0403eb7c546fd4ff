// The arguments of `reprise sessions` and `reprise presets`. For
// command_line.cc.
#ifndef CLIENT_SESSION_COMMANDS_H_
#define CLIENT_SESSION_COMMANDS_H_

#include <CLI/App.hpp>
#include <string>

#include "client/command_line.h"

namespace reprise {

// The subcommand that picks `command` when it is given.
CLI::App& AddCommand(CLI::App& parent, const std::string& name,
                     const std::string& description, Command command,
                     CommandLine& line);

// The state that `complete` begins with and leaves, in files.
void AddStateOptions(CLI::App& app, CommandLine& line);

// Both add a subcommand of `root` that writes what it is given to `line`, which
// must outlive the parsing.
void AddSessions(CLI::App& root, CommandLine& line);
void AddPresets(CLI::App& root, CommandLine& line);

}  // namespace reprise

#endif  // CLIENT_SESSION_COMMANDS_H_
