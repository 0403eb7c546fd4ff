// Where servers listen, as people write it.
#ifndef CLIENT_CLIENT_ADDRESSES_H_
#define CLIENT_CLIENT_ADDRESSES_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise {

// "HOST:PORT[,HOST:PORT...]", 1 to 64 of them; an IPv6 address stands in
// brackets. InvalidArgument, with a text for the user that names what is wrong.
absl::StatusOr<std::vector<std::string>> ParseAddresses(std::string_view text);

}  // namespace reprise

#endif  // CLIENT_CLIENT_ADDRESSES_H_
