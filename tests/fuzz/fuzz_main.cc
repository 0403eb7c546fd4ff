// A libFuzzer program of the target REPRISE_FUZZ_TARGET.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/log.h"
#include "tests/fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const reprise::FuzzTarget& target =
      []() -> const reprise::FuzzTarget& {
    const auto targets = reprise::FuzzTargets();
    const auto found = std::find_if(targets.begin(), targets.end(),
                                    [](const reprise::FuzzTarget& target) {
                                      return target.name == REPRISE_FUZZ_TARGET;
                                    });
    CHECK(found != targets.end());
    return *found;
  }();
  target.run(std::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
