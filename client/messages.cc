#include "client/messages.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

using Json = nlohmann::json;

template <typename... Parts>
absl::Status BadMessages(const std::string& source, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(source, ": ", parts...));
}

absl::StatusOr<v1::Message> ToMessage(const Json& json, const std::string& at) {
  if (!json.is_object()) {
    return BadMessages(at,
                       "a message is an object with a role and a content, "
                       "not ",
                       json.type_name());
  }
  for (const char* name : {"role", "content"}) {
    const auto field = json.find(name);
    if (field == json.end()) return BadMessages(at, "it has no ", name);
    if (!field->is_string()) {
      return BadMessages(absl::StrCat(at, ".", name), "is not a string but ",
                         field->type_name());
    }
  }
  for (const auto& [name, value] : json.items()) {
    if (name == "role" || name == "content") continue;
    return BadMessages(absl::StrCat(at, ".", name),
                       "a message has a role and a content, and nothing else");
  }
  v1::Message message;
  message.set_role(json["role"].get<std::string>());
  message.set_content(json["content"].get<std::string>());
  return message;
}

}  // namespace

absl::StatusOr<v1::Messages> ParseMessages(std::string_view json,
                                           const std::string& source) {
  const Json parsed =
      Json::parse(json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return BadMessages(source, "is not JSON");
  if (!parsed.is_array()) {
    return BadMessages(source, "is not an array of messages but ",
                       parsed.type_name());
  }
  v1::Messages messages;
  for (size_t i = 0; i < parsed.size(); ++i) {
    ASSIGN_OR_RETURN(*messages.add_messages(),
                     ToMessage(parsed[i], absl::StrCat(source, ": [", i, "]")));
  }
  return messages;
}

}  // namespace reprise
