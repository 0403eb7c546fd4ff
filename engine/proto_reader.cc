#include "engine/proto_reader.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace reprise {

float ProtoField::AsFloat() const {
  return std::bit_cast<float>(static_cast<uint32_t>(value));
}

absl::StatusOr<uint64_t> ProtoReader::TakeVarint() {
  uint64_t value = 0;
  // 7 bits a byte: 64 bits end in the tenth.
  for (int shift = 0; shift < 64; shift += 7) {
    ASSIGN_OR_RETURN(const std::string_view byte, Take(1));
    const auto bits = static_cast<uint8_t>(byte[0]);
    value |= uint64_t{bits & 0x7Fu} << shift;
    if (bits < 0x80) return value;
  }
  return absl::InvalidArgumentError("a number has more than 64 bits");
}

absl::StatusOr<std::string_view> ProtoReader::Take(uint64_t size) {
  if (size > rest_.size()) {
    return absl::InvalidArgumentError("the message is cut off");
  }
  const std::string_view taken = rest_.substr(0, size);
  rest_.remove_prefix(size);
  return taken;
}

absl::StatusOr<std::optional<ProtoField>> ProtoReader::Next() {
  if (rest_.empty()) return std::nullopt;
  ASSIGN_OR_RETURN(const uint64_t tag, TakeVarint());
  ProtoField field;
  if (tag >> 3 == 0 || tag > UINT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no field ", tag >> 3));
  }
  field.number = static_cast<uint32_t>(tag >> 3);
  switch (tag & 7) {
    case 0: {
      ASSIGN_OR_RETURN(field.value, TakeVarint());
      break;
    }
    case 1:
    case 5: {
      const size_t size = (tag & 7) == 1 ? 8 : 4;
      field.kind =
          size == 8 ? ProtoField::Kind::kFixed64 : ProtoField::Kind::kFixed32;
      ASSIGN_OR_RETURN(const std::string_view bytes, Take(size));
      std::memcpy(&field.value, bytes.data(), size);
      break;
    }
    case 2: {
      field.kind = ProtoField::Kind::kBytes;
      ASSIGN_OR_RETURN(const uint64_t size, TakeVarint());
      ASSIGN_OR_RETURN(field.bytes, Take(size));
      break;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          "field ", field.number, " has the unknown wire type ", tag & 7));
  }
  return field;
}

}  // namespace reprise
