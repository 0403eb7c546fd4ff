#include "server/store/redis_uri.h"

#include <charconv>
#include <fstream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

constexpr int64_t kMostMs = 600'000;
constexpr size_t kLongestPrefix = 64;
constexpr size_t kLongestSocketPath = 107;  // sockaddr_un's, less its end

absl::Status Wrong(std::string_view part, std::string_view value,
                   std::string_view rule) {
  return absl::InvalidArgumentError(absl::StrCat("store: ", ToAbsl(part), " \"",
                                                 ToAbsl(value), "\" must be ",
                                                 ToAbsl(rule)));
}

// InvalidArgument without the value: it may be a secret.
absl::StatusOr<std::string> Decoded(std::string_view part,
                                    std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const std::string_view digits = text.substr(i + 1, 2);
    uint8_t byte = 0;
    const auto [end, error] = std::from_chars(
        digits.data(), digits.data() + digits.size(), byte, /*base=*/16);
    if (digits.size() != 2 || error != std::errc() ||
        end != digits.data() + 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("store: ", ToAbsl(part),
                       ": % must be followed by two hexadecimal digits (%25 "
                       "is % itself)"));
    }
    out += static_cast<char>(byte);
    i += 2;
  }
  return out;
}

struct Range {
  int64_t min = 0;
  int64_t max = 0;
};

absl::StatusOr<int64_t> Number(std::string_view part, std::string_view text,
                               Range range) {
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() ||
      value < range.min || value > range.max) {
    return Wrong(part, text,
                 FromAbsl(absl::StrCat("a whole number from ", range.min,
                                       " to ", range.max)));
  }
  return value;
}

// What lies before the first `mark`, and what after it, if there is one.
struct Halves {
  std::string_view before;
  std::optional<std::string_view> after;
};
Halves Split(std::string_view text, char mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return {text, std::nullopt};
  return {text.substr(0, at), text.substr(at + 1)};
}

absl::Status ReadPasswordFile(RedisOptions& options) {
  std::ifstream file(options.password_file);
  if (!std::getline(file, options.password)) {
    return absl::NotFoundError(
        absl::StrCat("store: password_file: no line can be read from ",
                     options.password_file));
  }
  absl::StripAsciiWhitespace(&options.password);
  return absl::OkStatus();
}

absl::Status CheckPrefix(const std::string& prefix) {
  const bool plain = prefix.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0"
                         "123456789._-") == std::string::npos;
  if (plain && !prefix.empty() && prefix.size() <= kLongestPrefix) {
    return absl::OkStatus();
  }
  return Wrong("prefix", prefix, "1 to 64 of A-Z a-z 0-9 . _ -");
}

absl::Status SetParameter(std::string_view name, std::string value,
                          RedisOptions& o) {
  const auto set = [&](Range range, int64_t& field) -> absl::Status {
    ASSIGN_OR_RETURN(field, Number(name, value, range));
    return absl::OkStatus();
  };
  if (name == "prefix") {
    o.prefix = std::move(value);
    return CheckPrefix(o.prefix);
  }
  if (name == "connect_timeout") return set({1, kMostMs}, o.connect_timeout_ms);
  if (name == "timeout") return set({1, kMostMs}, o.timeout_ms);
  if (name == "wait_replicas") return set({0, 100}, o.wait_replicas);
  if (name == "database") return set({0, 1'000'000}, o.database);
  std::string* const field = name == "user"            ? &o.user
                             : name == "password_file" ? &o.password_file
                             : name == "ca"            ? &o.tls_options.ca_file
                             : name == "cert" ? &o.tls_options.cert_file
                             : name == "key"  ? &o.tls_options.key_file
                             : name == "server_name"
                                 ? &o.tls_options.server_name
                                 : nullptr;
  if (field == nullptr) {
    return Wrong("parameter", name,
                 "prefix, database, user, password_file, ca, cert, key, "
                 "server_name, connect_timeout, timeout or wait_replicas");
  }
  if (!o.tls && name != "user" && name != "password_file") {
    return absl::InvalidArgumentError(
        absl::StrCat("store: ", ToAbsl(name), " is for rediss:// alone"));
  }
  *field = std::move(value);
  return absl::OkStatus();
}

absl::Status SetParameters(std::string_view query, RedisOptions& options) {
  while (!query.empty()) {
    const Halves parts = Split(query, '&');
    const Halves pair = Split(parts.before, '=');
    ASSIGN_OR_RETURN(std::string value,
                     Decoded(pair.before, pair.after.value_or("")));
    if (value.empty()) {
      return Wrong("parameter", pair.before, "followed by = and a value");
    }
    RETURN_IF_ERROR(SetParameter(pair.before, std::move(value), options));
    query = parts.after.value_or("");
  }
  return absl::OkStatus();
}

// HOST[:PORT], the host in brackets if it has colons.
absl::Status SetHostPort(std::string_view text, RedisAddress& address) {
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    const bool good = end != std::string_view::npos && end > 1 &&
                      (end + 1 == text.size() || text[end + 1] == ':');
    if (!good) return Wrong("address", text, "[IPV6] or [IPV6]:PORT");
    address.host = std::string(text.substr(1, end - 1));
    has_port = end + 1 < text.size();
    if (has_port) port = text.substr(end + 2);
  } else {
    const Halves halves = Split(text, ':');
    address.host = std::string(halves.before);
    has_port = halves.after.has_value();
    port = halves.after.value_or("");
  }
  if (address.host.empty()) return Wrong("address", text, "HOST or HOST:PORT");
  if (!has_port) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t number, Number("port", port, {1, 65'535}));
  address.port = static_cast<int>(number);
  return absl::OkStatus();
}

// What stands between // and the parameters.
absl::Status SetAuthority(std::string_view text, RedisOptions& options) {
  const size_t at = text.rfind('@');
  if (at != std::string_view::npos) {
    const Halves login = Split(text.substr(0, at), ':');
    if (!login.after.has_value()) {
      return absl::InvalidArgumentError(
          "store: before @ there must be USER:PASSWORD or :PASSWORD");
    }
    ASSIGN_OR_RETURN(options.user, Decoded("user", login.before));
    ASSIGN_OR_RETURN(options.password, Decoded("password", *login.after));
    text.remove_prefix(at + 1);
  }
  const Halves place = Split(text, '/');
  RETURN_IF_ERROR(SetHostPort(place.before, options.address));
  if (!place.after.value_or("").empty()) {
    ASSIGN_OR_RETURN(options.database,
                     Number("database", *place.after, {0, 1'000'000}));
  }
  return absl::OkStatus();
}

absl::Status CheckUser(const RedisOptions& o) {
  if (o.user.empty() || !o.password.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("store: user \"", o.user, "\" has no password"));
}

// All but the password in a file.
absl::Status CheckTogether(const RedisOptions& o) {
  if (o.password_file.empty()) RETURN_IF_ERROR(CheckUser(o));
  if (o.tls_options.cert_file.empty() != o.tls_options.key_file.empty()) {
    return absl::InvalidArgumentError(
        "store: cert and key must be given together");
  }
  return absl::OkStatus();
}

// Reads no file.
absl::StatusOr<RedisOptions> ParseParts(std::string_view uri) {
  RedisOptions options;
  const Halves scheme = Split(uri, ':');
  std::string_view rest = scheme.after.value_or("");
  const Halves parts = Split(rest, '?');
  rest = parts.before;
  if (scheme.before == "redis+unix") {
    if (!rest.starts_with('/') || rest.size() > kLongestSocketPath) {
      return Wrong("socket", rest, "the whole path, of at most 107 characters");
    }
    options.address.path = std::string(rest);
  } else {
    options.tls = scheme.before == "rediss";
    if (!rest.starts_with("//")) {
      return absl::InvalidArgumentError(
          absl::StrCat("store: \"", ToAbsl(scheme.before),
                       ":\" must be followed by //HOST:PORT"));
    }
    RETURN_IF_ERROR(SetAuthority(rest.substr(2), options));
  }
  RETURN_IF_ERROR(SetParameters(parts.after.value_or(""), options));
  RETURN_IF_ERROR(CheckTogether(options));
  if (options.tls_options.server_name.empty()) {
    options.tls_options.server_name = options.address.host;
  }
  return options;
}

}  // namespace

std::string RedisAddress::Text() const {
  if (!path.empty()) return path;
  const bool bare = host.find(':') == std::string::npos;
  return bare ? absl::StrCat(host, ":", port)
              : absl::StrCat("[", host, "]:", port);
}

absl::Status CheckRedisUri(std::string_view uri) {
  return ParseParts(uri).status();
}

absl::StatusOr<RedisOptions> ParseRedisUri(std::string_view uri) {
  ASSIGN_OR_RETURN(RedisOptions options, ParseParts(uri));
  if (!options.password_file.empty()) {
    RETURN_IF_ERROR(ReadPasswordFile(options));
    RETURN_IF_ERROR(CheckUser(options));
  }
  return options;
}

}  // namespace reprise
