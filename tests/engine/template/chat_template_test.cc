// Chat templates from a model's folder, and prompts as tokens.
#include "engine/template/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/template/prompt_encoder.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_values.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Config(const std::string& chat_template,
                   const std::string& more = "") {
  Json config;
  config["chat_template"] = chat_template;
  return JsonText(config).insert(1, more.empty() ? "" : more + ",");
}

std::string Text(const absl::StatusOr<ChatPrompt>& prompt) {
  return prompt.ok() ? prompt->text : prompt.status().ToString();
}

// The parts of the text that are plain, in brackets.
std::string ShowPlain(const absl::StatusOr<ChatPrompt>& prompt) {
  if (!prompt.ok()) return prompt.status().ToString();
  std::string shown;
  size_t at = 0;
  for (const TextRange& range : prompt->plain) {
    shown += prompt->text.substr(at, range.begin - at) + "[" +
             prompt->text.substr(range.begin, range.end - range.begin) + "]";
    at = range.end;
  }
  return shown + prompt->text.substr(at);
}

class ChatTemplateTest : public ::testing::Test {
 protected:
  ChatTemplate Load(const std::string& tokenizer = "bpe") {
    absl::StatusOr<ChatTemplate> loaded =
        ChatTemplate::Load(dir_.path(), tokenizer);
    CHECK(loaded.ok());
    return *std::move(loaded);
  }
  absl::Status LoadError(const std::string& tokenizer = "bpe") {
    return ChatTemplate::Load(dir_.path(), tokenizer).status();
  }

  TempDir dir_;
  const std::vector<ChatMessage> hi_ = {{"user", "hi"}};
};

TEST_F(ChatTemplateTest, ATemplateIsAStringOfTheConfig) {
  dir_.Write("tokenizer_config.json",
             Config("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}",
                    R"("bos_token":"<s>","eos_token":{"content":"</s>"})"));
  const ChatTemplate chat = Load();
  EXPECT_EQ(Text(chat.Render(hi_, {})), "<s>hi</s>");
  EXPECT_EQ(chat.eos_token(), "</s>");
  EXPECT_TRUE(chat.stop().empty());
  EXPECT_EQ(chat.source(), "tokenizer_config.json");
}

TEST_F(ChatTemplateTest, SpecialTokensMayStandInAFileOfTheirOwn) {
  dir_.Write("tokenizer_config.json",
             Config("{{ bos_token }}{{ eos_token }}{{ pad_token }}",
                    R"("eos_token":"</s>","pad_token":null)"));
  dir_.Write("special_tokens_map.json",
             R"({"bos_token":"<b>","eos_token":"<other>"})");
  EXPECT_EQ(Text(Load().Render(hi_, {})), "<b></s>");
}

TEST_F(ChatTemplateTest, TemplatesGetEverySpecialTokenOfTheConfig) {
  dir_.Write(
      "tokenizer_config.json",
      Config("{{ image_token }}{{ additional_special_tokens|join }}"
             "{{ messages|length }}{{ odd_token is defined }}",
             R"("extra_special_tokens":{"image_token":"<i>","odd_token":1,)"
             R"("messages":"no"},"additional_special_tokens":)"
             R"(["<a>",{"content":"<b>"},7])"));
  EXPECT_EQ(Text(Load().Render(hi_, {})), "<i><a><b>1False");
}

TEST_F(ChatTemplateTest, TheConfigsHaveNamesOfTokens) {
  dir_.Write("tokenizer_config.json",
             Config("x", R"("added_tokens_decoder":{"0":{"content":"<a>"},)"
                         R"("x":{"content":"<b>"},"2":{}})"));
  dir_.Write("added_tokens.json", R"({"<c>":3,"<d>":"4"})");
  EXPECT_THAT(Load().token_names(),
              ElementsAre(std::pair<std::string, int64_t>("<a>", 0),
                          std::pair<std::string, int64_t>("<c>", 3)));
}

TEST_F(ChatTemplateTest, OfNamedTemplatesTheDefaultIsUsed) {
  dir_.Write("tokenizer_config.json",
             R"({"chat_template":[{"name":"tool_use","template":"no"},)"
             R"({"name":"default","template":"yes"}]})");
  EXPECT_EQ(Text(Load().Render(hi_, {})), "yes");
  dir_.Write("tokenizer_config.json",
             R"({"chat_template":[{"name":"rag","template":"no"}]})");
  EXPECT_THAT(std::string(LoadError().message()), HasSubstr("only 'rag'"));
}

TEST_F(ChatTemplateTest, AFileOfItsOwnComesFirst) {
  dir_.Write("tokenizer_config.json", Config("config"));
  dir_.Write("chat_template.jinja", "file\n");
  EXPECT_EQ(Text(Load().Render(hi_, {})), "file");
  EXPECT_EQ(Load().source(), "chat_template.jinja");
}

TEST_F(ChatTemplateTest, AProcessorsFileComesLast) {
  dir_.Write("chat_template.json", Config("processor"));
  EXPECT_EQ(Text(Load("rwkv").Render(hi_, {})), "processor");
  EXPECT_EQ(Load().source(), "chat_template.json");
  dir_.Write("tokenizer_config.json", Config("config"));
  EXPECT_EQ(Text(Load().Render(hi_, {})), "config");
  dir_.Write("tokenizer_config.json", "{}");
  dir_.Write("chat_template.json", R"({"chat_template":"{{ x y }}"})");
  EXPECT_THAT(std::string(LoadError().message()),
              HasSubstr("chat_template.json: chat_template: line 1:"));
}

TEST_F(ChatTemplateTest, NoTemplateIsNotFound) {
  EXPECT_TRUE(absl::IsNotFound(LoadError()));
  dir_.Write("tokenizer_config.json", "{\"chat_template\":null}");
  EXPECT_TRUE(absl::IsNotFound(LoadError()));
}

TEST_F(ChatTemplateTest, ABadTemplateIsNamedWithItsFileAndLine) {
  dir_.Write("tokenizer_config.json", Config("a\n{% if %}"));
  EXPECT_THAT(std::string(LoadError("rwkv").message()),
              HasSubstr("tokenizer_config.json: chat_template: line 2:"));
  dir_.Write("chat_template.jinja", "{% include 'x' %}");
  EXPECT_EQ(LoadError().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(LoadError().message()),
              HasSubstr("chat_template.jinja: line 1: the tag 'include'"));
  dir_.Write("chat_template.jinja", std::string((1 << 20) + 1, ' '));
  EXPECT_EQ(LoadError().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ChatTemplateTest, ABadConfigIsRefused) {
  for (const char* config :
       {"[]", "{", R"({"chat_template":1})", R"({"chat_template":[1]})",
        R"({"chat_template":[]})", R"({"chat_template":[{"name":"x"}]})"}) {
    SCOPED_TRACE(config);
    dir_.Write("tokenizer_config.json", config);
    EXPECT_EQ(LoadError("rwkv").code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ChatTemplateTest, RwkvModelsHaveOneBuiltIn) {
  const ChatTemplate chat = Load("rwkv");
  EXPECT_EQ(chat.source(), "built in");
  EXPECT_EQ(Text(chat.Render(hi_, {})), "User: hi\n\nAssistant:");
  const std::vector<ChatMessage> talk = {{"system", " Be kind. "},
                                         {"user", "\n a\r\n\r\n\n  b\n"},
                                         {"assistant", "c\n\nd"},
                                         {"user", "e"}};
  EXPECT_EQ(Text(chat.Render(talk, {})),
            "System: Be kind.\n\nUser: a\n  b\n\nAssistant: c\nd\n\n"
            "User: e\n\nAssistant:");
  EXPECT_EQ(Text(chat.Render(hi_, {.add_generation_prompt = false})),
            "User: hi\n\n");
  EXPECT_EQ(Text(chat.RenderNext(hi_, {})), "\n\nUser: hi\n\nAssistant:");
  EXPECT_THAT(chat.stop(), ElementsAre("\n\nUser:"));
  const std::vector<ChatMessage> tool = {{"tool", "x"}};
  EXPECT_THAT(std::string(chat.Render(tool, {}).status().message()),
              HasSubstr("the role tool is not"));
}

TEST_F(ChatTemplateTest, WhatARequestSaysIsPlain) {
  dir_.Write(
      "tokenizer_config.json",
      Config("{% for m in messages %}<|{{ m.role }}|>{{ m.content|trim }}"
             "\n{% endfor %}"));
  const ChatTemplate chat = Load();
  const std::vector<ChatMessage> talk = {{"user", " a "},
                                         {"narrator", "<|b|>"}};
  EXPECT_EQ(ShowPlain(chat.Render(talk, {})),
            "<|user|>[a]\n<|[narrator]|>[<|b|>]\n");
  EXPECT_EQ(ShowPlain(chat.Render(talk, {.allow_special = true})),
            "<|user|>[a]\n<|[narrator]|>[<|b|>]\n");
  EXPECT_FALSE(chat.Render(talk, {})->allow_special);
  EXPECT_TRUE(chat.Render(talk, {.allow_special = true})->allow_special);
}

TEST_F(ChatTemplateTest, AConversationGoesOnAfterAnAnswer) {
  struct Case {
    const char* name;
    const char* next;
  };
  const std::string tokens = R"("bos_token":"<s>","eos_token":"</s>")";
  for (const Case& c : {
           Case{"chatml",
                "<|im_end|>\n<|im_start|>user\n[hi]<|im_end|>\n"
                "<|im_start|>assistant\n"},
           Case{"bracket_turns", " </s><s>[INST] [hi] [/INST]"},
           Case{"header_turns",
                "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n[hi]"
                "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
           Case{"turn_markers",
                "<end_of_turn>\n<start_of_turn>user\n[hi]<end_of_turn>\n"
                "<start_of_turn>model\n"},
           Case{"user_assistant", "</s>\n<|user|>\n[hi]</s>\n<|assistant|>\n"},
           Case{"role_in_marker",
                "<|end|>\n<|user|>\n[hi]<|end|>\n<|assistant|>\n"},
           Case{"tools_and_thoughts",
                "<|im_end|>\n<|im_start|>user\n[hi]<|im_end|>\n"
                "<|im_start|>assistant\n"},
           Case{"think_and_calls", "</s><|User|>[hi]<|Assistant|><think>\n"},
           Case{"world", "\n\nUser: [hi]\n\nAssistant:"},
       }) {
    SCOPED_TRACE(c.name);
    dir_.Write(
        "tokenizer_config.json",
        Config(ReadTemplateFile(std::string(c.name) + ".jinja"), tokens));
    EXPECT_EQ(ShowPlain(Load().RenderNext(hi_, {})), c.next);
  }
}

TEST_F(ChatTemplateTest, ATemplateThatHidesAnswersCannotGoOn) {
  for (const char* source :
       {"{{ messages[-1].content }}", "{{ messages[1].content * 2 }}",
        "{{ messages[1].content|length }}"}) {
    SCOPED_TRACE(source);
    dir_.Write("tokenizer_config.json", Config(source));
    EXPECT_EQ(Load().RenderNext(hi_, {}).status().code(),
              absl::StatusCode::kFailedPrecondition);
  }
}

// ---- Tokens -----------------------------------------------------------------

class PromptEncoderTest : public ::testing::Test {
 protected:
  std::vector<int32_t> Encode(const std::string& text,
                              std::vector<TextRange> plain) {
    return EncodePrompt({text, std::move(plain)}).ids;
  }
  EncodedPrompt EncodePrompt(const ChatPrompt& prompt) {
    const absl::StatusOr<EncodedPrompt> encoded = encoder_.Encode(prompt);
    EXPECT_TRUE(encoded.ok()) << encoded.status();
    return encoded.value_or(EncodedPrompt());
  }

  // Letters stand for themselves, so that every text can be written.
  FakeTokenizer tokenizer_{{"<eos>", "<user>", "<", ">", "e", "o", "s", "u",
                            "r", "a", "b", "ab", "eos"}};
  PromptEncoder encoder_{tokenizer_};
};

TEST_F(PromptEncoderTest, SpecialTokensOfTheTemplateAreTokens) {
  EXPECT_THAT(Encode("<user>ab<eos>", {{6, 8}}), ElementsAre(1, 11, 0));
  EXPECT_THAT(Encode("<user><eos>", {}), ElementsAre(1, 0));
}

TEST_F(PromptEncoderTest, TextIsNotCutWhereTheTemplateEnds) {
  EXPECT_THAT(Encode("ab", {{1, 2}}), ElementsAre(11));
}

TEST_F(PromptEncoderTest, SpecialTokensInARequestArePlain) {
  EXPECT_THAT(Encode("<user><eos><eos>", {{6, 11}}),
              ElementsAre(1, 2, 12, 3, 0));
  // Half of it in the request, half in the template.
  EXPECT_THAT(Encode("<eos>", {{0, 3}}), ElementsAre(2, 12, 3));
  EXPECT_THAT(Encode("<eos>", {{4, 5}}), ElementsAre(2, 12, 3));
  EXPECT_THAT(Encode("<eos>", {{2, 3}}), ElementsAre(2, 12, 3));
  // Only beside it.
  EXPECT_THAT(Encode("a<eos>a", {{0, 1}, {6, 7}}), ElementsAre(9, 0, 9));
}

TEST_F(PromptEncoderTest, ARequestMayMeanSpecialTokens) {
  const EncodedPrompt prompt = EncodePrompt(
      {.text = "<user><eos>", .plain = {{6, 11}}, .allow_special = true});
  EXPECT_THAT(prompt.ids, ElementsAre(1, 0));
  EXPECT_EQ(prompt.opening, 1u);
}

TEST_F(PromptEncoderTest, ConfigsMayHaveOtherNamesForSpecialTokens) {
  // Only for tokens that are special: 9 is an ordinary one.
  const PromptEncoder encoder(tokenizer_,
                              {{"bos", 0}, {"aa", 9}, {"b", 99}, {"b", -1}});
  const absl::StatusOr<EncodedPrompt> prompt =
      encoder.Encode({"bos<user>aabos", {{9, 14}}});
  ASSERT_TRUE(prompt.ok()) << prompt.status();
  EXPECT_THAT(prompt->ids, ElementsAre(0, 1, 9, 11, 5, 6));
  EXPECT_EQ(prompt->opening, 1u);
  EXPECT_EQ(encoder.FindToken("bos"), 0);
  EXPECT_EQ(encoder.FindToken("ab"), 11);
  EXPECT_EQ(encoder.FindToken("aa"), std::nullopt);
}

TEST_F(PromptEncoderTest, TheOpeningIsTheTemplates) {
  EXPECT_EQ(EncodePrompt({"ab<eos>a<user>b", {{8, 9}}}).opening, 2u);
  EXPECT_EQ(EncodePrompt({"ab<eos>a<user>b", {{6, 9}}}).opening, 0u);
  EXPECT_EQ(EncodePrompt({"ab<eos><eos>", {{7, 12}}}).opening, 2u);
  EXPECT_EQ(EncodePrompt({"a<eos>", {{0, 1}}}).opening, 0u);
  EXPECT_EQ(EncodePrompt({"ab", {}}).opening, 0u);
  EXPECT_EQ(EncodePrompt({"ab", {}}).opening_bytes, 2u);
  EXPECT_EQ(EncodePrompt({"ab", {{1, 2}}}).opening_bytes, 1u);
}

TEST_F(PromptEncoderTest, TheTokensAreLimitedTogether) {
  // "eos" as a name is plain text, or another name of a special token.
  const PromptEncoder encoder(tokenizer_, {{"bos", 0}});
  for (const ChatPrompt& prompt : {ChatPrompt{"<user>ab<eos>", {{6, 8}}},
                                   ChatPrompt{"<user><eos>ab<eos>", {{6, 13}}},
                                   ChatPrompt{"bos<user>aabos", {{9, 14}}}}) {
    const absl::StatusOr<EncodedPrompt> all = encoder.Encode(prompt);
    ASSERT_TRUE(all.ok()) << all.status();
    for (size_t limit = 0; limit < all->ids.size(); ++limit) {
      EXPECT_EQ(encoder.Encode(prompt, limit).status(),
                TooManyTokensError(limit));
    }
    EXPECT_EQ(encoder.Encode(prompt, all->ids.size())->ids, all->ids);
  }
}

TEST_F(PromptEncoderTest, ErrorsOfTheTokenizerAreHandedOn) {
  EXPECT_FALSE(encoder_.Encode({"xyz", {}}).ok());
  EXPECT_FALSE(encoder_.Encode({"<eos>xyz", {{0, 2}}}).ok());
}

}  // namespace
}  // namespace reprise
