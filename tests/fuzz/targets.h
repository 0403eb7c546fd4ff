// What reads bytes that others wrote, as functions of bytes: for libFuzzer
// (fuzz_main.cc) and for the corpus of the default suite (corpus_test.cc).
#ifndef TESTS_FUZZ_TARGETS_H_
#define TESTS_FUZZ_TARGETS_H_

#include <span>
#include <string_view>

namespace reprise {

struct FuzzTarget {
  std::string_view name;
  // Ends the process if the bytes do what they must not: crash, or be taken
  // while what comes of them breaks a promise.
  void (*run)(std::string_view bytes);
  // Where bytes to begin with lie: a folder under the source tree, and how the
  // names of the files in it and below it end.
  std::string_view corpus;
  std::string_view suffix;
};

std::span<const FuzzTarget> FuzzTargets();

}  // namespace reprise

#endif  // TESTS_FUZZ_TARGETS_H_
