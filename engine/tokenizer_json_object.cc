#include "engine/tokenizer_json_object.h"

#include "absl/strings/escaping.h"
#include "engine/base/status_macros.h"

namespace reprise {

using Json = nlohmann::json;

std::string QuoteName(std::string_view name) {
  constexpr size_t kShown = 64;
  const std::string shown = absl::CHexEscape(ToAbsl(name.substr(0, kShown)));
  return absl::StrCat("\"", shown, name.size() > kShown ? "...\"" : "\"");
}

absl::StatusOr<JsonObject> JsonObject::From(const Json& value,
                                            std::string path) {
  if (!value.is_object()) {
    return TokenizerJsonError(path.empty() ? "the file" : path,
                              " must be a JSON object");
  }
  return JsonObject(value, std::move(path));
}

std::string JsonObject::Path(std::string_view name) const {
  return path_.empty() ? std::string(name)
                       : absl::StrCat(path_, ".", ToAbsl(name));
}

const Json* JsonObject::Find(const char* name) const {
  const auto it = value_->find(name);
  return it == value_->end() || it->is_null() ? nullptr : &*it;
}

absl::StatusOr<JsonObject> JsonObject::GetObject(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr) return TokenizerJsonError(Path(name), " is missing");
  return From(*value, Path(name));
}

absl::StatusOr<const Json*> JsonObject::GetArray(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_array()) {
    return TokenizerJsonError(Path(name), " must be an array");
  }
  return value;
}

absl::StatusOr<std::string> JsonObject::GetString(const char* name) const {
  const Json* value = Find(name);
  if (value == nullptr || !value->is_string()) {
    return TokenizerJsonError(Path(name), " must be a string");
  }
  return value->get<std::string>();
}

absl::StatusOr<bool> JsonObject::GetBool(const char* name,
                                         bool if_absent) const {
  const Json* value = Find(name);
  if (value == nullptr) return if_absent;
  if (!value->is_boolean()) {
    return TokenizerJsonError(Path(name), " must be true or false");
  }
  return value->get<bool>();
}

absl::StatusOr<std::vector<JsonObject>> JsonObject::GetObjects(
    const char* name) const {
  ASSIGN_OR_RETURN(const Json* array, GetArray(name));
  std::vector<JsonObject> objects;
  objects.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    ASSIGN_OR_RETURN(JsonObject object,
                     From((*array)[i], absl::StrCat(Path(name), "[", i, "]")));
    objects.push_back(std::move(object));
  }
  return objects;
}

absl::Status JsonObject::Unsupported(std::string_view name,
                                     std::string_view value,
                                     std::string_view supported) const {
  return TokenizerJsonError(Path(name), " ", QuoteName(value),
                            " is not supported (only ", ToAbsl(supported), ")");
}

}  // namespace reprise
