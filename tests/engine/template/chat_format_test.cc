// From messages to the tokens that a session is fed, and what ends an answer.
#include "engine/template/chat_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/log.h"
#include "engine/rwkv_tokenizer.h"
#include "tests/support/fake_tokenizer.h"
#include "tests/support/json.h"
#include "tests/support/temp_dir.h"
#include "tests/support/template_values.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int32_t kEos = FakeTokenizer::kEos;
constexpr int32_t kUser = FakeTokenizer::kUser;

// Every message behind its token, and an end behind every answer.
const char kTurns[] =
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}c{{ m.content }}{{ eos_token }}"
    "{% else %}<user>{{ m.content }}{% endif %}{% endfor %}"
    "{{ 'c' if add_generation_prompt }}";

class ChatFormatTest : public ::testing::Test {
 protected:
  ChatFormat Load(const std::string& source,
                  const std::string& eos_token = "<eos>",
                  std::vector<int32_t> eos_tokens = {}) {
    Json config;
    config["chat_template"] = source;
    config["eos_token"] = eos_token;
    dir_.Write("tokenizer_config.json", JsonText(config));
    return ChatFormat::Load(dir_.path(), tokenizer_, std::move(eos_tokens));
  }
  static std::vector<int32_t> Begin(const ChatFormat& chat,
                                    const std::vector<ChatMessage>& messages,
                                    const ChatOptions& options = {}) {
    const auto ids = chat.Begin(messages, options);
    EXPECT_TRUE(ids.ok()) << ids.status();
    return ids.value_or(std::vector<int32_t>());
  }
  static Continuation Continue(const ChatFormat& chat,
                               const std::vector<ChatMessage>& messages) {
    const auto next = chat.Continue(messages, {});
    EXPECT_TRUE(next.ok()) << next.status();
    return next.value_or(Continuation());
  }

  TempDir dir_;
  // Letters stand for themselves, so that every text can be written.
  FakeTokenizer tokenizer_{{"<eos>", "<user>", "<", ">", "e", "o", "s", "u",
                            "r", "a", "b", "c", "eos", "\n"}};
  const std::vector<ChatMessage> ab_ = {{"user", "ab"}};
};

TEST_F(ChatFormatTest, AConversationBeginsWithAllOfIt) {
  const ChatFormat chat = Load(kTurns);
  EXPECT_TRUE(chat.status().ok()) << chat.status();
  EXPECT_EQ(chat.source(), "tokenizer_config.json");
  EXPECT_THAT(Begin(chat, ab_), ElementsAre(kUser, 9, 10, 11));
  EXPECT_THAT(Begin(chat, {{"user", "a"}, {"assistant", "b"}, {"user", "b"}}),
              ElementsAre(kUser, 9, 11, 10, kEos, kUser, 10, 11));
}

TEST_F(ChatFormatTest, WhatUsersWriteIsNoSpecialTokenUnlessAllowed) {
  const ChatFormat chat = Load(kTurns);
  EXPECT_THAT(Begin(chat, {{"user", "<eos>"}}),
              ElementsAre(kUser, 2, 12, 3, 11));
  EXPECT_THAT(Begin(chat, {{"user", "<eos>"}}, {.allow_special = true}),
              ElementsAre(kUser, kEos, 11));
}

TEST_F(ChatFormatTest, AnAnswersEndIsNotFedTwice) {
  const Continuation next = Continue(Load(kTurns), ab_);
  EXPECT_THAT(next.ids, ElementsAre(kEos, kUser, 9, 10, 11));
  EXPECT_EQ(next.end, kEos);
  // The answer ended with it, or with something else.
  EXPECT_THAT(next.TokensToFeed(kEos), ElementsAre(kUser, 9, 10, 11));
  EXPECT_THAT(next.TokensToFeed(9), ElementsAre(kEos, kUser, 9, 10, 11));
}

TEST_F(ChatFormatTest, WhatStandsBeforeTheEndCameTooLate) {
  const Continuation next =
      Continue(Load("{% for m in messages %}{{ m.content }}\n<eos>{% endfor %}"
                    "<user>"),
               ab_);
  EXPECT_THAT(next.ids, ElementsAre(13, kEos, 9, 10, 13, kEos, kUser));
  EXPECT_THAT(next.TokensToFeed(kEos), ElementsAre(9, 10, 13, kEos, kUser));
  EXPECT_THAT(next.TokensToFeed(kUser),
              ElementsAre(13, kEos, 9, 10, 13, kEos, kUser));
}

TEST_F(ChatFormatTest, AnEndBehindNewMessagesIsTheirs) {
  // The answer itself has none.
  const Continuation next =
      Continue(Load("{% for m in messages %}{{ '\n' + m.content }}"
                    "{{ '<eos>' if m.role == 'user' }}{% endfor %}"),
               ab_);
  EXPECT_THAT(next.TokensToFeed(kEos), ElementsAre(13, 9, 10, kEos));
}

TEST_F(ChatFormatTest, AnEndMayBeAnOrdinaryToken) {
  const std::string lines =
      "{% for m in messages %}{{ m.content }}{{ '\n' }}"
      "{% endfor %}";
  const ChatFormat chat = Load(lines, "\n");
  EXPECT_THAT(chat.eos_tokens(), ElementsAre(13));
  EXPECT_THAT(Continue(chat, ab_).TokensToFeed(13), ElementsAre(9, 10, 13));
  EXPECT_THAT(Continue(chat, ab_).TokensToFeed(9), ElementsAre(13, 9, 10, 13));
  // But not one that a user wrote.
  const ChatFormat bare = Load(
      "{% for m in messages %}{{ m.content }}"
      "{% endfor %}",
      "\n");
  EXPECT_THAT(Continue(bare, {{"user", "\na"}}).TokensToFeed(13),
              ElementsAre(13, 9));
}

TEST_F(ChatFormatTest, AnswersEndWithTheModelsTokensAndTheConfigs) {
  EXPECT_THAT(Load(kTurns, "<eos>", {kUser}).eos_tokens(),
              ElementsAre(kUser, kEos));
  EXPECT_THAT(Load(kTurns, "<eos>", {kEos}).eos_tokens(), ElementsAre(kEos));
  EXPECT_THAT(Load(kTurns, "<none>").eos_tokens(), IsEmpty());
  EXPECT_THAT(Load(kTurns).stop(), IsEmpty());
}

TEST_F(ChatFormatTest, WithoutATemplateThereIsNoTalking) {
  const ChatFormat chat = ChatFormat::Load(dir_.path(), tokenizer_, {kEos});
  EXPECT_FALSE(chat.has_template());
  EXPECT_EQ(chat.source(), "");
  EXPECT_THAT(chat.eos_tokens(), ElementsAre(kEos));
  const absl::Status expected = absl::FailedPreconditionError(
      "the model has no chat template; send text");
  EXPECT_EQ(chat.status(), expected);
  EXPECT_EQ(chat.Begin(ab_, {}).status(), expected);
  EXPECT_EQ(chat.Continue(ab_, {}).status(), expected);
}

TEST_F(ChatFormatTest, ATemplateThatCannotBeUsedIsNamedWithTheConstruct) {
  const ChatFormat chat = Load("\n{% include 'x' %}");
  EXPECT_TRUE(chat.has_template());
  EXPECT_EQ(chat.source(), "");
  EXPECT_EQ(chat.Begin(ab_, {}).status(),
            absl::FailedPreconditionError(
                "the model's chat template cannot be used: "
                "tokenizer_config.json: chat_template: line 2: the tag "
                "'include' is not supported; send text"));
}

TEST_F(ChatFormatTest, ErrorsSayWhoseFaultItIs) {
  struct Case {
    const char* source;
    absl::StatusCode code;
    const char* text;
  };
  for (const Case& c : {
           Case{"{{ raise_exception('no b here') }}",
                absl::StatusCode::kInvalidArgument,
                "the chat template (tokenizer_config.json): line 1: no b here"},
           Case{"{{ 1 + messages }}", absl::StatusCode::kInvalidArgument,
                "line 1: "},
           Case{"{{ '%s' % 1 }}", absl::StatusCode::kFailedPrecondition,
                "is not supported"},
           Case{"{% for i in range(99999) %}{% for j in range(99999) %}a"
                "{% endfor %}{% endfor %}",
                absl::StatusCode::kInvalidArgument, "more than "},
           Case{"{{ 'z' }}", absl::StatusCode::kInvalidArgument,
                "no piece fits"},
       }) {
    SCOPED_TRACE(c.source);
    const ChatFormat chat = Load(c.source);
    EXPECT_TRUE(chat.status().ok()) << chat.status();
    const absl::Status status = chat.Begin(ab_, {}).status();
    EXPECT_EQ(status.code(), c.code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.text));
  }
  const ChatFormat chat = Load("{{ messages[-1].content }}");
  EXPECT_TRUE(chat.Begin(ab_, {}).ok());
  EXPECT_EQ(chat.Continue(ab_, {}).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// ---- RWKV World -------------------------------------------------------------

// The 256 bytes, id = byte + 1, and an empty line.
std::unique_ptr<Tokenizer> WorldTokenizer() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte) {
    char line[32];
    std::snprintf(line, sizeof(line), "%d b'\\x%02x' 1\n", byte + 1, byte);
    lines += line;
  }
  lines += "257 '\\n\\n' 2\n";
  auto tokenizer = CreateRwkvTokenizer(lines, "vocab.txt", 300);
  CHECK(tokenizer.ok());
  return *std::move(tokenizer);
}

TEST_F(ChatFormatTest, RwkvWorldNeedsNoTemplate) {
  const auto tokenizer = WorldTokenizer();
  const ChatFormat chat = ChatFormat::Load(dir_.path(), *tokenizer, {0});
  EXPECT_EQ(chat.source(), "built in");
  EXPECT_THAT(chat.eos_tokens(), ElementsAre(0));
  EXPECT_THAT(chat.stop(), ElementsAre("\n\nUser:"));
  EXPECT_EQ(Decode(*tokenizer, Begin(chat, ab_), /*keep_special=*/true),
            "User: ab\n\nAssistant:");
  const Continuation next = Continue(chat, ab_);
  EXPECT_EQ(Decode(*tokenizer, next.ids, /*keep_special=*/true),
            "\n\nUser: ab\n\nAssistant:");
  EXPECT_EQ(next.TokensToFeed(0).size(), next.ids.size());
}

// As the folders for flash-linear-attention have it.
TEST_F(ChatFormatTest, RwkvTokensHaveTheNamesOfTheConfig) {
  const auto tokenizer = WorldTokenizer();
  Json config = JsonOf(R"({
      "eos_token": "\n\n",
      "added_tokens_decoder": {
          "0": {"content": "<|rwkv_tokenizer_end_of_text|>"},
          "65530": {"content": "\n\n"}}})");
  config["chat_template"] = ReadTemplateFile("world.jinja");
  dir_.Write("tokenizer_config.json", JsonText(config));
  const ChatFormat chat = ChatFormat::Load(dir_.path(), *tokenizer, {0});
  ASSERT_TRUE(chat.status().ok()) << chat.status();
  EXPECT_THAT(chat.eos_tokens(), ElementsAre(0, 257));
  const std::vector<int32_t> ids = Begin(chat, ab_);
  EXPECT_EQ(ids.front(), 0);
  EXPECT_EQ(Decode(*tokenizer, ids, /*keep_special=*/false),
            "User: ab\n\nAssistant:");
  const Continuation next = Continue(chat, ab_);
  EXPECT_EQ(next.ids.front(), 257);
  const auto feed = next.TokensToFeed(257);
  EXPECT_EQ(Decode(*tokenizer, feed, /*keep_special=*/true),
            "User: ab\n\nAssistant:");
}

}  // namespace
}  // namespace reprise
