#include "engine/sentencepiece_file.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/model/json_text.h"
#include "engine/proto_reader.h"
#include "engine/token_decoding.h"

namespace reprise {
namespace {

using Kind = ProtoField::Kind;

constexpr size_t kMaxFileBytes = 16 << 20;

template <typename... Parts>
absl::Status BadModel(const Parts&... parts) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.model: ", parts...));
}

// Calls `read` for each field of `message`, which is the one called `name`.
absl::Status ForEachField(
    std::string_view message, std::string_view name,
    absl::FunctionRef<absl::Status(const ProtoField&)> read) {
  ProtoReader reader(message);
  while (true) {
    const auto field = reader.Next();
    if (!field.ok()) {
      return BadModel(ToAbsl(name),
                      " cannot be read: ", field.status().message());
    }
    if (!field->has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(read(**field));
  }
}

absl::Status Expect(const ProtoField& field, Kind kind, std::string_view name) {
  if (field.kind == kind) return absl::OkStatus();
  return BadModel(ToAbsl(name), " has the wrong wire type");
}

absl::Status GetBool(const ProtoField& field, std::string_view name,
                     bool* value) {
  RETURN_IF_ERROR(Expect(field, Kind::kVarint, name));
  *value = field.value != 0;
  return absl::OkStatus();
}

absl::Status GetText(const ProtoField& field, std::string_view name,
                     std::string* text) {
  RETURN_IF_ERROR(Expect(field, Kind::kBytes, name));
  *text = field.bytes;
  return absl::OkStatus();
}

absl::Status GetType(const ProtoField& field, const std::string& path,
                     SentencePiece::Type* type) {
  RETURN_IF_ERROR(Expect(field, Kind::kVarint, path + ".type"));
  constexpr uint64_t kUnused = 5;
  if (field.value < 1 || field.value > 6 || field.value == kUnused) {
    return BadModel(path, ".type ", field.value,
                    " is not supported (only NORMAL 1, UNKNOWN 2, CONTROL 3, "
                    "USER_DEFINED 4 and BYTE 6)");
  }
  *type = static_cast<SentencePiece::Type>(field.value);
  return absl::OkStatus();
}

absl::StatusOr<SentencePiece> ReadPiece(std::string_view message,
                                        const std::string& path) {
  SentencePiece piece;
  RETURN_IF_ERROR(
      ForEachField(message, path, [&](const ProtoField& field) -> absl::Status {
        switch (field.number) {
          case 1:
            return GetText(field, path + ".piece", &piece.text);
          case 2:
            RETURN_IF_ERROR(Expect(field, Kind::kFixed32, path + ".score"));
            piece.score = field.AsFloat();
            return absl::OkStatus();
          case 3:
            return GetType(field, path, &piece.type);
          default:
            return absl::OkStatus();
        }
      }));
  if (piece.text.empty() || piece.text.size() > kMaxPieceBytes) {
    return BadModel(path, ".piece has ", piece.text.size(), " bytes, not 1..",
                    kMaxPieceBytes);
  }
  if (FindInvalidUtf8(piece.text) != std::string_view::npos) {
    return BadModel(path, ".piece is not UTF-8");
  }
  if (!std::isfinite(piece.score)) {
    return BadModel(path, ".score is not a finite number");
  }
  return piece;
}

absl::Status ReadTrainerSpec(std::string_view message,
                             SentencePieceSpec* spec) {
  constexpr uint64_t kBpe = 2;
  uint64_t model_type = 1;  // UNIGRAM, unless the file says something else
  bool suffix = false;
  RETURN_IF_ERROR(ForEachField(
      message, "trainer_spec", [&](const ProtoField& field) -> absl::Status {
        switch (field.number) {
          case 3:
            RETURN_IF_ERROR(Expect(field, Kind::kVarint, "model_type"));
            model_type = field.value;
            return absl::OkStatus();
          case 24:
            return GetBool(field, "treat_whitespace_as_suffix", &suffix);
          case 35:
            return GetBool(field, "byte_fallback", &spec->byte_fallback);
          case 44:
            return GetText(field, "unk_surface", &spec->unknown_surface);
          default:
            return absl::OkStatus();
        }
      }));
  if (model_type != kBpe) {
    return BadModel("trainer_spec.model_type ", model_type,
                    " is not supported (only BPE 2)");
  }
  if (suffix) {
    return BadModel("trainer_spec.treat_whitespace_as_suffix is not supported");
  }
  return absl::OkStatus();
}

absl::Status ReadNormalizerSpec(std::string_view message,
                                SentencePieceSpec* spec) {
  return ForEachField(message, "normalizer_spec", [&](const ProtoField& field) {
    switch (field.number) {
      case 2:
        return GetText(field, "precompiled_charsmap", &spec->charsmap);
      case 3:
        return GetBool(field, "add_dummy_prefix", &spec->add_dummy_prefix);
      case 4:
        return GetBool(field, "remove_extra_whitespaces",
                       &spec->remove_extra_whitespaces);
      case 5:
        return GetBool(field, "escape_whitespaces", &spec->escape_whitespaces);
      default:
        return absl::OkStatus();
    }
  });
}

absl::Status CheckDenormalizer(std::string_view message) {
  return ForEachField(
      message, "denormalizer_spec", [](const ProtoField& field) {
        return field.number == 2 && !field.bytes.empty()
                   ? BadModel("denormalizer_spec is not supported")
                   : absl::OkStatus();
      });
}

// That pieces are distinct, one is the unknown one, and the bytes are all there
// if they are needed.
absl::Status CheckPieces(const SentencePieceSpec& spec, int64_t vocab_size) {
  if (std::ssize(spec.pieces) > vocab_size) {
    return BadModel("it has ", spec.pieces.size(),
                    " pieces, more than the model's vocabulary of ",
                    vocab_size);
  }
  absl::flat_hash_set<std::string_view> seen;
  std::bitset<256> bytes;
  int unknown = 0;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencePiece& piece = spec.pieces[i];
    if (!seen.insert(piece.text).second) {
      return BadModel("pieces[", i, "].piece ", Quoted(piece.text),
                      " occurs twice");
    }
    if (piece.type == SentencePiece::Type::kUnknown) ++unknown;
    if (piece.type != SentencePiece::Type::kByte) continue;
    const auto byte = ByteOfName(piece.text);
    if (!byte.has_value()) {
      return BadModel("pieces[", i, "].piece ", Quoted(piece.text),
                      " is of type BYTE and not like <0x0A>");
    }
    bytes.set(*byte);
  }
  if (unknown != 1) {
    return BadModel(unknown, " pieces are of type UNKNOWN, not one");
  }
  if (spec.byte_fallback && !bytes.all()) {
    return BadModel("trainer_spec.byte_fallback is set and only ",
                    bytes.count(), " of 256 bytes have a piece");
  }
  return absl::OkStatus();
}

// Llama 3 has a file of the same name and another kind: a line for each token
// with its bytes in base64 and its rank.
bool LooksLikeTiktoken(std::string_view contents) {
  const std::string_view line = contents.substr(0, contents.find('\n'));
  const size_t space = line.find(' ');
  const auto is_base64 = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') ||
           (c >= 'a' && c <= 'z') || c == '+' || c == '/' || c == '=';
  };
  return space != std::string_view::npos && space > 0 &&
         std::all_of(line.begin(), line.begin() + space, is_base64);
}

}  // namespace

absl::StatusOr<SentencePieceSpec> ParseSentencePieceModel(
    std::string_view contents, int64_t vocab_size) {
  if (contents.size() > kMaxFileBytes) {
    return BadModel("it has ", contents.size(), " bytes (at most ",
                    kMaxFileBytes, ")");
  }
  if (LooksLikeTiktoken(contents)) {
    return BadModel(
        "it is a vocabulary of tiktoken, not of SentencePiece; convert "
        "it to a tokenizer.json");
  }
  SentencePieceSpec spec;
  bool has_trainer_spec = false;
  RETURN_IF_ERROR(ForEachField(
      contents, "the model", [&](const ProtoField& field) -> absl::Status {
        if (field.number < 1 || field.number > 5) return absl::OkStatus();
        RETURN_IF_ERROR(
            Expect(field, Kind::kBytes, absl::StrCat("field ", field.number)));
        switch (field.number) {
          case 1: {
            ASSIGN_OR_RETURN(
                SentencePiece piece,
                ReadPiece(field.bytes,
                          absl::StrCat("pieces[", spec.pieces.size(), "]")));
            spec.pieces.push_back(std::move(piece));
            return absl::OkStatus();
          }
          case 2:
            has_trainer_spec = true;
            return ReadTrainerSpec(field.bytes, &spec);
          case 3:
            return ReadNormalizerSpec(field.bytes, &spec);
          case 5:
            return CheckDenormalizer(field.bytes);
          default:
            return absl::OkStatus();
        }
      }));
  if (!has_trainer_spec) return BadModel("it has no trainer_spec");
  RETURN_IF_ERROR(CheckPieces(spec, vocab_size));
  return spec;
}

}  // namespace reprise
