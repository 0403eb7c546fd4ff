#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

namespace reprise {

Json JsonOf(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(json.is_discarded()) << "no JSON: " << text;
  return json;
}

Json ReadJson(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  text << file.rdbuf();
  std::string json = text.str();
  if (Json::accept(json)) return JsonOf(json);
  const std::string word = " Infinity";
  for (size_t at; (at = json.find(word)) != std::string::npos;) {
    json.replace(at, word.size(), " \"Infinity\"");
  }
  return JsonOf(json);
}

std::string JsonText(const Json& json) { return json.dump(); }

}  // namespace reprise
