// Writes tokenizer.model files for tests.
#ifndef TESTS_SUPPORT_SENTENCEPIECE_MODEL_H_
#define TESTS_SUPPORT_SENTENCEPIECE_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/bytes.h"
#include "engine/sentencepiece_file.h"
#include "engine/token_decoding.h"

namespace reprise {

// The wire format of protocol buffers.
class ProtoWriter {
 public:
  ProtoWriter& Varint(uint32_t field, uint64_t value) {
    Tag(field, 0);
    Number(value);
    return *this;
  }
  ProtoWriter& Float(uint32_t field, float value) {
    Tag(field, 5);
    ByteWriter bytes;
    bytes.Put(value);
    data_ += bytes.data();
    return *this;
  }
  ProtoWriter& Bytes(uint32_t field, std::string_view bytes) {
    Tag(field, 2);
    Number(bytes.size());
    data_ += bytes;
    return *this;
  }
  ProtoWriter& Raw(std::string_view bytes) {
    data_ += bytes;
    return *this;
  }
  const std::string& data() const { return data_; }

 private:
  void Tag(uint32_t field, uint32_t wire_type) {
    Number(uint64_t{field} << 3 | wire_type);
  }
  void Number(uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      data_ += static_cast<char>(value | 0x80);
    }
    data_ += static_cast<char>(value);
  }

  std::string data_;
};

inline std::string PieceMessage(const SentencePiece& piece) {
  return ProtoWriter()
      .Bytes(1, piece.text)
      .Float(2, piece.score)
      .Varint(3, static_cast<uint64_t>(piece.type))
      .data();
}

inline std::string ModelOf(const SentencePieceSpec& spec) {
  ProtoWriter model;
  for (const SentencePiece& piece : spec.pieces) {
    model.Bytes(1, PieceMessage(piece));
  }
  model.Bytes(2, ProtoWriter()
                     .Varint(3, 2)  // BPE
                     .Varint(35, spec.byte_fallback)
                     .Bytes(44, spec.unknown_surface)
                     .data());
  model.Bytes(3, ProtoWriter()
                     .Bytes(2, spec.charsmap)
                     .Varint(3, spec.add_dummy_prefix)
                     .Varint(4, spec.remove_extra_whitespaces)
                     .Varint(5, spec.escape_whitespaces)
                     .data());
  return model.data();
}

// <unk>, <s>, </s>, the bytes at 3, then characters and what they merge to, as
// Llama 2 has it. "\u2581" is a space.
inline SentencePieceSpec SmallSentencePieceSpec() {
  using Type = SentencePiece::Type;
  SentencePieceSpec spec;
  spec.byte_fallback = true;
  spec.remove_extra_whitespaces = false;
  spec.pieces = {{"<unk>", 0, Type::kUnknown},
                 {"<s>", 0, Type::kControl},
                 {"</s>", 0, Type::kControl}};
  for (int byte = 0; byte < 256; ++byte) {
    spec.pieces.push_back(
        {NameOfByte(static_cast<uint8_t>(byte)), 0, Type::kByte});
  }
  float score = 0;
  for (const char* merged : {"ab", "\u2581ab", "\u2581a", "\u2581\u2581", "bc",
                             "abc", "\u2581\u2581\u2581\u2581"}) {
    spec.pieces.push_back({merged, score--, Type::kNormal});
  }
  for (const char* character : {"\u2581", "a", "b", "c", "\u00E9", "\n"}) {
    spec.pieces.push_back({character, score--, Type::kNormal});
  }
  return spec;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_SENTENCEPIECE_MODEL_H_
