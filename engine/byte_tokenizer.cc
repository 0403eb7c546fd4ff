#include "engine/byte_tokenizer.h"

#include <array>

#include "engine/base/status_macros.h"

namespace reprise {
namespace {

// The 256 one-byte strings.
constexpr std::array<char, 256> kBytes = [] {
  std::array<char, 256> bytes{};
  for (int i = 0; i < 256; ++i) bytes[i] = static_cast<char>(i);
  return bytes;
}();

// Token id = byte; ids past 255 have none.
class ByteTokenizer : public Tokenizer {
 public:
  explicit ByteTokenizer(int64_t vocab_size) : vocab_size_(vocab_size) {}

  absl::StatusOr<std::vector<int32_t>> EncodeUpTo(
      std::string_view text, bool /*allow_special*/,
      size_t max_tokens) const override {
    RETURN_IF_ERROR(CheckTextSize(text));
    if (text.size() > max_tokens) return TooManyTokensError(max_tokens);
    std::vector<int32_t> ids;
    ids.reserve(text.size());
    for (const char byte : text) ids.push_back(static_cast<uint8_t>(byte));
    return ids;
  }
  std::string_view TokenBytes(int32_t id) const override {
    if (id < 0 || id >= std::ssize(kBytes)) return {};
    return std::string_view(&kBytes[id], 1);
  }
  bool IsSpecial(int32_t /*id*/) const override { return false; }
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> FindToken(std::string_view name) const override {
    if (name.size() != 1) return std::nullopt;
    return static_cast<uint8_t>(name[0]);
  }
  uint64_t fingerprint() const override { return 0x7365747962; /* "bytes" */ }
  std::string_view kind() const override { return "bytes"; }

 private:
  const int64_t vocab_size_;
};

}  // namespace

std::unique_ptr<Tokenizer> CreateByteTokenizer(int64_t vocab_size) {
  return std::make_unique<ByteTokenizer>(vocab_size);
}

}  // namespace reprise
