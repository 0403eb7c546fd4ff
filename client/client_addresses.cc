#include "client/client_addresses.h"

#include <charconv>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"

namespace reprise {
namespace {

constexpr size_t kMaxAddresses = 64;

bool IsPort(std::string_view text) {
  int port = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, port);
  return !text.empty() && error == std::errc() && rest == end && port >= 1 &&
         port <= 65535;
}

bool IsHost(std::string_view text) {
  const bool bracketed =
      text.size() > 2 && text.front() == '[' && text.back() == ']';
  if (bracketed) {
    text = text.substr(1, text.size() - 2);
    return text.find_first_not_of("0123456789abcdefABCDEF:.%") ==
           std::string_view::npos;
  }
  return !text.empty() &&
         text.find_first_of(":/[], \t\n") == std::string_view::npos;
}

absl::Status NotAnAddress(std::string_view address, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", ToAbsl(address), "' is not HOST:PORT", ToAbsl(why),
                   "; several addresses are separated by commas"));
}

absl::Status CheckAddress(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (address.find("://") != std::string_view::npos) {
    return NotAnAddress(address, ": no scheme may stand before it");
  }
  if (colon == std::string_view::npos || address.ends_with(']')) {
    return NotAnAddress(address, ": the port is missing");
  }
  if (!IsPort(address.substr(colon + 1))) {
    return NotAnAddress(address, ": the port is a number from 1 to 65535");
  }
  if (!IsHost(address.substr(0, colon))) {
    return NotAnAddress(address,
                        ": the host is a name, an IPv4 address, or an IPv6 "
                        "address in brackets");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view text) {
  std::vector<std::string> addresses;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view address = text.substr(0, comma);
    if (absl::Status status = CheckAddress(address); !status.ok()) {
      return status;
    }
    addresses.emplace_back(address);
    if (addresses.size() > kMaxAddresses) {
      return absl::InvalidArgumentError(
          absl::StrCat("more than ", kMaxAddresses, " addresses"));
    }
    if (comma == std::string_view::npos) return addresses;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace reprise
