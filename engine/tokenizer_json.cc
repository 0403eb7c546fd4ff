#include "engine/tokenizer_json.h"

#include <nlohmann/json.hpp>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"

namespace reprise {
namespace {

using Json = nlohmann::json;

// The largest known vocabularies take about 35 MB.
constexpr size_t kMaxFileBytes = 64 << 20;
constexpr int kMaxDepth = 16;
constexpr size_t kMaxSteps = 16;

// The pattern of GPT-2, which the ByteLevel pre-tokenizer implies.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+)"
    R"(|\s+(?!\S)|\s+)";

template <typename... Parts>
absl::Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: ", parts...));
}

// A name from the file as a message can show it.
std::string Quote(std::string_view text) {
  constexpr size_t kShown = 64;
  std::string shown = absl::CHexEscape(ToAbsl(text.substr(0, kShown)));
  return absl::StrCat("\"", shown, text.size() > kShown ? "...\"" : "\"");
}

std::string Show(const Json& value) {
  return Quote(value.dump(-1, ' ', /*ensure_ascii=*/true));
}

// Builds the document, watching the depth and the names of every object: JSON
// libraries keep one of two equal names, each another one.
class Watcher {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (!status_.ok()) return false;
    if (event == Json::parse_event_t::object_start) {
      names_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      names_.pop_back();
    } else if (event == Json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names_.back().insert(name).second) {
        status_ = Bad("the name ", Quote(name), " occurs twice in one object");
      }
    }
    if (depth > kMaxDepth) {
      status_ = Bad("nested more than ", kMaxDepth, " deep");
    }
    return status_.ok();
  }
  const absl::Status& status() const { return status_; }

 private:
  std::vector<absl::flat_hash_set<std::string>> names_;
  absl::Status status_;
};

absl::StatusOr<Json> ParseDocument(std::string_view text) {
  if (text.size() > kMaxFileBytes) {
    return Bad(text.size(), " bytes (at most ", kMaxFileBytes, ")");
  }
  Watcher watcher;
  try {
    Json document = Json::parse(
        text, [&](int depth, Json::parse_event_t event, Json& value) {
          return watcher(depth, event, value);
        });
    RETURN_IF_ERROR(watcher.status());
    if (!document.is_object()) return Bad("must be a JSON object");
    return document;
  } catch (const Json::exception& error) {
    RETURN_IF_ERROR(watcher.status());
    return Bad("not JSON: ", error.what());
  }
}

// An object of the document and where it is ("" for the document).
class Object {
 public:
  static absl::StatusOr<Object> From(const Json& value, std::string path) {
    if (!value.is_object()) return Bad(path, " must be an object");
    return Object(value, std::move(path));
  }

  std::string Path(std::string_view name) const {
    return path_.empty() ? std::string(name)
                         : absl::StrCat(path_, ".", ToAbsl(name));
  }
  // Null if the member is absent or null.
  const Json* Find(const char* name) const {
    const auto it = value_->find(name);
    return it == value_->end() || it->is_null() ? nullptr : &*it;
  }
  absl::StatusOr<Object> GetObject(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr) return Bad(Path(name), " is missing");
    return From(*value, Path(name));
  }
  absl::StatusOr<const Json*> GetArray(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_array()) {
      return Bad(Path(name), " must be an array");
    }
    return value;
  }
  absl::StatusOr<std::string> GetString(const char* name) const {
    const Json* value = Find(name);
    if (value == nullptr || !value->is_string()) {
      return Bad(Path(name), " must be a string");
    }
    return value->get<std::string>();
  }
  absl::StatusOr<bool> GetBool(const char* name, bool if_absent) const {
    const Json* value = Find(name);
    if (value == nullptr) return if_absent;
    if (!value->is_boolean()) return Bad(Path(name), " must be true or false");
    return value->get<bool>();
  }
  const Json& value() const { return *value_; }

 private:
  Object(const Json& value, std::string path)
      : value_(&value), path_(std::move(path)) {}

  const Json* value_;
  std::string path_;
};

absl::StatusOr<int32_t> ReadId(const Json& value, const std::string& path,
                               int64_t vocab_size) {
  if (!value.is_number_integer()) return Bad(path, " must be an integer");
  // Unsigned numbers past 2^63 would turn negative.
  const bool fits = !value.is_number_unsigned() ||
                    value.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
  if (!fits || value.get<int64_t>() < 0 || value.get<int64_t>() >= vocab_size) {
    return Bad(path, " is ", value.dump(), ", not in [0, ", vocab_size,
               "), the model's vocabulary");
  }
  return value.get<int32_t>();
}

absl::Status Unsupported(const std::string& path, const std::string& value,
                         std::string_view supported) {
  return Bad(path, " ", Quote(value), " is not supported (only ",
             ToAbsl(supported), ")");
}

absl::Status ReadVocab(const Object& model, int64_t vocab_size, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const Object vocab, model.GetObject("vocab"));
  absl::flat_hash_map<int32_t, std::string_view> names;
  const Json& entries = vocab.value();
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const std::string path =
        absl::StrCat("model.vocab[", Quote(entry.key()), "]");
    ASSIGN_OR_RETURN(const int32_t id, ReadId(*entry, path, vocab_size));
    const auto [it, added] = names.try_emplace(id, entry.key());
    if (!added) {
      return Bad(path, " has the id ", id, ", as ", Quote(it->second), " has");
    }
    spec->vocab.emplace_back(entry.key(), id);
  }
  return absl::OkStatus();
}

// Both forms: "a b", and ["a", "b"] in newer files.
absl::Status ReadMerges(const Object& model, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const Json* merges, model.GetArray("merges"));
  spec->merges.reserve(merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const Json& merge = (*merges)[i];
    if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space != std::string::npos && space == text.rfind(' ')) {
        spec->merges.emplace_back(text.substr(0, space),
                                  text.substr(space + 1));
        continue;
      }
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      spec->merges.emplace_back(merge[0].get<std::string>(),
                                merge[1].get<std::string>());
      continue;
    }
    return Bad("model.merges[", i, "] is ", Show(merge),
               ", neither \"a b\" nor [\"a\", \"b\"]");
  }
  return absl::OkStatus();
}

absl::Status ReadModel(const Object& document, int64_t vocab_size,
                       BpeSpec* spec) {
  ASSIGN_OR_RETURN(const Object model, document.GetObject("model"));
  // Old files name no type; those are BPE if they have merges.
  if (model.Find("type") != nullptr) {
    ASSIGN_OR_RETURN(const std::string type, model.GetString("type"));
    if (type != "BPE") return Unsupported("model.type", type, "BPE");
  }
  ASSIGN_OR_RETURN(const bool byte_fallback,
                   model.GetBool("byte_fallback", false));
  if (byte_fallback) {
    return Bad("model.byte_fallback is not supported (only byte-level BPE)");
  }
  const Json* dropout = model.Find("dropout");
  if (dropout != nullptr && *dropout != 0) {
    return Bad("model.dropout is not supported");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* affix = model.Find(name);
    if (affix != nullptr && *affix != "") {
      return Bad("model.", name, " is not supported");
    }
  }
  ASSIGN_OR_RETURN(spec->ignore_merges, model.GetBool("ignore_merges", false));
  RETURN_IF_ERROR(ReadVocab(model, vocab_size, spec));
  return ReadMerges(model, spec);
}

absl::Status ReadNormalizer(const Object& normalizer, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const std::string type, normalizer.GetString("type"));
  if (type == "NFC") {
    spec->nfc = true;
    return absl::OkStatus();
  }
  if (type != "Sequence") {
    return Unsupported(normalizer.Path("type"), type, "NFC and Sequence");
  }
  ASSIGN_OR_RETURN(const Json* parts, normalizer.GetArray("normalizers"));
  for (size_t i = 0; i < parts->size(); ++i) {
    ASSIGN_OR_RETURN(
        const Object part,
        Object::From((*parts)[i], absl::StrCat(normalizer.Path("normalizers"),
                                               "[", i, "]")));
    RETURN_IF_ERROR(ReadNormalizer(part, spec));
  }
  return absl::OkStatus();
}

absl::StatusOr<PreTokenizerStep> ReadSplit(const Object& split) {
  PreTokenizerStep step;
  ASSIGN_OR_RETURN(const Object pattern, split.GetObject("pattern"));
  step.literal = pattern.Find("Regex") == nullptr;
  ASSIGN_OR_RETURN(step.pattern,
                   pattern.GetString(step.literal ? "String" : "Regex"));
  ASSIGN_OR_RETURN(const std::string behavior, split.GetString("behavior"));
  ASSIGN_OR_RETURN(const bool invert, split.GetBool("invert", false));
  if (behavior == "Removed") {
    step.keep_matched = invert;
    step.keep_between = !invert;
  } else if (behavior != "Isolated") {
    return Unsupported(split.Path("behavior"), behavior,
                       "Isolated and Removed");
  }
  return step;
}

// Appends the steps of `object`. `byte_level` becomes true with the ByteLevel
// step: it turns bytes into its alphabet, so nothing may follow it.
absl::Status ReadPreTokenizer(const Object& object, bool* byte_level,
                              std::vector<PreTokenizerStep>* steps) {
  ASSIGN_OR_RETURN(const std::string type, object.GetString("type"));
  if (*byte_level) {
    return Bad(object.Path("type"), " ", Quote(type),
               " after ByteLevel is not supported");
  }
  if (steps->size() >= kMaxSteps) {
    return Bad("pre_tokenizer has more than ", kMaxSteps, " steps");
  }
  if (type == "Sequence") {
    ASSIGN_OR_RETURN(const Json* parts, object.GetArray("pretokenizers"));
    for (size_t i = 0; i < parts->size(); ++i) {
      ASSIGN_OR_RETURN(
          const Object part,
          Object::From((*parts)[i], absl::StrCat(object.Path("pretokenizers"),
                                                 "[", i, "]")));
      RETURN_IF_ERROR(ReadPreTokenizer(part, byte_level, steps));
    }
    return absl::OkStatus();
  }
  if (type == "Split") {
    ASSIGN_OR_RETURN(PreTokenizerStep step, ReadSplit(object));
    steps->push_back(std::move(step));
    return absl::OkStatus();
  }
  if (type != "ByteLevel") {
    return Unsupported(object.Path("type"), type,
                       "ByteLevel, Split and Sequence");
  }
  *byte_level = true;
  ASSIGN_OR_RETURN(const bool prefix, object.GetBool("add_prefix_space", true));
  ASSIGN_OR_RETURN(const bool use_regex, object.GetBool("use_regex", true));
  if (prefix) steps->emplace_back().add_prefix_space = true;
  if (use_regex) steps->emplace_back().pattern = kGpt2Pattern;
  return absl::OkStatus();
}

absl::Status ReadAddedToken(const Object& object, int64_t vocab_size,
                            AddedToken* token) {
  const Json* id = object.Find("id");
  ASSIGN_OR_RETURN(token->id, ReadId(id == nullptr ? Json() : *id,
                                     object.Path("id"), vocab_size));
  ASSIGN_OR_RETURN(token->content, object.GetString("content"));
  if (token->content.empty() || token->content.size() > kMaxAddedTokenBytes) {
    return Bad(object.Path("content"), " has ", token->content.size(),
               " bytes, not 1..", kMaxAddedTokenBytes);
  }
  ASSIGN_OR_RETURN(token->special, object.GetBool("special", false));
  ASSIGN_OR_RETURN(token->lstrip, object.GetBool("lstrip", false));
  ASSIGN_OR_RETURN(token->rstrip, object.GetBool("rstrip", false));
  ASSIGN_OR_RETURN(token->normalized,
                   object.GetBool("normalized", !token->special));
  ASSIGN_OR_RETURN(const bool single_word,
                   object.GetBool("single_word", false));
  if (single_word) {
    return Bad(object.Path("single_word"), " is not supported (token ",
               Quote(token->content), ")");
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Object& document, int64_t vocab_size,
                             BpeSpec* spec) {
  if (document.Find("added_tokens") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const Json* tokens, document.GetArray("added_tokens"));
  absl::flat_hash_map<std::string, int32_t> ids;
  absl::flat_hash_map<int32_t, std::string> names;
  for (const auto& [name, id] : spec->vocab) {
    ids.emplace(name, id);
    names.emplace(id, name);
  }
  absl::flat_hash_set<int32_t> seen;
  for (size_t i = 0; i < tokens->size(); ++i) {
    ASSIGN_OR_RETURN(
        const Object object,
        Object::From((*tokens)[i], absl::StrCat("added_tokens[", i, "]")));
    AddedToken token;
    RETURN_IF_ERROR(ReadAddedToken(object, vocab_size, &token));
    const auto name = names.try_emplace(token.id, token.content).first;
    if (!seen.insert(token.id).second || name->second != token.content) {
      return Bad(object.Path("id"), " ", token.id, " is that of ",
                 Quote(name->second), " already");
    }
    const auto id = ids.try_emplace(token.content, token.id).first;
    if (id->second != token.id) {
      return Bad(object.Path("content"), " ", Quote(token.content),
                 " has the id ", id->second, " already, not ", token.id);
    }
    spec->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

absl::Status CheckDecoder(const Object& document) {
  ASSIGN_OR_RETURN(const Object decoder, document.GetObject("decoder"));
  ASSIGN_OR_RETURN(const std::string type, decoder.GetString("type"));
  if (type == "ByteLevel") return absl::OkStatus();
  return Unsupported("decoder.type", type, "ByteLevel");
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view json,
                                           int64_t vocab_size) {
  ASSIGN_OR_RETURN(const Json root, ParseDocument(json));
  ASSIGN_OR_RETURN(const Object document, Object::From(root, ""));
  BpeSpec spec;
  RETURN_IF_ERROR(ReadModel(document, vocab_size, &spec));
  RETURN_IF_ERROR(ReadAddedTokens(document, vocab_size, &spec));
  if (document.Find("normalizer") != nullptr) {
    ASSIGN_OR_RETURN(const Object normalizer, document.GetObject("normalizer"));
    RETURN_IF_ERROR(ReadNormalizer(normalizer, &spec));
  }
  ASSIGN_OR_RETURN(const Object pre_tokenizer,
                   document.GetObject("pre_tokenizer"));
  bool byte_level = false;
  RETURN_IF_ERROR(ReadPreTokenizer(pre_tokenizer, &byte_level, &spec.steps));
  if (!byte_level) {
    return Bad("pre_tokenizer without ByteLevel is not supported");
  }
  RETURN_IF_ERROR(CheckDecoder(document));
  return spec;
}

}  // namespace reprise
