// Sealed states in files: whole conversations, so nobody else may read them.
#ifndef CLIENT_STATE_FILE_H_
#define CLIENT_STATE_FILE_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace reprise {

constexpr size_t kMaxStateBytes = size_t{1} << 30;

// Writes a file that its owner alone may read, in place of an old one only when
// all is written; one that is a symbolic link is replaced. What is no file, a
// device or a pipe, is written to. Unknown, naming the file, if that fails, and
// then what was there is still there.
absl::Status WriteStateFile(const std::string& path, std::string_view bytes);

// Whether WriteStateFile could begin now: its error if not. Nothing is changed.
absl::Status CheckStateFile(const std::string& path);

// Unknown, naming the file, if it cannot be read; ResourceExhausted if it has
// more than kMaxStateBytes, of a file before any of them is read.
absl::StatusOr<std::string> ReadStateFile(const std::string& path);

// Whether the server that sealed these bytes had no --seal-keys, so that no
// other process opens them, nor that server after a restart.
bool OpensInOneProcess(std::string_view sealed);

// What to tell the user of such a state in `where`.
std::string OpensInOneProcessNotice(const std::string& where);

}  // namespace reprise

#endif  // CLIENT_STATE_FILE_H_
