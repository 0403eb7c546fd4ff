// Reads the wire format of protocol buffers field by field, for files whose
// format is one and whose schema we do not compile in.
#ifndef ENGINE_PROTO_READER_H_
#define ENGINE_PROTO_READER_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

struct ProtoField {
  enum class Kind { kVarint, kFixed32, kFixed64, kBytes };
  uint32_t number = 0;
  Kind kind = Kind::kVarint;
  uint64_t value = 0;      // of all but kBytes, as it lies
  std::string_view bytes;  // of kBytes: a string or another message

  float AsFloat() const;  // of kFixed32
};

// Used by one thread; `message` must outlive it and what it returned.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}

  // The next field; nothing at the end of the message. InvalidArgument if the
  // message is cut off or malformed, or has groups (proto2, long deprecated).
  absl::StatusOr<std::optional<ProtoField>> Next();

 private:
  absl::StatusOr<uint64_t> TakeVarint();
  absl::StatusOr<std::string_view> Take(uint64_t size);

  std::string_view rest_;
};

}  // namespace reprise

#endif  // ENGINE_PROTO_READER_H_
