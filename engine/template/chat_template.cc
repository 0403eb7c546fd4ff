#include "engine/template/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/model/json_text.h"
#include "engine/model/mapped_file.h"

namespace reprise {
namespace {

using Json = nlohmann::json;
using jinja::Text;
using jinja::TextView;
using jinja::Value;

constexpr JsonLimits kConfigLimits = {.max_bytes = 16 << 20, .max_depth = 32};

// The template of RWKV World models (huggingface.co/BlinkDL/rwkv-7-world):
// turns end with an empty line, so that none may be inside one.
constexpr std::string_view kRwkvTemplate =
    "{%- set names = {'system': 'System', 'developer': 'System', "
    "'user': 'User', 'assistant': 'Assistant'} -%}"
    "{%- for message in messages -%}"
    "{%- if message.role not in names -%}"
    "{{ raise_exception('the role ' ~ message.role ~ ' is not system, "
    "developer, user or assistant') }}"
    "{%- endif -%}"
    "{%- set lines = message.content.replace('\\r\\n', '\\n').split('\\n') "
    "-%}"
    "{{ names[message.role] ~ ': ' ~ lines | select | join('\\n') | trim ~ "
    "'\\n\\n' }}"
    "{%- endfor -%}"
    "{{ 'Assistant:' if add_generation_prompt }}";
constexpr std::string_view kRwkvStop = "\n\nUser:";

// Roles that are the template's words.
constexpr std::array<std::string_view, 5> kKnownRoles = {
    "system", "developer", "user", "assistant", "tool"};

Value MakeMessage(std::string_view role, Text content) {
  const bool known = std::find(kKnownRoles.begin(), kKnownRoles.end(), role) !=
                     kKnownRoles.end();
  return jinja::DictValue(
      {{"role", Value::String(jinja::FromUtf8(role, /*marked=*/!known))},
       {"content", Value::String(std::move(content))}});
}

std::vector<Value> MakeMessages(std::span<const ChatMessage> messages) {
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    values.push_back(MakeMessage(
        message.role, jinja::FromUtf8(message.content, /*marked=*/true)));
  }
  return values;
}

ChatPrompt ToPrompt(TextView text, const ChatOptions& options) {
  ChatPrompt prompt;
  prompt.allow_special = options.allow_special;
  prompt.text.reserve(text.size());
  bool marked = false;
  for (const char32_t c : text) {
    if (jinja::IsMarked(c) != marked) {
      marked = !marked;
      if (marked) {
        prompt.plain.push_back({prompt.text.size(), prompt.text.size()});
      } else {
        prompt.plain.back().end = prompt.text.size();
      }
    }
    jinja::AppendUtf8(c, &prompt.text);
  }
  if (marked) prompt.plain.back().end = prompt.text.size();
  return prompt;
}

// ---- The folder -------------------------------------------------------------

// The object in a file, or an empty one if there is no such file.
absl::StatusOr<Json> ReadConfig(const std::filesystem::path& path) {
  absl::StatusOr<Json> config = ReadJsonObject(path.string(), kConfigLimits);
  if (absl::IsNotFound(config.status())) return Json::object();
  return config;
}

// The name of a special token: a string, or an object with a string inside.
std::optional<std::string> NameOf(const Json& token) {
  const Json& content =
      token.is_object() && token.contains("content") ? token["content"] : token;
  if (!content.is_string()) return std::nullopt;
  return content.get<std::string>();
}

// Whether RenderText gives templates a variable of that name.
bool IsOurs(std::string_view variable) {
  constexpr std::array<std::string_view, 4> kOurs = {
      "messages", "add_generation_prompt", "tools", "documents"};
  return std::find(kOurs.begin(), kOurs.end(), variable) != kOurs.end();
}

// What templates get of special tokens, the first config's word first. Names
// that are no strings are left out: other readers of these files do so too.
class SpecialTokens {
 public:
  void Add(const Json& config) {
    for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token",
                             "pad_token", "cls_token", "mask_token"}) {
      if (config.contains(name)) AddOne(name, config[name]);
    }
    const auto extra = config.find("extra_special_tokens");
    if (extra != config.end() && extra->is_object()) {
      for (const auto& [name, token] : extra->items()) AddOne(name, token);
    }
    constexpr const char* kList = "additional_special_tokens";
    if (!config.contains(kList) || !config[kList].is_array()) return;
    std::vector<Value> names;
    for (const Json& token : config[kList]) {
      const std::optional<std::string> name = NameOf(token);
      if (name.has_value()) names.push_back(Value::String(*name));
    }
    AddValue(kList, jinja::ListValue(std::move(names)));
  }

  const std::optional<std::string>& eos_token() const { return eos_token_; }
  std::vector<std::pair<std::string, Value>> Take() {
    return std::move(variables_);
  }

 private:
  void AddOne(const std::string& variable, const Json& token) {
    const std::optional<std::string> name = NameOf(token);
    if (!name.has_value() || IsOurs(variable)) return;
    const bool added = AddValue(variable, Value::String(*name));
    if (added && variable == "eos_token") eos_token_ = *name;
  }
  bool AddValue(const std::string& variable, Value value) {
    for (const auto& [known, unused] : variables_) {
      if (known == variable) return false;
    }
    variables_.emplace_back(variable, std::move(value));
    return true;
  }

  std::vector<std::pair<std::string, Value>> variables_;
  std::optional<std::string> eos_token_;
};

// Of added_tokens_decoder in tokenizer_config.json, {"0": {"content": ...}},
// and added_tokens.json, {"...": 0}.
TokenNames ReadTokenNames(const Json& config, const Json& added) {
  TokenNames names;
  const auto decoder = config.find("added_tokens_decoder");
  if (decoder != config.end() && decoder->is_object()) {
    for (const auto& [number, token] : decoder->items()) {
      const std::optional<std::string> name = NameOf(token);
      int64_t id = 0;
      if (!name.has_value() || !absl::SimpleAtoi(number, &id)) continue;
      names.emplace_back(*name, id);
    }
  }
  for (const auto& [name, id] : added.items()) {
    if (id.is_number_integer()) names.emplace_back(name, id.get<int64_t>());
  }
  return names;
}

// Where a template is from.
constexpr const char* kJinjaFile = "chat_template.jinja";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kJsonFile = "chat_template.json";
constexpr const char* kBuiltIn = "built in";

struct Source {
  std::string text;
  std::string file;
  std::string where;  // in the file, for messages
};

absl::Status Bad(const char* file, std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file, ": chat_template: ", ToAbsl(what)));
}

// The template among named ones that is for ordinary conversations.
absl::StatusOr<std::string> FindDefault(const char* file,
                                        const Json& templates) {
  std::string names;
  for (const Json& one : templates) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string() ||
        !one.contains("template") || !one["template"].is_string()) {
      return Bad(file, "not every entry has a name and a template");
    }
    const std::string name = one["name"].get<std::string>();
    if (name == "default") return one["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + Quoted(name);
  }
  return Bad(file, "none of the templates is named 'default', only " +
                       (names.empty() ? "none" : names));
}

// The chat_template of a config. NotFound if it has none.
absl::StatusOr<Source> FindField(const char* file, const Json& config) {
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) {
    return absl::NotFoundError("the model has no chat template");
  }
  const std::string where = absl::StrCat(file, ": chat_template");
  if (it->is_string()) return Source{it->get<std::string>(), file, where};
  if (!it->is_array()) return Bad(file, "neither a string nor a list");
  ASSIGN_OR_RETURN(std::string text, FindDefault(file, *it));
  return Source{std::move(text), file, where};
}

// NotFound if there is none.
absl::StatusOr<Source> FindSource(const std::filesystem::path& dir,
                                  const Json& config,
                                  std::string_view tokenizer_kind) {
  std::error_code error;
  if (std::filesystem::exists(dir / kJinjaFile, error)) {
    ASSIGN_OR_RETURN(const MappedFile file,
                     MappedFile::Open((dir / kJinjaFile).string()));
    if (file.bytes().size() > jinja::kMaxSourceBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(kJinjaFile, " has ", file.bytes().size(),
                       " bytes, the limit is ", jinja::kMaxSourceBytes));
    }
    return Source{std::string(file.bytes()), kJinjaFile, kJinjaFile};
  }
  absl::StatusOr<Source> source = FindField(kConfigFile, config);
  if (!absl::IsNotFound(source.status())) return source;
  ASSIGN_OR_RETURN(const Json processor, ReadConfig(dir / kJsonFile));
  source = FindField(kJsonFile, processor);
  if (absl::IsNotFound(source.status()) && tokenizer_kind == "rwkv") {
    return Source{std::string(kRwkvTemplate), kBuiltIn, kBuiltIn};
  }
  return source;
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(
    const std::string& model_dir, std::string_view tokenizer_kind) {
  const std::filesystem::path dir(model_dir);
  ASSIGN_OR_RETURN(const Json config, ReadConfig(dir / kConfigFile));
  ASSIGN_OR_RETURN(const Json map, ReadConfig(dir / "special_tokens_map.json"));
  ASSIGN_OR_RETURN(const Json added, ReadConfig(dir / "added_tokens.json"));
  ASSIGN_OR_RETURN(const Source source,
                   FindSource(dir, config, tokenizer_kind));
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source.text);
  if (!parsed.ok()) {
    return absl::Status(
        parsed.status().code(),
        absl::StrCat(source.where, ": ", parsed.status().message()));
  }
  ChatTemplate result(*std::move(parsed));
  result.source_ = source.file;
  SpecialTokens tokens;
  tokens.Add(config);
  tokens.Add(map);
  result.eos_token_ = tokens.eos_token();
  result.special_tokens_ = tokens.Take();
  result.token_names_ = ReadTokenNames(config, added);
  if (source.file == kBuiltIn) result.stop_.emplace_back(kRwkvStop);
  return result;
}

absl::StatusOr<Text> ChatTemplate::RenderText(
    std::vector<Value> messages, const ChatOptions& options) const {
  Variables variables = special_tokens_;
  variables.emplace_back("messages", jinja::ListValue(std::move(messages)));
  variables.emplace_back("add_generation_prompt",
                         Value::Bool(options.add_generation_prompt));
  // As transformers passes them when there are none.
  variables.emplace_back("tools", Value());
  variables.emplace_back("documents", Value());
  return template_.Render(std::move(variables),
                          {.now_unix_ms = options.now_unix_ms});
}

absl::StatusOr<ChatPrompt> ChatTemplate::Render(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  ASSIGN_OR_RETURN(const Text text,
                   RenderText(MakeMessages(messages), options));
  return ToPrompt(text, options);
}

absl::StatusOr<ChatPrompt> ChatTemplate::RenderNext(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  // A private-use character, which no template knows, stands for the answer,
  // after some question. What comes after it belongs to the new messages.
  constexpr char32_t kAnswer = 0xE000 | jinja::kPlaceMark;
  std::vector<Value> all = {MakeMessage("user", Text(U"-")),
                            MakeMessage("assistant", Text(1, kAnswer))};
  std::vector<Value> added = MakeMessages(messages);
  all.insert(all.end(), added.begin(), added.end());
  ASSIGN_OR_RETURN(const Text text, RenderText(std::move(all), options));
  const auto is_place = [](char32_t c) { return (c & jinja::kPlaceMark) != 0; };
  const auto answer = std::find_if(text.begin(), text.end(), is_place);
  if (answer == text.end() ||
      std::find_if(answer + 1, text.end(), is_place) != text.end()) {
    return absl::FailedPreconditionError(
        "the model's chat template does not show every answer once, as it was, "
        "so it cannot continue a session");
  }
  return ToPrompt(
      TextView(text).substr(static_cast<size_t>(answer - text.begin()) + 1),
      options);
}

}  // namespace reprise
