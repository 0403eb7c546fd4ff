// JSON in tests. Json is read and written in json.cc alone: compiling that
// takes longer than most tests do.
#ifndef TESTS_SUPPORT_JSON_H_
#define TESTS_SUPPORT_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace reprise {

using Json = nlohmann::json;

// What the text says. The test fails if it is no JSON.
Json JsonOf(std::string_view text);
// What the file says. Python writes the word Infinity, which is no JSON; it is
// read as the string, which means the same to the engine.
Json ReadJson(const std::string& path);

std::string JsonText(const Json& json);

}  // namespace reprise

#endif  // TESTS_SUPPORT_JSON_H_
