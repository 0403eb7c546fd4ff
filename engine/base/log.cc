#include "engine/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

namespace reprise {
namespace {

std::atomic<LogFormat> g_format{LogFormat::kText};

// The timestamp, level and message layout of both formats; %v is what
// FormatLine returns.
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr const char* kJsonPattern =
    R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

spdlog::logger& Logger() {
  static spdlog::logger* logger = [] {
    auto* made = new spdlog::logger(  // never destroyed: others log at exit
        "reprise", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern(kTextPattern, spdlog::pattern_time_type::utc);
    return made;
  }();
  return *logger;
}

// Six digits are enough to read, and 0.287 stays 0.287. JSON has no infinity.
std::string ShortNumber(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", value);
  return text;
}

std::string JsonString(std::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// A text value that has blanks, quotes or controls is written as in JSON, so
// that a value can never forge a second field or line.
std::string TextValue(const LogField& field) {
  if (!field.quoted()) return field.value();
  for (const unsigned char c : field.value()) {
    if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c >= 0x7f) {
      return JsonString(field.value());
    }
  }
  return field.value().empty() ? "\"\"" : field.value();
}

std::string FormatLine(std::string_view message, LogFields fields) {
  const bool json = g_format == LogFormat::kJson;
  std::string line =
      json ? "\"message\":" + JsonString(message) : std::string(message);
  for (const LogField& field : fields) {
    if (json) {
      line += "," + JsonString(field.key()) + ":";
      line += field.quoted() ? JsonString(field.value()) : field.value();
    } else {
      line += " " + field.key() + "=" + TextValue(field);
    }
  }
  return line;
}

void Write(spdlog::level::level_enum level, std::string_view message,
           LogFields fields) {
  if (!Logger().should_log(level)) return;
  Logger().log(level, spdlog::string_view_t(FormatLine(message, fields)));
}

}  // namespace

LogField::LogField(std::string_view key, std::string_view value)
    : key_(key), value_(value) {}

LogField::LogField(std::string_view key, bool value)
    : key_(key), value_(value ? "true" : "false"), quoted_(false) {}

LogField::LogField(std::string_view key, double value)
    : key_(key), value_(ShortNumber(value)), quoted_(false) {}

void SetLogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return Logger().set_level(spdlog::level::debug);
    case LogLevel::kInfo:
      return Logger().set_level(spdlog::level::info);
    case LogLevel::kWarning:
      return Logger().set_level(spdlog::level::warn);
    case LogLevel::kError:
      return Logger().set_level(spdlog::level::err);
  }
}

void SetLogFormat(LogFormat format) {
  g_format = format;
  Logger().set_pattern(format == LogFormat::kJson ? kJsonPattern : kTextPattern,
                       spdlog::pattern_time_type::utc);
}

void LogDebug(std::string_view message, LogFields fields) {
  Write(spdlog::level::debug, message, fields);
}
void LogInfo(std::string_view message, LogFields fields) {
  Write(spdlog::level::info, message, fields);
}
void LogWarning(std::string_view message, LogFields fields) {
  Write(spdlog::level::warn, message, fields);
}
void LogError(std::string_view message, LogFields fields) {
  Write(spdlog::level::err, message, fields);
}

void CheckFailed(const char* file, int line, const char* condition) {
  LogError("CHECK failed",
           {{"file", file}, {"line", line}, {"condition", condition}});
  std::abort();
}

}  // namespace reprise
