#include "engine/tokenizer_json.h"

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/tokenizer_json_object.h"
#include "engine/tokenizer_json_steps.h"

namespace reprise {
namespace {

using Json = nlohmann::json;
using Object = JsonObject;

// The largest known vocabularies take about 35 MB.
constexpr JsonLimits kLimits = {.max_bytes = 64 << 20, .max_depth = 16};

absl::StatusOr<int32_t> ReadId(const Json& value, const std::string& path,
                               int64_t vocab_size) {
  if (!value.is_number_integer())
    return TokenizerJsonError(path, " must be an integer");
  // Unsigned numbers past 2^63 would turn negative.
  const bool fits = !value.is_number_unsigned() ||
                    value.get<uint64_t>() < static_cast<uint64_t>(vocab_size);
  if (!fits || value.get<int64_t>() < 0 || value.get<int64_t>() >= vocab_size) {
    return TokenizerJsonError(path, " is ", value.dump(), ", not in [0, ",
                              vocab_size, "), the model's vocabulary");
  }
  return value.get<int32_t>();
}

absl::Status ReadVocab(const Object& model, int64_t vocab_size, BpeSpec* spec) {
  ASSIGN_OR_RETURN(const Object vocab, model.GetObject("vocab"));
  absl::flat_hash_map<int32_t, std::string_view> names;
  const Json& entries = vocab.value();
  for (auto entry = entries.begin(); entry != entries.end(); ++entry) {
    const std::string path =
        absl::StrCat("model.vocab[", QuoteName(entry.key()), "]");
    ASSIGN_OR_RETURN(const int32_t id, ReadId(*entry, path, vocab_size));
    const auto [it, added] = names.try_emplace(id, entry.key());
    if (!added) {
      return TokenizerJsonError(path, " has the id ", id, ", as ",
                                QuoteName(it->second), " has");
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
    return TokenizerJsonError(
        "model.merges[", i, "] is ",
        QuoteName(merge.dump(-1, ' ', /*ensure_ascii=*/true)),
        ", neither \"a b\" nor [\"a\", \"b\"]");
  }
  return absl::OkStatus();
}

absl::Status ReadUnknown(const Object& model, BpeSpec* spec) {
  ASSIGN_OR_RETURN(spec->fuse_unknown, model.GetBool("fuse_unk", false));
  if (model.Find("unk_token") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(spec->unknown, model.GetString("unk_token"));
  return absl::OkStatus();
}

absl::Status ReadModel(const Object& document, int64_t vocab_size,
                       BpeSpec* spec) {
  ASSIGN_OR_RETURN(const Object model, document.GetObject("model"));
  // Old files name no type; those are BPE if they have merges.
  if (model.Find("type") != nullptr) {
    ASSIGN_OR_RETURN(const std::string type, model.GetString("type"));
    if (type != "BPE") return model.Unsupported("type", type, "BPE");
  }
  const Json* dropout = model.Find("dropout");
  if (dropout != nullptr && *dropout != 0) {
    return TokenizerJsonError("model.dropout is not supported");
  }
  for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const Json* affix = model.Find(name);
    if (affix != nullptr && *affix != "") {
      return TokenizerJsonError("model.", name, " is not supported");
    }
  }
  ASSIGN_OR_RETURN(spec->byte_fallback, model.GetBool("byte_fallback", false));
  ASSIGN_OR_RETURN(spec->ignore_merges, model.GetBool("ignore_merges", false));
  RETURN_IF_ERROR(ReadUnknown(model, spec));
  RETURN_IF_ERROR(ReadVocab(model, vocab_size, spec));
  return ReadMerges(model, spec);
}

absl::Status ReadAddedToken(const Object& object, int64_t vocab_size,
                            AddedToken* token) {
  const Json* id = object.Find("id");
  ASSIGN_OR_RETURN(token->id, ReadId(id == nullptr ? Json() : *id,
                                     object.Path("id"), vocab_size));
  ASSIGN_OR_RETURN(token->content, object.GetString("content"));
  if (token->content.empty() || token->content.size() > kMaxAddedTokenBytes) {
    return TokenizerJsonError(object.Path("content"), " has ",
                              token->content.size(), " bytes, not 1..",
                              kMaxAddedTokenBytes);
  }
  ASSIGN_OR_RETURN(token->special, object.GetBool("special", false));
  ASSIGN_OR_RETURN(token->lstrip, object.GetBool("lstrip", false));
  ASSIGN_OR_RETURN(token->rstrip, object.GetBool("rstrip", false));
  ASSIGN_OR_RETURN(token->normalized,
                   object.GetBool("normalized", !token->special));
  ASSIGN_OR_RETURN(token->single_word, object.GetBool("single_word", false));
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const Object& document, int64_t vocab_size,
                             BpeSpec* spec) {
  if (document.Find("added_tokens") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto tokens, document.GetObjects("added_tokens"));
  absl::flat_hash_map<std::string, int32_t> ids;
  absl::flat_hash_map<int32_t, std::string> names;
  for (const auto& [name, id] : spec->vocab) {
    ids.emplace(name, id);
    names.emplace(id, name);
  }
  absl::flat_hash_set<int32_t> seen;
  for (const Object& object : tokens) {
    AddedToken token;
    RETURN_IF_ERROR(ReadAddedToken(object, vocab_size, &token));
    const auto name = names.try_emplace(token.id, token.content).first;
    if (!seen.insert(token.id).second || name->second != token.content) {
      return TokenizerJsonError(object.Path("id"), " ", token.id,
                                " is that of ", QuoteName(name->second),
                                " already");
    }
    const auto id = ids.try_emplace(token.content, token.id).first;
    if (id->second != token.id) {
      return TokenizerJsonError(object.Path("content"), " ",
                                QuoteName(token.content), " has the id ",
                                id->second, " already, not ", token.id);
    }
    spec->added_tokens.push_back(std::move(token));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BpeSpec> ParseTokenizerJson(std::string_view json,
                                           int64_t vocab_size) {
  ASSIGN_OR_RETURN(const Json root, ParseJson(json, "tokenizer.json", kLimits));
  ASSIGN_OR_RETURN(const Object document, Object::From(root, ""));
  BpeSpec spec;
  RETURN_IF_ERROR(ReadModel(document, vocab_size, &spec));
  RETURN_IF_ERROR(ReadAddedTokens(document, vocab_size, &spec));
  RETURN_IF_ERROR(ReadNormalizer(document, &spec));
  RETURN_IF_ERROR(ReadPreTokenizer(document, &spec));
  RETURN_IF_ERROR(ReadDecoder(document, &spec));
  return spec;
}

}  // namespace reprise
