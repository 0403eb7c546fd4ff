// Numbers that a test takes from the environment.
#ifndef TESTS_SUPPORT_ENVIRONMENT_H_
#define TESTS_SUPPORT_ENVIRONMENT_H_

#include <cstdint>
#include <cstdlib>

namespace reprise {

// The number in the variable `name`, or `otherwise` if it is not set.
inline uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_ENVIRONMENT_H_
