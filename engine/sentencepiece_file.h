// Reads and checks SentencePiece's tokenizer.model.
//
// The format is the message ModelProto of sentencepiece_model.proto
// (github.com/google/sentencepiece). We read it ourselves: Debian's
// libsentencepiece exports the symbols of a protobuf of its own, 3.14, and a
// process that also has gRPC's, 3.21, ends while it loads the two.
#ifndef ENGINE_SENTENCEPIECE_FILE_H_
#define ENGINE_SENTENCEPIECE_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace reprise {

// Stands for a space in pieces, U+2581.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

struct SentencePiece {
  // The numbers are those of the file.
  enum class Type {
    kNormal = 1,
    kUnknown = 2,
    kControl = 3,
    kUserDefined = 4,
    kByte = 6,
  };
  std::string text;  // 1..kMaxPieceBytes, valid UTF-8
  float score = 0;   // finite; of two merges the one with the higher is done
  Type type = Type::kNormal;
};

inline constexpr size_t kMaxPieceBytes = 256;

// What a tokenizer.model says, as far as it decides how a text is encoded.
struct SentencePieceSpec {
  std::vector<SentencePiece> pieces;  // by id; exactly one is kUnknown
  bool byte_fallback = false;         // then all 256 bytes have a piece
  std::string unknown_surface = " \xE2\x81\x87 ";  // what kUnknown decodes to
  // Compiled rules of normalisation; empty: none.
  std::string charsmap;
  bool add_dummy_prefix = true;          // a space before every text
  bool remove_extra_whitespaces = true;  // at both ends, and after another
  bool escape_whitespaces = true;        // spaces become kMetaspace
};

// InvalidArgument, naming the field or the piece, for a file that is malformed,
// larger than 16 MiB, has more than `vocab_size` pieces, the same one twice, or
// asks for something not supported: models other than BPE, unused pieces,
// spaces as suffixes, rules of denormalisation.
absl::StatusOr<SentencePieceSpec> ParseSentencePieceModel(
    std::string_view contents, int64_t vocab_size);

}  // namespace reprise

#endif  // ENGINE_SENTENCEPIECE_FILE_H_
