#include "client/format.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "client/sanitise.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

std::string WithDecimals(double value, int decimals, const char* unit) {
  return FormatDecimals(value, decimals) + " " + unit;
}

std::string ToLine(const nlohmann::json& json) {
  return json.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/false,
                   nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::string FormatDuration(uint64_t microseconds) {
  const double us = static_cast<double>(microseconds);
  if (us < 1e3) return WithDecimals(us, 0, "us");
  if (us < 1e6) return WithDecimals(us / 1e3, 1, "ms");
  return WithDecimals(us / 1e6, 2, "s");
}

std::string FormatBytes(uint64_t bytes) {
  constexpr std::array<const char*, 4> kUnits = {"KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return WithDecimals(static_cast<double>(bytes), 0, "B");
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return WithDecimals(value, 1, kUnits[unit]);
}

std::string FormatDecimals(double value, int decimals) {
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%.*f", decimals, value);
  return text.data();
}

std::string FormatCount(uint64_t count) {
  std::string text = std::to_string(count);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string FormatTokens(uint64_t count) {
  return FormatCount(count) + (count == 1 ? " token" : " tokens");
}

std::string FormatTime(int64_t unix_ms) {
  const std::time_t seconds = unix_ms / 1000;
  std::tm local = {};
  localtime_r(&seconds, &local);
  std::array<char, 64> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &local);
  return text.data();
}

std::string QuoteBytes(std::string_view bytes) {
  std::string quoted = "\"";
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, NextUtf8(bytes).size);
    if (part == "\n") {
      quoted += "\\n";
    } else if (part == "\t") {
      quoted += "\\t";
    } else if (part == "\"" || part == "\\") {
      quoted.append("\\").append(part);
    } else if (SanitiseForTerminal(part) == part) {
      quoted += part;
    } else {
      for (const char byte : part) {
        std::array<char, 8> text;
        std::snprintf(text.data(), text.size(), "\\x%02x",
                      static_cast<unsigned char>(byte));
        quoted += text.data();
      }
    }
    bytes.remove_prefix(part.size());
  }
  return quoted + "\"";
}

std::string FormatError(const absl::Status& status, bool json) {
  const std::string code = absl::StatusCodeToString(status.code());
  const std::string message(FromAbsl(status.message()));
  if (!json) {
    return "reprise: " + (absl::IsUnknown(status) ? "" : code + ": ") + message;
  }
  return ToLine({{"error", {{"code", code}, {"message", message}}}});
}

std::string FormatNotice(const std::string& notice, bool json) {
  return json ? ToLine({{"notice", notice}}) : "reprise: " + notice;
}

Table::Table(std::vector<std::pair<std::string, Align>> columns) {
  std::vector<std::string> header;
  for (auto& [name, align] : columns) {
    header.push_back(std::move(name));
    alignment_.push_back(align);
  }
  rows_.push_back(std::move(header));
}

void Table::AddRow(std::vector<std::string> cells) {
  CHECK(cells.size() == alignment_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::ToString() const {
  std::vector<size_t> widths(alignment_.size(), 0);
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i > 0) line += "  ";
      line +=
          alignment_[i] == Align::kRight ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string FormatProperties(
    const std::vector<std::pair<std::string, std::string>>& properties) {
  size_t width = 0;
  for (const auto& [name, value] : properties) {
    width = std::max(width, name.size());
  }
  std::string text;
  for (const auto& [name, value] : properties) {
    const std::string padding(width - name.size(), ' ');
    text += name + ":  " + padding + value + "\n";
  }
  return text;
}

}  // namespace reprise
