#include "engine/template/chat_template.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

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

std::vector<Value> MakeMessages(std::span<const ChatMessage> messages,
                                const ChatOptions& options) {
  std::vector<Value> values;
  for (const ChatMessage& message : messages) {
    values.push_back(
        MakeMessage(message.role,
                    jinja::FromUtf8(message.content, !options.allow_special)));
  }
  return values;
}

ChatPrompt ToPrompt(TextView text) {
  ChatPrompt prompt;
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

// Names of the special tokens that `config` gives, a string each or an object
// with a string inside, for the variables that are not there yet.
void AddSpecialTokens(
    const Json& config,
    std::vector<std::pair<std::string, std::string>>& tokens) {
  for (const char* name : {"bos_token", "eos_token", "unk_token", "sep_token",
                           "pad_token", "cls_token", "mask_token"}) {
    const auto known =
        std::find_if(tokens.begin(), tokens.end(),
                     [name](const auto& token) { return token.first == name; });
    if (known != tokens.end() || !config.contains(name)) continue;
    const Json& token = config[name];
    const Json& content = token.is_object() && token.contains("content")
                              ? token["content"]
                              : token;
    if (!content.is_string()) continue;
    tokens.emplace_back(name, content.get<std::string>());
  }
}

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer_config.json: chat_template: ", ToAbsl(what)));
}

// The template among named ones that is for ordinary conversations.
absl::StatusOr<std::string> FindDefault(const Json& templates) {
  std::string names;
  for (const Json& one : templates) {
    if (!one.is_object() || !one.contains("name") || !one["name"].is_string() ||
        !one.contains("template") || !one["template"].is_string()) {
      return Bad("not every entry has a name and a template");
    }
    const std::string name = one["name"].get<std::string>();
    if (name == "default") return one["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + Quoted(name);
  }
  return Bad("none of the templates is named 'default', only " +
             (names.empty() ? "none" : names));
}

// The source and the file that it is from. NotFound if there is none.
struct Source {
  std::string text;
  std::string file;
};

absl::StatusOr<Source> FindSource(const std::filesystem::path& dir,
                                  const Json& config) {
  constexpr const char* kFile = "chat_template.jinja";
  std::error_code error;
  if (std::filesystem::exists(dir / kFile, error)) {
    ASSIGN_OR_RETURN(const MappedFile file,
                     MappedFile::Open((dir / kFile).string()));
    if (file.bytes().size() > jinja::kMaxSourceBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat(kFile, " has ", file.bytes().size(),
                       " bytes, the limit is ", jinja::kMaxSourceBytes));
    }
    return Source{std::string(file.bytes()), kFile};
  }
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) {
    return absl::NotFoundError("the model has no chat template");
  }
  constexpr const char* kConfig = "tokenizer_config.json: chat_template";
  if (it->is_string()) return Source{it->get<std::string>(), kConfig};
  if (!it->is_array()) return Bad("neither a string nor a list");
  ASSIGN_OR_RETURN(std::string text, FindDefault(*it));
  return Source{std::move(text), kConfig};
}

}  // namespace

absl::StatusOr<ChatTemplate> ChatTemplate::Load(const std::string& model_dir,
                                                std::string_view family) {
  const std::filesystem::path dir(model_dir);
  ASSIGN_OR_RETURN(const Json config,
                   ReadConfig(dir / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Json map, ReadConfig(dir / "special_tokens_map.json"));
  absl::StatusOr<Source> source = FindSource(dir, config);
  const bool built_in =
      absl::IsNotFound(source.status()) && family.starts_with("rwkv");
  if (built_in) source = Source{std::string(kRwkvTemplate), "built in"};
  if (!source.ok()) return source.status();
  absl::StatusOr<jinja::Template> parsed = jinja::Template::Parse(source->text);
  if (!parsed.ok()) {
    return absl::Status(
        parsed.status().code(),
        absl::StrCat(source->file, ": ", parsed.status().message()));
  }
  ChatTemplate result(*std::move(parsed));
  std::vector<std::pair<std::string, std::string>> tokens;
  AddSpecialTokens(config, tokens);
  AddSpecialTokens(map, tokens);
  for (auto& [name, content] : tokens) {
    if (name == "eos_token") result.eos_token_ = content;
    result.special_tokens_.emplace_back(name, Value::String(content));
  }
  if (built_in) result.stop_.emplace_back(kRwkvStop);
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
                   RenderText(MakeMessages(messages, options), options));
  return ToPrompt(text);
}

absl::StatusOr<ChatPrompt> ChatTemplate::RenderNext(
    std::span<const ChatMessage> messages, const ChatOptions& options) const {
  // A private-use character, which no template knows, stands for the answer,
  // after some question. What comes after it belongs to the new messages.
  constexpr char32_t kAnswer = 0xE000 | jinja::kPlaceMark;
  std::vector<Value> all = {MakeMessage("user", Text(U"-")),
                            MakeMessage("assistant", Text(1, kAnswer))};
  std::vector<Value> added = MakeMessages(messages, options);
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
      TextView(text).substr(static_cast<size_t>(answer - text.begin()) + 1));
}

}  // namespace reprise
