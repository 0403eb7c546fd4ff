#include "tests/support/json.h"

#include <fstream>
#include <sstream>

#include "engine/base/log.h"

namespace reprise {

Json JsonOf(std::string_view text) {
  return Json::parse(text.data(), text.data() + text.size());
}

Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  CHECK(file.good());
  std::ostringstream text;
  text << file.rdbuf();
  return JsonOf(text.str());
}

std::string JsonText(const Json& json) { return json.dump(); }

}  // namespace reprise
