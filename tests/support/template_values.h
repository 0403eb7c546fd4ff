// Values of templates from JSON, and the cases that Jinja itself rendered.
#ifndef TESTS_SUPPORT_TEMPLATE_VALUES_H_
#define TESTS_SUPPORT_TEMPLATE_VALUES_H_

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/template/template.h"

namespace reprise {

using OrderedJson = nlohmann::ordered_json;

inline jinja::Value ToTemplateValue(const OrderedJson& json) {
  using jinja::Value;
  switch (json.type()) {
    case OrderedJson::value_t::null:
      return Value();
    case OrderedJson::value_t::boolean:
      return Value::Bool(json.get<bool>());
    case OrderedJson::value_t::number_integer:
    case OrderedJson::value_t::number_unsigned:
      return Value::Int(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value::Float(json.get<double>());
    case OrderedJson::value_t::string:
      return Value::String(json.get<std::string>());
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      for (const OrderedJson& item : json) {
        items.push_back(ToTemplateValue(item));
      }
      return jinja::ListValue(std::move(items));
    }
    default: {
      std::vector<std::pair<std::string, Value>> entries;
      for (const auto& [key, value] : json.items()) {
        entries.emplace_back(key, ToTemplateValue(value));
      }
      return jinja::DictValue(std::move(entries));
    }
  }
}

using TemplateVariables = std::vector<std::pair<std::string, jinja::Value>>;

inline TemplateVariables ToTemplateVariables(const OrderedJson& json) {
  TemplateVariables variables;
  for (const auto& [key, value] : json.items()) {
    variables.emplace_back(key, ToTemplateValue(value));
  }
  return variables;
}

// A file of tests/testdata/chat_templates.
inline std::string ReadTemplateFile(const std::string& name) {
  std::ifstream file(REPRISE_TESTDATA "/chat_templates/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_TEMPLATE_VALUES_H_
