// Structured logs, one line each, and checks of internal invariants.
//
//   LogInfo("model loaded", {{"family", family}, {"seconds", seconds}});
//
// prints `2026-01-31T12:00:00.123Z info model loaded family=linear_attn
// seconds=0.42`, or the same as a JSON object after SetLogFormat(kJson).
// Values never hold prompts, outputs or stored bytes: logs are not for them.
#ifndef ENGINE_BASE_LOG_H_
#define ENGINE_BASE_LOG_H_

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

namespace reprise {

enum class LogLevel { kDebug, kInfo, kWarning, kError };
enum class LogFormat { kText, kJson };

// One key and its value. Numbers (six digits) and booleans keep their type.
class LogField {
 public:
  LogField(std::string_view key, std::string_view value);
  LogField(std::string_view key, const char* value)
      : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, const std::string& value)
      : LogField(key, std::string_view(value)) {}
  LogField(std::string_view key, bool value);
  LogField(std::string_view key, double value);
  template <std::integral T>
  LogField(std::string_view key, T value)
      : key_(key), value_(std::to_string(value)), quoted_(false) {}

  const std::string& key() const { return key_; }
  const std::string& value() const { return value_; }
  bool quoted() const { return quoted_; }

 private:
  std::string key_;
  std::string value_;
  bool quoted_ = true;
};

using LogFields = std::initializer_list<LogField>;

// Thread-safe; written to stderr. Lines below the level are dropped.
void SetLogLevel(LogLevel level);
void SetLogFormat(LogFormat format);
void LogDebug(std::string_view message, LogFields fields = {});
void LogInfo(std::string_view message, LogFields fields = {});
void LogWarning(std::string_view message, LogFields fields = {});
void LogError(std::string_view message, LogFields fields = {});

// Used by CHECK: logs and aborts.
[[noreturn]] void CheckFailed(const char* file, int line,
                              const char* condition);

}  // namespace reprise

// Ends the process if a condition that only our own bug can break does not
// hold. Never for bytes from outside: those are an absl::Status.
#define CHECK(condition)                                      \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::reprise::CheckFailed(__FILE__, __LINE__, #condition); \
  } while (false)

#endif  // ENGINE_BASE_LOG_H_
