#include "engine/tokenizer_json_steps.h"

#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace reprise {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxSteps = 16;          // of each of the three
constexpr size_t kMaxContentBytes = 256;  // that one step puts into a text

// The pattern of GPT-2, which the ByteLevel pre-tokenizer implies.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";

// \w+|[^\w\s]+ where \w has the library's meaning, which is wider than PCRE2's.
constexpr std::string_view kWordsAndRest =
    R"([\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]+)"
    R"(|[^\s\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{200C}\x{200D}]+)";

absl::Status CheckCount(const JsonObject& object, size_t steps) {
  if (steps < kMaxSteps) return absl::OkStatus();
  return TokenizerJsonError(object.Path("type"), " is that of step ", steps + 1,
                            " (at most ", kMaxSteps, ")");
}

// Text that a step puts into another one.
absl::StatusOr<std::string> GetContent(const JsonObject& object,
                                       const char* name) {
  ASSIGN_OR_RETURN(std::string content, object.GetString(name));
  if (content.size() > kMaxContentBytes) {
    return TokenizerJsonError(object.Path(name), " has ", content.size(),
                              " bytes (at most ", kMaxContentBytes, ")");
  }
  return content;
}

struct Pattern {
  std::string text;
  bool literal = false;
};

absl::StatusOr<Pattern> GetPattern(const JsonObject& object) {
  ASSIGN_OR_RETURN(const JsonObject pattern, object.GetObject("pattern"));
  Pattern result;
  result.literal = pattern.Find("Regex") == nullptr;
  ASSIGN_OR_RETURN(result.text,
                   pattern.GetString(result.literal ? "String" : "Regex"));
  if (result.text.empty()) {
    return TokenizerJsonError(object.Path("pattern"), " is empty");
  }
  return result;
}

// ---- Normalizer -------------------------------------------------------------

absl::Status AddNormalizer(const JsonObject& object,
                           std::vector<NormalizerStep>* steps) {
  ASSIGN_OR_RETURN(const std::string type, object.GetString("type"));
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const auto parts, object.GetObjects("normalizers"));
    for (const JsonObject& part : parts) {
      RETURN_IF_ERROR(AddNormalizer(part, steps));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckCount(object, steps->size()));
  NormalizerStep step;
  if (type == "NFC") {
    step.form = NormalForm::kNfc;
  } else if (type == "NFD") {
    step.form = NormalForm::kNfd;
  } else if (type == "NFKC") {
    step.form = NormalForm::kNfkc;
  } else if (type == "NFKD") {
    step.form = NormalForm::kNfkd;
  } else if (type == "Prepend") {
    step.kind = NormalizerStep::Kind::kPrepend;
    ASSIGN_OR_RETURN(step.content, GetContent(object, "prepend"));
  } else if (type == "Replace") {
    step.kind = NormalizerStep::Kind::kReplace;
    ASSIGN_OR_RETURN(Pattern pattern, GetPattern(object));
    step.pattern = std::move(pattern.text);
    step.literal = pattern.literal;
    ASSIGN_OR_RETURN(step.content, GetContent(object, "content"));
  } else {
    return object.Unsupported(
        "type", type, "NFC, NFD, NFKC, NFKD, Prepend, Replace and Sequence");
  }
  steps->push_back(std::move(step));
  return absl::OkStatus();
}

// ---- Pre-tokenizer ----------------------------------------------------------

absl::StatusOr<SplitBehavior> GetBehavior(const JsonObject& object,
                                          const std::string& behavior) {
  if (behavior == "Removed") return SplitBehavior::kRemoved;
  if (behavior == "Isolated") return SplitBehavior::kIsolated;
  if (behavior == "Contiguous") return SplitBehavior::kContiguous;
  if (behavior == "MergedWithPrevious") {
    return SplitBehavior::kMergedWithPrevious;
  }
  if (behavior == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  return object.Unsupported("behavior", behavior,
                            "Removed, Isolated, Contiguous, MergedWithPrevious "
                            "and MergedWithNext");
}

PreTokenizerStep SplitAt(std::string_view pattern,
                         SplitBehavior behavior = SplitBehavior::kIsolated) {
  PreTokenizerStep step;
  step.pattern = pattern;
  step.behavior = behavior;
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadSplit(const JsonObject& object) {
  ASSIGN_OR_RETURN(Pattern pattern, GetPattern(object));
  ASSIGN_OR_RETURN(const std::string behavior, object.GetString("behavior"));
  PreTokenizerStep step;
  step.pattern = std::move(pattern.text);
  step.literal = pattern.literal;
  ASSIGN_OR_RETURN(step.behavior, GetBehavior(object, behavior));
  ASSIGN_OR_RETURN(step.invert, object.GetBool("invert", false));
  return step;
}

absl::StatusOr<PreTokenizerStep> ReadPunctuation(const JsonObject& object) {
  PreTokenizerStep step = SplitAt(R"([!-/:-@\[-`{-~]|\p{P})");
  if (object.Find("behavior") != nullptr) {
    ASSIGN_OR_RETURN(const std::string behavior, object.GetString("behavior"));
    ASSIGN_OR_RETURN(step.behavior, GetBehavior(object, behavior));
  }
  return step;
}

// Files from before prepend_scheme have add_prefix_space, and newer ones may
// have both.
absl::StatusOr<PrependScheme> GetPrependScheme(const JsonObject& object) {
  ASSIGN_OR_RETURN(const bool prefix, object.GetBool("add_prefix_space", true));
  if (object.Find("prepend_scheme") == nullptr) {
    return prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  }
  ASSIGN_OR_RETURN(const std::string scheme,
                   object.GetString("prepend_scheme"));
  if (scheme == "never") return PrependScheme::kNever;
  if (!prefix) {
    return TokenizerJsonError(object.Path("prepend_scheme"), " ",
                              QuoteName(scheme),
                              " contradicts add_prefix_space false");
  }
  if (scheme == "always") return PrependScheme::kAlways;
  if (scheme == "first") return PrependScheme::kFirst;
  return object.Unsupported("prepend_scheme", scheme,
                            "always, first and never");
}

absl::StatusOr<std::string> GetMetaspace(const JsonObject& object) {
  ASSIGN_OR_RETURN(std::string metaspace, object.GetString("replacement"));
  if (metaspace.empty() || NextUtf8(metaspace).size != metaspace.size()) {
    return TokenizerJsonError(object.Path("replacement"), " ",
                              QuoteName(metaspace), " is not one character");
  }
  return metaspace;
}

absl::StatusOr<PreTokenizerStep> ReadMetaspace(const JsonObject& object) {
  PreTokenizerStep step;
  step.kind = PreTokenizerStep::Kind::kMetaspace;
  ASSIGN_OR_RETURN(step.metaspace, GetMetaspace(object));
  ASSIGN_OR_RETURN(step.prepend, GetPrependScheme(object));
  ASSIGN_OR_RETURN(step.split, object.GetBool("split", true));
  return step;
}

absl::Status AddByteLevel(const JsonObject& object, BpeSpec* spec) {
  spec->byte_level = true;
  ASSIGN_OR_RETURN(const bool prefix, object.GetBool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, object.GetBool("use_regex", true));
  if (prefix) {
    spec->steps.emplace_back().kind = PreTokenizerStep::Kind::kPrefixSpace;
  }
  if (use_regex) spec->steps.push_back(SplitAt(kGpt2Pattern));
  return absl::OkStatus();
}

// The step of a type that is one step.
absl::StatusOr<PreTokenizerStep> ReadStep(const JsonObject& object,
                                          const std::string& type) {
  if (type == "Split") return ReadSplit(object);
  if (type == "Metaspace") return ReadMetaspace(object);
  if (type == "Punctuation") return ReadPunctuation(object);
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual,
                     object.GetBool("individual_digits", false));
    return SplitAt(individual ? R"(\p{N})" : R"(\p{N}+)");
  }
  if (type == "Whitespace") {
    PreTokenizerStep step = SplitAt(kWordsAndRest, SplitBehavior::kRemoved);
    step.invert = true;
    return step;
  }
  if (type == "WhitespaceSplit") {
    return SplitAt(R"(\s)", SplitBehavior::kRemoved);
  }
  return object.Unsupported("type", type,
                            "ByteLevel, Digits, Metaspace, Punctuation, "
                            "Sequence, Split, Whitespace and WhitespaceSplit");
}

absl::Status AddPreTokenizer(const JsonObject& object, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const std::string type, object.GetString("type"));
  // It turns bytes into its alphabet: what follows would see that.
  if (spec->byte_level) {
    return TokenizerJsonError(object.Path("type"), " ", QuoteName(type),
                              " after ByteLevel is not supported");
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const auto parts, object.GetObjects("pretokenizers"));
    for (const JsonObject& part : parts) {
      RETURN_IF_ERROR(AddPreTokenizer(part, spec));
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(CheckCount(object, spec->steps.size()));
  if (type == "ByteLevel") return AddByteLevel(object, spec);
  ASSIGN_OR_RETURN(PreTokenizerStep step, ReadStep(object, type));
  spec->steps.push_back(std::move(step));
  return absl::OkStatus();
}

// ---- Decoder ----------------------------------------------------------------

// The library's decoders work on the list of tokens one after the other. Those
// that treat every token alone come before Fuse, which makes one text of them.
class DecoderReader {
 public:
  explicit DecoderReader(TokenDecoding* decoding) : decoding_(*decoding) {}

  absl::Status Add(const JsonObject& object) {
    ASSIGN_OR_RETURN(const std::string type, object.GetString("type"));
    if (type == "Sequence") {
      ASSIGN_OR_RETURN(const auto parts, object.GetObjects("decoders"));
      for (const JsonObject& part : parts) RETURN_IF_ERROR(Add(part));
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(CheckCount(object, count_++));
    if (fused_ && type != "Strip") {
      return TokenizerJsonError(object.Path("type"), " ", QuoteName(type),
                                " after Fuse is not supported");
    }
    return AddOne(object, type);
  }

 private:
  absl::Status AddOne(const JsonObject& object, const std::string& type) {
    if (type == "ByteLevel") {
      decoding_.byte_level = true;
    } else if (type == "ByteFallback") {
      decoding_.byte_fallback = true;
      decoding_.rules.replace_each_byte = true;
    } else if (type == "Fuse") {
      fused_ = true;
    } else if (type == "Replace") {
      return AddReplace(object);
    } else if (type == "Metaspace") {
      return AddMetaspace(object);
    } else if (type == "Strip") {
      return AddStrip(object);
    } else {
      return object.Unsupported("type", type,
                                "ByteFallback, ByteLevel, Fuse, Metaspace, "
                                "Replace, Sequence and Strip");
    }
    return absl::OkStatus();
  }

  absl::Status AddReplace(const JsonObject& object) {
    ASSIGN_OR_RETURN(Pattern pattern, GetPattern(object));
    if (!pattern.literal) {
      return TokenizerJsonError(object.Path("pattern"),
                                ".Regex is not supported (only String)");
    }
    ASSIGN_OR_RETURN(std::string content, GetContent(object, "content"));
    decoding_.replacements.emplace_back(std::move(pattern.text),
                                        std::move(content));
    return absl::OkStatus();
  }

  absl::Status AddMetaspace(const JsonObject& object) {
    ASSIGN_OR_RETURN(std::string metaspace, GetMetaspace(object));
    ASSIGN_OR_RETURN(const PrependScheme prepend, GetPrependScheme(object));
    decoding_.replacements.emplace_back(std::move(metaspace), " ");
    decoding_.rules.drop_first_spaces = prepend != PrependScheme::kNever;
    return absl::OkStatus();
  }

  absl::Status AddStrip(const JsonObject& object) {
    if (!fused_) {
      return TokenizerJsonError(object.Path("type"),
                                " \"Strip\" before Fuse is not supported");
    }
    const Json* content = object.Find("content");
    if (content == nullptr || *content != " ") {
      return TokenizerJsonError(object.Path("content"), " must be a space");
    }
    const Json* start = object.Find("start");
    const Json* stop = object.Find("stop");
    if (stop != nullptr && *stop != 0) {
      return TokenizerJsonError(object.Path("stop"), " must be 0");
    }
    if (start == nullptr || !start->is_number_unsigned() ||
        start->get<uint64_t>() > kMaxContentBytes) {
      return TokenizerJsonError(object.Path("start"), " must be in [0, ",
                                kMaxContentBytes, "]");
    }
    decoding_.rules.leading_spaces += start->get<int32_t>();
    return absl::OkStatus();
  }

  TokenDecoding& decoding_;
  size_t count_ = 0;
  bool fused_ = false;
};

}  // namespace

absl::Status ReadNormalizer(const JsonObject& document, BpeSpec* spec) {
  if (document.Find("normalizer") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonObject object, document.GetObject("normalizer"));
  return AddNormalizer(object, &spec->normalizer);
}

absl::Status ReadPreTokenizer(const JsonObject& document, BpeSpec* spec) {
  if (document.Find("pre_tokenizer") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JsonObject object,
                   document.GetObject("pre_tokenizer"));
  return AddPreTokenizer(object, spec);
}

absl::Status ReadDecoder(const JsonObject& document, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const JsonObject object, document.GetObject("decoder"));
  RETURN_IF_ERROR(DecoderReader(&spec->decoding).Add(object));
  const TokenDecoding& decoding = spec->decoding;
  if (decoding.byte_level != spec->byte_level) {
    return TokenizerJsonError(
        "decoder and pre_tokenizer must both have ByteLevel, or neither");
  }
  if (decoding.byte_level &&
      (decoding.byte_fallback || !decoding.replacements.empty())) {
    return TokenizerJsonError(
        "decoder with ByteLevel and another one is not supported");
  }
  return absl::OkStatus();
}

}  // namespace reprise
