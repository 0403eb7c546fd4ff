#include "server/options_flags.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "server/option_values.h"

namespace reprise {
namespace {

// Those of `examples` that the option takes, with commas.
std::string Within(std::initializer_list<const char*> examples,
                   std::optional<int64_t> (*parse)(std::string_view),
                   Flags::Range range) {
  std::string within;
  for (const char* example : examples) {
    const int64_t value = *parse(example);
    if (value < range.min || value > range.max) continue;
    absl::StrAppend(&within, within.empty() ? "" : ", ", example);
  }
  return within;
}

}  // namespace

CLI::Option* Flags::Text(const char* flag, const char* value,
                         std::string& field, const std::string& help,
                         const Check& check) {
  const std::string shown = field.empty() ? help : help + " [" + field + "]";
  return Add(flag, value, field, shown, check);
}

void Flags::Count(const char* flag, int64_t& field, Range range,
                  const std::string& help, int64_t multiple_of) {
  const std::string shown =
      field == 0 ? help : absl::StrCat(help, " [", field, "]");
  Add(flag, "N", field, shown, [=](std::string& text) -> std::string {
    const std::optional<int64_t> value = ParseWhole(text);
    if (value.has_value() && *value >= range.min && *value <= range.max &&
        *value % multiple_of == 0) {
      return "";
    }
    const std::string multiple =
        multiple_of == 1 ? "" : absl::StrCat(", a multiple of ", multiple_of);
    return absl::StrCat("'", text, "' is not a whole number from ", range.min,
                        " to ", range.max, multiple);
  });
}

void Flags::Duration(const char* flag, int64_t& field, Range range,
                     const std::string& help) {
  Add(flag, "TIME", field, help + " [" + FormatDurationMs(field) + "]",
      [=](std::string& text) -> std::string {
        const std::optional<int64_t> value = ParseDurationMs(text);
        if (value.has_value() && *value >= range.min && *value <= range.max) {
          text = std::to_string(*value);
          return "";
        }
        return NotWithin(
            text, value.has_value(), "a time", FormatDurationMs(range.min),
            FormatDurationMs(range.max),
            Within({"500ms", "30s", "10m"}, ParseDurationMs, range));
      });
}

void Flags::Bytes(const char* flag, int64_t& field, Range range,
                  const std::string& help) {
  Add(flag, "SIZE", field, help + " [" + FormatBytes(field) + "]",
      [=](std::string& text) -> std::string {
        const std::optional<int64_t> value = ParseBytes(text);
        if (value.has_value() && *value >= range.min && *value <= range.max) {
          text = std::to_string(*value);
          return "";
        }
        return NotWithin(
            text, value.has_value(), "a size", FormatBytes(range.min),
            FormatBytes(range.max),
            Within({"64KiB", "512MiB", "2GiB"}, ParseBytes, range));
      });
}

CLI::Option* Flags::Finish(CLI::Option* option, const std::string& value,
                           const Check& check) {
  if (check != nullptr) option->transform(CLI::Validator(check, ""));
  return option->option_text(value)->group(group_)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeLast);
}

}  // namespace reprise
