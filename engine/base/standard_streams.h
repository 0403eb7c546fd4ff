// The descriptors that every program takes for granted.
#ifndef ENGINE_BASE_STANDARD_STREAMS_H_
#define ENGINE_BASE_STANDARD_STREAMS_H_

#include <string>

namespace reprise {

// Opens /dev/null for each of stdin, stdout and stderr that is closed
// (`2>&-`). Otherwise the next file or socket would get its number: what is
// meant for the user would be written into it, and whoever reads stdin would
// wait for it. Results have nowhere to go without stdout: writing to it still
// fails, with EBADF. Call it first thing in main; a program that does so also
// has it called before its libraries are initialised, some of which open files.
void OpenStandardStreams();

// The last thing of a main that writes with stdio or iostreams: `exit_code` if
// all of stdout was written, else 1, with "PROGRAM: cannot write to stdout:
// REASON" on stderr.
int FinishStdout(const char* program, int exit_code);
// The same after writing `text`.
int FinishStdout(const char* program, const std::string& text, int exit_code);

}  // namespace reprise

#endif  // ENGINE_BASE_STANDARD_STREAMS_H_
