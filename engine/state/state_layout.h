// Where each number of a session's state lies in its slot.
#ifndef ENGINE_STATE_STATE_LAYOUT_H_
#define ENGINE_STATE_STATE_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace reprise {

// How much of a field a session uses that has consumed `position` tokens.
enum class Growth {
  kNone,     // all of it
  kContext,  // a row per token: rows [0, position)
  // A ring: token p has row p % shape[0], which token p + shape[0] takes over.
  // Rows [0, min(position, shape[0])).
  kWindow,
};

// One named f32 tensor inside a slot.
struct StateField {
  std::string name;            // "LAYER.NAME", as in "3.recurrent"
  std::vector<int64_t> shape;  // row-major; shape[0]: most rows, if it grows
  int64_t offset = 0;          // bytes from the start of the slot
  int64_t elements = 0;
  Growth growth = Growth::kNone;

  // The rows in use are the first ones, so these are all that a session of
  // `position` tokens is made of. What lies behind them is never read.
  std::vector<int64_t> ShapeInUse(int64_t position) const;
  int64_t ElementsInUse(int64_t position) const;
};

// Neighbouring bytes of a slot.
struct ByteRange {
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Built by the mixers while a model loads, immutable afterwards. Fields start
// at multiples of 64 bytes; the gaps between them stay zero. Growing fields
// have pages of their own: the system gives memory only to those pages that
// were written to, so a slot takes as much as its session has grown.
class StateLayout {
 public:
  static constexpr int64_t kDefaultMaxContext = 32768;
  // Far beyond any machine's memory, and far from overflow.
  static constexpr int64_t kMaxSlotBytes = int64_t{1} << 50;

  // `max_context`, 1 or more: rows of a field that grows with the context.
  explicit StateLayout(int64_t max_context = kDefaultMaxContext);

  // Each appends a field and returns its offset in bytes. CHECKs that the name
  // is new and that every dimension is positive. What would make a slot larger
  // than kMaxSlotBytes is left out: status() says so, the offset means nothing.
  int64_t Add(std::string_view name, std::vector<int64_t> shape);
  // Growth::kContext: a row of `row_shape` for every token.
  int64_t AddContext(std::string_view name, std::vector<int64_t> row_shape);
  // Growth::kWindow: a row for each of the latest `window` tokens.
  int64_t AddWindow(std::string_view name, int64_t window,
                    std::vector<int64_t> row_shape);

  // OK, or InvalidArgument with the first field that was too large, its shape
  // and the limit: ask before the layout is used.
  const absl::Status& status() const { return status_; }
  const std::vector<StateField>& fields() const { return fields_; }
  // Rows of a field that grows with the context, whether there is one or not.
  int64_t context_rows() const { return max_context_; }
  // Most tokens that a session of this layout can consume; none: no limit.
  std::optional<int64_t> max_context() const;
  // Size of a slot: a multiple of 64, and of a page if anything grows. With
  // growing fields it is address space, and the most memory a slot can take.
  int64_t slot_bytes() const;
  // Bytes of the fields alone, without gaps: of those that do not grow with
  // the context, windows being full; of those that do, per token; and of all
  // that a session of `position` tokens uses.
  int64_t payload_bytes() const { return payload_bytes_; }
  int64_t bytes_per_token() const { return bytes_per_token_; }
  int64_t PayloadBytesAt(int64_t position) const;
  // The pages of the growing fields, neighbours joined, in order.
  const std::vector<ByteRange>& growing() const { return growing_; }
  // Equal for equal names, shapes, growth and order; differs otherwise, but for
  // max_context: a session fits wherever there is room for its tokens.
  uint64_t fingerprint() const;

 private:
  int64_t Append(std::string_view name, std::vector<int64_t> shape,
                 Growth growth);

  int64_t max_context_;  // not const: layouts are assigned
  absl::Status status_;
  std::vector<StateField> fields_;
  std::vector<ByteRange> growing_;
  int64_t end_ = 0;  // of the last field, a multiple of 64
  int64_t payload_bytes_ = 0;
  int64_t bytes_per_token_ = 0;
};

}  // namespace reprise

#endif  // ENGINE_STATE_STATE_LAYOUT_H_
