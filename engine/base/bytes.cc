#include "engine/base/bytes.h"

#include "absl/strings/str_cat.h"
#include "engine/base/crc32c.h"

namespace reprise {

uint32_t Crc32c(std::string_view data, uint32_t crc) {
  static const Crc32cWay way = Crc32cWays().front();
  return way.crc32c(data, crc);
}

absl::StatusOr<std::string_view> ByteReader::GetBytes(uint64_t size) {
  if (size > rest_.size()) {
    return absl::DataLossError(
        absl::StrCat("needs ", size, " more bytes, has ", rest_.size()));
  }
  const std::string_view bytes = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return bytes;
}

absl::StatusOr<std::string_view> ByteReader::GetSized() {
  ByteReader ahead = *this;
  absl::StatusOr<uint32_t> size = ahead.Get<uint32_t>();
  if (!size.ok()) return size.status();
  absl::StatusOr<std::string_view> bytes = ahead.GetBytes(*size);
  if (bytes.ok()) *this = ahead;
  return bytes;
}

}  // namespace reprise
