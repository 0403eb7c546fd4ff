// Reads the fields of a JSON object one by one, checks them, and remembers
// which ones it read.
#ifndef ENGINE_MODEL_CONFIG_READER_H_
#define ENGINE_MODEL_CONFIG_READER_H_

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace reprise {

// Used by one thread, within one function: the first error sticks, and every
// later read returns the least value allowed, so that a caller reads all its
// fields and asks for status() once, before it uses any of them. Errors are
// InvalidArgument and name the file and the field.
//
// A read without a fallback needs the field; a fallback has the limits of a
// value that is there. JSON null counts as absent. A
// field "outer.inner" is the field "inner" of the object in the field "outer".
class ConfigReader {
 public:
  // `object` is a JSON object and must outlive the reader; `prefix`, such as
  // "attn.", begins the names of its fields in messages.
  ConfigReader(const nlohmann::json& object, std::string file,
               std::string prefix = "");

  int64_t Int(std::string_view field, int64_t min, int64_t max,
              std::optional<int64_t> fallback = std::nullopt);
  double Number(std::string_view field, double min, double max,
                std::optional<double> fallback = std::nullopt);
  bool Bool(std::string_view field,
            std::optional<bool> fallback = std::nullopt);
  std::string String(std::string_view field,
                     std::optional<std::string> fallback = std::nullopt);
  // One number or an array of them; empty if absent.
  std::vector<int64_t> IntList(std::string_view field, int64_t min,
                               int64_t max);
  // An array of numbers; empty if absent. The string "Infinity" counts as one.
  std::vector<double> NumberList(std::string_view field, double min,
                                 double max);
  // An array of strings; empty if absent.
  std::vector<std::string> StringList(std::string_view field);
  // Whether the field is there and a string.
  bool IsString(std::string_view field);
  // Reads the object in `field`, or each object of an array of them, by its own
  // reader, whose first error becomes this one's. Nothing if absent.
  void ForEachObject(std::string_view field,
                     absl::FunctionRef<void(ConfigReader&)> read);
  // Whether the field is there and not null.
  bool Has(std::string_view field);
  // Whether the field is there, null or not; for where that is a difference.
  bool Names(std::string_view field) const;

  // Records `reason` ("FILE: field 'FIELD' REASON") unless there is an error.
  void Refuse(std::string_view field, std::string_view reason);
  // The first error, if any.
  const absl::Status& status() const { return status_; }

  // "FIELD=VALUE\n" for every field asked for, in alphabetical order; absent
  // ones with the fallback.
  std::string UsedFields() const;

 private:
  // Null if absent, or after an error.
  const nlohmann::json* Find(std::string_view field);
  template <typename T>
  T Fallback(std::string_view field, const std::optional<T>& fallback, T least);
  void RefuseFallback(std::string_view field, const std::string& number,
                      std::string_view kind, const std::string& limits);
  double CheckedNumber(std::string_view field, const nlohmann::json& value,
                       double min, double max);
  int64_t CheckedInt(std::string_view field, const nlohmann::json& value,
                     int64_t min, int64_t max);

  const nlohmann::json& object_;
  const std::string file_;
  const std::string prefix_;
  absl::Status status_;
  std::map<std::string, std::string, std::less<>> used_;
};

}  // namespace reprise

#endif  // ENGINE_MODEL_CONFIG_READER_H_
