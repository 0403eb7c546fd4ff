#include "engine/model/config_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/model/json_text.h"

namespace reprise {
namespace {

using nlohmann::json;

// For messages: the value itself if it is short.
std::string ValueText(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  if (value.is_string()) return Quoted(value.get<std::string>());
  return value.dump();
}

}  // namespace

ConfigReader::ConfigReader(const json& object, std::string file,
                           std::string prefix)
    : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {
  CHECK(object.is_object());
}

void ConfigReader::Refuse(std::string_view field, std::string_view reason) {
  if (!status_.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(
      file_, ": field '", prefix_, ToAbsl(field), "' ", ToAbsl(reason)));
}

const json* ConfigReader::Find(std::string_view field) {
  if (!status_.ok()) return nullptr;
  const json* value = &object_;
  for (std::string_view rest = field; value != nullptr && !rest.empty();) {
    const size_t end = std::min(rest.find('.'), rest.size());
    const std::string name(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const auto found = value->is_object() ? value->find(name) : value->end();
    value = found == value->end() || found->is_null() ? nullptr : &*found;
  }
  if (value != nullptr) used_[std::string(field)] = value->dump();
  return value;
}

template <typename T>
T ConfigReader::Fallback(std::string_view field,
                         const std::optional<T>& fallback, T least) {
  if (!status_.ok()) return least;
  if (!fallback) {
    Refuse(field, "is missing");
    return least;
  }
  used_[std::string(field)] = json(*fallback).dump();
  return *fallback;
}

void ConfigReader::RefuseFallback(std::string_view field,
                                  const std::string& number,
                                  std::string_view kind,
                                  const std::string& limits) {
  Refuse(field,
         absl::StrCat("is absent, which makes it ", number,
                      " here; it must be a ", ToAbsl(kind), " in ", limits));
}

bool ConfigReader::Has(std::string_view field) {
  return Find(field) != nullptr;
}

bool ConfigReader::Names(std::string_view field) const {
  return object_.contains(std::string(field));
}

int64_t ConfigReader::CheckedInt(std::string_view field, const json& value,
                                 int64_t min, int64_t max) {
  const bool fits =
      value.is_number_integer() &&
      (!value.is_number_unsigned() ||
       value.get<uint64_t>() <= std::numeric_limits<int64_t>::max());
  if (!fits || value.get<int64_t>() < min || value.get<int64_t>() > max) {
    Refuse(field, absl::StrCat("must be a whole number in ", min, "..", max,
                               ", not ", ValueText(value)));
    return min;
  }
  return value.get<int64_t>();
}

int64_t ConfigReader::Int(std::string_view field, int64_t min, int64_t max,
                          std::optional<int64_t> fallback) {
  const json* value = Find(field);
  if (value != nullptr) return CheckedInt(field, *value, min, max);
  const int64_t number = Fallback(field, fallback, min);
  if (number >= min && number <= max) return number;
  RefuseFallback(field, absl::StrCat(number), "whole number",
                 absl::StrCat(min, "..", max));
  return min;
}

double ConfigReader::CheckedNumber(std::string_view field, const json& value,
                                   double min, double max) {
  if (!value.is_number() || !(value.get<double>() >= min) ||
      !(value.get<double>() <= max)) {
    Refuse(field, absl::StrCat("must be a number in ", min, "..", max, ", not ",
                               ValueText(value)));
    return min;
  }
  return value.get<double>();
}

double ConfigReader::Number(std::string_view field, double min, double max,
                            std::optional<double> fallback) {
  const json* value = Find(field);
  if (value != nullptr) return CheckedNumber(field, *value, min, max);
  const double number = Fallback(field, fallback, min);
  if (number >= min && number <= max) return number;
  RefuseFallback(field, absl::StrCat(number), "number",
                 absl::StrCat(min, "..", max));
  return min;
}

std::vector<double> ConfigReader::NumberList(std::string_view field, double min,
                                             double max) {
  const json* value = Find(field);
  if (value == nullptr) return {};
  if (!value->is_array()) {
    Refuse(field, absl::StrCat("must be an array, not ", ValueText(*value)));
    return {};
  }
  std::vector<double> result;
  for (const json& element : *value) {
    const bool infinite = element.is_string() &&
                          element.get<std::string>() == "Infinity" &&
                          std::isinf(max);
    result.push_back(infinite ? max : CheckedNumber(field, element, min, max));
  }
  return result;
}

bool ConfigReader::IsString(std::string_view field) {
  const json* value = Find(field);
  return value != nullptr && value->is_string();
}

bool ConfigReader::Bool(std::string_view field, std::optional<bool> fallback) {
  const json* value = Find(field);
  if (value == nullptr) return Fallback(field, fallback, false);
  if (!value->is_boolean()) {
    Refuse(field,
           absl::StrCat("must be true or false, not ", ValueText(*value)));
    return false;
  }
  return value->get<bool>();
}

std::string ConfigReader::String(std::string_view field,
                                 std::optional<std::string> fallback) {
  const json* value = Find(field);
  if (value == nullptr) return Fallback(field, fallback, std::string());
  if (!value->is_string()) {
    Refuse(field, absl::StrCat("must be a string, not ", ValueText(*value)));
    return std::string();
  }
  return value->get<std::string>();
}

std::vector<std::string> ConfigReader::StringList(std::string_view field) {
  const json* value = Find(field);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  const bool strings =
      value->is_array() &&
      std::all_of(value->begin(), value->end(),
                  [](const json& element) { return element.is_string(); });
  if (!strings) {
    Refuse(field, absl::StrCat("must be an array of strings, not ",
                               ValueText(*value)));
    return result;
  }
  for (const json& element : *value) {
    result.push_back(element.get<std::string>());
  }
  return result;
}

std::vector<int64_t> ConfigReader::IntList(std::string_view field, int64_t min,
                                           int64_t max) {
  const json* value = Find(field);
  if (value == nullptr) return {};
  if (!value->is_array()) return {CheckedInt(field, *value, min, max)};
  std::vector<int64_t> result;
  for (const json& element : *value) {
    result.push_back(CheckedInt(field, element, min, max));
  }
  return result;
}

void ConfigReader::ForEachObject(std::string_view field,
                                 absl::FunctionRef<void(ConfigReader&)> read) {
  const json* value = Find(field);
  if (value == nullptr) return;
  const json one = json::array({*value});
  for (const json& element : value->is_array() ? *value : one) {
    if (!element.is_object()) {
      Refuse(field, absl::StrCat("must be an object or an array of objects, ",
                                 "not ", ValueText(element)));
      return;
    }
    ConfigReader reader(element, file_,
                        absl::StrCat(prefix_, ToAbsl(field), "."));
    read(reader);
    if (status_.ok()) status_ = reader.status();
  }
}

std::string ConfigReader::UsedFields() const {
  std::string text;
  for (const auto& [field, value] : used_) {
    absl::StrAppend(&text, field, "=", value, "\n");
  }
  return text;
}

}  // namespace reprise
