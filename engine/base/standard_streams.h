// The descriptors that every program takes for granted.
#ifndef ENGINE_BASE_STANDARD_STREAMS_H_
#define ENGINE_BASE_STANDARD_STREAMS_H_

namespace reprise {

// Opens /dev/null for each of stdin, stdout and stderr that is closed
// (`2>&-`). Otherwise the next file or socket would get its number, and what is
// meant for the user would be written into it. Call it first thing in main.
void OpenStandardStreams();

}  // namespace reprise

#endif  // ENGINE_BASE_STANDARD_STREAMS_H_
