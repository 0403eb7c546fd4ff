// Reads the fields of tokenizer.json. Every error is InvalidArgument and says
// "tokenizer.json: ", where in the file it is, and what is wrong there.
#ifndef ENGINE_TOKENIZER_JSON_OBJECT_H_
#define ENGINE_TOKENIZER_JSON_OBJECT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace reprise {

template <typename... Parts>
absl::Status TokenizerJsonError(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", parts...));
}

// A name from the file as a message can show it: in quotes, escaped, cut to a
// length that fits a line.
std::string QuoteName(std::string_view name);

// An object of the document and where it is ("" for the document). The document
// must outlive it. JSON null counts as absent.
class JsonObject {
 public:
  static absl::StatusOr<JsonObject> From(const nlohmann::json& value,
                                         std::string path);

  std::string Path(std::string_view name) const;
  // Null if the member is absent.
  const nlohmann::json* Find(const char* name) const;
  absl::StatusOr<JsonObject> GetObject(const char* name) const;
  absl::StatusOr<const nlohmann::json*> GetArray(const char* name) const;
  absl::StatusOr<std::string> GetString(const char* name) const;
  absl::StatusOr<bool> GetBool(const char* name, bool if_absent) const;
  // The objects of the array in `name`.
  absl::StatusOr<std::vector<JsonObject>> GetObjects(const char* name) const;

  // "PATH.name VALUE is not supported (only SUPPORTED)".
  absl::Status Unsupported(std::string_view name, std::string_view value,
                           std::string_view supported) const;

  const nlohmann::json& value() const { return *value_; }

 private:
  JsonObject(const nlohmann::json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const nlohmann::json* value_;
  std::string path_;
};

}  // namespace reprise

#endif  // ENGINE_TOKENIZER_JSON_OBJECT_H_
