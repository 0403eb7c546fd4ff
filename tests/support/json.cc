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
  std::string json = text.str();
  const std::string word = " Infinity";
  for (size_t at; (at = json.find(word)) != std::string::npos;) {
    json.replace(at, word.size(), " \"Infinity\"");
  }
  return JsonOf(json);
}

std::string JsonText(const Json& json) { return json.dump(); }

}  // namespace reprise
