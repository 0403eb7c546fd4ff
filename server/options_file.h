// The file of --config, looked at before CLI11 reads it, which swallows what it
// does not understand and names neither the file nor the line.
//
// Each line is empty, a comment (# or ;), or NAME = VALUE with the name of an
// option, each at most once; a # ends the value.
#ifndef SERVER_OPTIONS_FILE_H_
#define SERVER_OPTIONS_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace reprise {

// More than anyone writes; keeps a wrong path from eating the memory.
constexpr int64_t kMaxOptionsFileBytes = int64_t{1} << 20;

// What is wrong with the file, which must be a regular one of at most
// kMaxOptionsFileBytes, naming its path, the line and the limit; or empty. Does
// not block, not even on a pipe. `is_option` knows the names, without dashes.
std::string CheckOptionsFile(
    const std::string& path,
    absl::FunctionRef<bool(const std::string&)> is_option);

}  // namespace reprise

#endif  // SERVER_OPTIONS_FILE_H_
