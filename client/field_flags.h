// From what the server calls a field to what this program's user calls it.
#ifndef CLIENT_FIELD_FLAGS_H_
#define CLIENT_FIELD_FLAGS_H_

#include <string>

#include "client/command_line.h"

namespace reprise {

// An error of the server begins with the field that it is about:
// "sampling.temperature: 3 is ..." becomes "--temperature: 3 is ...", and what
// it advises in the interface's words what to do here. Others stay as they are,
// and so does a field for which `command` has no flag.
std::string NameFlag(Command command, const std::string& message);

}  // namespace reprise

#endif  // CLIENT_FIELD_FLAGS_H_
