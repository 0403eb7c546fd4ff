// Conversations over real gRPC, on the fake engine: what is refused and why,
// and what a session is fed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/json.h"
#include "tests/support/raw_rpc.h"
#include "tests/support/temp_dir.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto kPrecondition = grpc::StatusCode::FAILED_PRECONDITION;
constexpr int32_t kEos = FakeTokenizer::kEos;
constexpr int32_t kUser = FakeTokenizer::kUser;

// Every message behind its token, and an end behind every answer. Needs turns
// that alternate.
const char kTurns[] =
    "{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'assistant' %}{{ '\nb' + m.content }}<eos>"
    "{% else %}<user>{{ m.content }}{% endif %}{% endfor %}"
    "{{ '\nb' if add_generation_prompt }}";

using Said = std::vector<std::pair<std::string, std::string>>;

void SetMessages(const Said& said, v1::Messages& messages) {
  for (const auto& [role, content] : said) {
    v1::Message& message = *messages.add_messages();
    message.set_role(role);
    message.set_content(content);
  }
}

class MessagesTest : public ::testing::Test {
 protected:
  MessagesTest() { Serve(kTurns); }

  // Starts a server on a model with that template; none if it is empty.
  void Serve(const std::string& chat_template) {
    server_.reset();
    ServerOptions options = TestServer::SmallOptions();
    options.model_dir = dir_.path();
    Json config;
    if (!chat_template.empty()) config["chat_template"] = chat_template;
    config["eos_token"] = "<eos>";
    dir_.Write("tokenizer_config.json", JsonText(config));
    server_ = std::make_unique<TestServer>(options);
  }

  static v1::GenerateRequest Request(const std::string& session,
                                     const Said& said) {
    v1::GenerateRequest request = SessionRequest(session, "", 3);
    if (session.empty()) {
      request.clear_start();
      request.clear_create_session();
    }
    request.clear_text();
    // Answers are cut off by their length, unless a test wants them to end.
    (*request.mutable_sampling()->mutable_logit_bias())[kEos] = -100;
    SetMessages(said, *request.mutable_messages());
    return request;
  }
  Completion Run(const v1::GenerateRequest& request) {
    return Generate(server_->inference(), request);
  }
  Completion Say(const std::string& session, const Said& said) {
    return Run(Request(session, said));
  }
  // The same with tokens.
  Completion Feed(const std::string& session, const std::vector<int32_t>& ids) {
    v1::GenerateRequest request = Request(session, {});
    request.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    return Run(request);
  }
  void ExpectRefused(const v1::GenerateRequest& request, grpc::StatusCode code,
                     const std::string& text) {
    const Completion c = Run(request);
    EXPECT_EQ(c.status.error_code(), code) << c.status.error_message();
    EXPECT_THAT(c.status.error_message(), HasSubstr(text));
    EXPECT_TRUE(c.messages.empty());
  }
  // Makes that token the whole answer, or each of its tokens.
  static void BiasTo(int32_t token, v1::GenerateRequest& request) {
    request.mutable_sampling()->set_temperature(0);
    (*request.mutable_sampling()->mutable_logit_bias())[token] = 100;
  }
  v1::Model GetModel() {
    v1::Model model;
    grpc::ClientContext context;
    EXPECT_TRUE(server_->inference().GetModel(&context, {}, &model).ok());
    return model;
  }

  TempDir dir_;
  std::unique_ptr<TestServer> server_;
};

// ---- What is fed ------------------------------------------------------------

TEST_F(MessagesTest, AStatelessRequestIsTheWholeConversation) {
  const Completion c =
      Say("", {{"user", "ab"}, {"assistant", "c"}, {"user", "d"}});
  ASSERT_TRUE(c.status.ok()) << c.status.error_message();
  // "<user>", "ab", "\n", "b", "c", "<eos>", "<user>", "d", "\n", "b"
  const Completion same = Feed("", {1, 8, 7, 3, 4, 0, 1, 5, 7, 3});
  EXPECT_EQ(c.started.prompt_tokens(), 10u);
  EXPECT_EQ(c.token_ids, same.token_ids);
}

TEST_F(MessagesTest, TheNextTurnOfASessionAddsWhatIsNew) {
  const Completion first = Say("s", {{"user", "ab"}});
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.token_ids, Feed("t", {1, 8, 7, 3}).token_ids);
  // The answer was cut off, so its end is fed too.
  const Completion second = Say("s", {{"user", "d"}});
  EXPECT_EQ(second.started.prompt_tokens(), 5u);
  EXPECT_EQ(second.started.cached_tokens(), 6u);
  EXPECT_EQ(second.token_ids, Feed("t", {kEos, kUser, 5, 7, 3}).token_ids);
}

TEST_F(MessagesTest, AnAnswerThatEndedIsNotEndedAgain) {
  v1::GenerateRequest request = Request("s", {{"user", "ab"}});
  request.mutable_stopping()->set_ignore_eos(false);
  BiasTo(kEos, request);
  const Completion first = Run(request);
  ASSERT_EQ(first.finished.size(), 1u) << first.status.error_message();
  EXPECT_EQ(first.finished[0].reason(), v1::FINISH_REASON_STOP);
  EXPECT_THAT(first.token_ids, ElementsAre(kEos));
  const Completion second = Say("s", {{"user", "d"}});
  EXPECT_EQ(second.started.prompt_tokens(), 4u);
  EXPECT_EQ(second.token_ids,
            Feed("", {1, 8, 7, 3, kEos, kUser, 5, 7, 3}).token_ids);
}

TEST_F(MessagesTest, ASessionThatTextBeganGoesOnWithMessages) {
  Feed("s", {2, 3});
  const Completion c = Say("s", {{"user", "d"}});
  EXPECT_EQ(c.started.prompt_tokens(), 5u);
  EXPECT_EQ(c.started.revision(), 1u);
}

TEST_F(MessagesTest, TheConfigsEndOfTextEndsAnAnswerToo) {
  Json config;
  config["chat_template"] = kTurns;
  config["eos_token"] = "<user>";
  ServerOptions options = TestServer::SmallOptions();
  options.model_dir = dir_.path();
  dir_.Write("tokenizer_config.json", JsonText(config));
  server_ = std::make_unique<TestServer>(options);
  v1::GenerateRequest request = Request("", {{"user", "ab"}});
  BiasTo(kUser, request);
  EXPECT_EQ(Run(request).finished[0].reason(), v1::FINISH_REASON_LENGTH);
  request.mutable_stopping()->set_ignore_eos(false);
  EXPECT_EQ(Run(request).finished[0].reason(), v1::FINISH_REASON_STOP);
  // Of a text it does not.
  request.set_text("ab");
  EXPECT_EQ(Run(request).finished[0].reason(), v1::FINISH_REASON_LENGTH);
}

TEST_F(MessagesTest, TokenizeShowsThePrompt) {
  v1::TokenizeRequest request;
  SetMessages({{"user", "ab"}}, *request.mutable_messages());
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server_->inference().Tokenize(&context, request, &response).ok());
  EXPECT_THAT(response.ids(), ElementsAre(kUser, 8, 7, 3));
  EXPECT_THAT(response.pieces(), ElementsAre("<user>", "ab", "\n", "b"));
  request.set_text("x");
  grpc::ClientContext again;
  const grpc::Status both =
      server_->inference().Tokenize(&again, request, &response);
  EXPECT_EQ(both.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(both.error_message(), StartsWith("messages: there is a text"));
}

// ---- What is refused --------------------------------------------------------

TEST_F(MessagesTest, FieldsAreRefusedByTheirPath) {
  const auto with = [](const std::string& role, const std::string& content) {
    return Request("", {{"user", "a"}, {"assistant", "b"}, {role, content}});
  };
  ExpectRefused(Request("", {}), grpc::INVALID_ARGUMENT,
                "messages: 0 messages are not in [1, 1024]");
  ExpectRefused(Request("s", {}), grpc::INVALID_ARGUMENT,
                "messages: 0 messages");
  ExpectRefused(Request("", Said(1025, {"user", "a"})), grpc::INVALID_ARGUMENT,
                "messages: 1025 messages are not in [1, 1024]");
  ExpectRefused(with("", "a"), grpc::INVALID_ARGUMENT,
                "messages[2].role: '' is not 1 to 64 of A-Z a-z 0-9");
  ExpectRefused(with(std::string(65, 'r'), "a"), grpc::INVALID_ARGUMENT,
                "messages[2].role: 'rrrr");
  ExpectRefused(with("user<eos>", "a"), grpc::INVALID_ARGUMENT,
                "messages[2].role: 'user<eos>' is not");
  ExpectRefused(with("user", std::string(4002, 'a')), grpc::INVALID_ARGUMENT,
                "messages: more tokens than the server takes, 2000");
  // The tokenizer of the test has no piece for it.
  ExpectRefused(with("user", "XYZ"), grpc::INVALID_ARGUMENT,
                "messages: no piece fits");
}

TEST_F(MessagesTest, ContentsAreLimitedTogether) {
  ServerOptions options = TestServer::SmallOptions();
  options.model_dir = dir_.path();
  options.max_request_bytes = 16 << 20;
  server_ = std::make_unique<TestServer>(options);
  ExpectRefused(Request("", {{"user", std::string(3 << 20, 'a')},
                             {"assistant", std::string(2 << 20, 'a')}}),
                grpc::INVALID_ARGUMENT,
                "messages: 5242880 bytes of content are more than 4194304");
}

TEST_F(MessagesTest, ContentsThatAreNotUtf8AreRefused) {
  // messages { messages { content: "a\xFF" } }
  const RawAnswer answer =
      RawCall(server_->channel(), "/reprise.v1.Inference/Generate",
              std::string("\x22\x06\x0A\x04\x12\x02"
                          "a\xFF",
                          8));
  EXPECT_EQ(answer.status.error_code(), grpc::INVALID_ARGUMENT)
      << answer.status.error_message();
  EXPECT_THAT(answer.status.error_message(), HasSubstr("not valid UTF-8"));
}

TEST_F(MessagesTest, WhatTheTemplateRaisesIsToldToTheClient) {
  ExpectRefused(Request("", {{"assistant", "a"}}), grpc::INVALID_ARGUMENT,
                "messages: the chat template (tokenizer_config.json): line 1: "
                "roles must alternate");
  // In a session that stands after an answer likewise.
  ASSERT_TRUE(Say("s", {{"user", "a"}}).status.ok());
  ExpectRefused(Request("s", {{"user", "a"}, {"user", "b"}}),
                grpc::INVALID_ARGUMENT, "roles must alternate");
  EXPECT_EQ(Say("s", {{"user", "a"}}).started.revision(), 1u);
}

// FakeTokenizer has no piece for "<" but in the names of special tokens.
TEST_F(MessagesTest, NamesOfSpecialTokensInAContentAreTextUnlessAllowed) {
  v1::GenerateRequest request = Request("", {{"user", "a<eos>b"}});
  ExpectRefused(request, grpc::INVALID_ARGUMENT, "messages: no piece fits");
  request.set_allow_special_tokens(true);
  const Completion c = Run(request);
  ASSERT_TRUE(c.status.ok()) << c.status.error_message();
  EXPECT_EQ(c.token_ids, Feed("", {kUser, 2, kEos, 3, 7, 3}).token_ids);
}

TEST_F(MessagesTest, AModelWithoutATemplateSaysSo) {
  Serve("");
  ExpectRefused(Request("", {{"user", "a"}}), kPrecondition,
                "messages: the model has no chat template; send text");
  ExpectRefused(Request("s", {{"user", "a"}}), kPrecondition,
                "messages: the model has no chat template; send text");
  EXPECT_EQ(GetModel().chat_template(), "");
  EXPECT_EQ(GetModel().chat_template_problem(),
            "the model has no chat template; send text");
}

TEST_F(MessagesTest, ATemplateThatCannotBeUsedIsNamedWithTheConstruct) {
  Serve("{% include 'x' %}");
  ExpectRefused(Request("", {{"user", "a"}}), kPrecondition,
                "tokenizer_config.json: chat_template: line 1: the tag "
                "'include' is not supported");
  EXPECT_THAT(GetModel().chat_template_problem(), HasSubstr("'include'"));
  EXPECT_TRUE(Generate(server_->inference(), TextRequest("ab", 2)).status.ok());
}

TEST_F(MessagesTest, ATemplateThatRunsForEverIsStopped) {
  Serve(
      "{% for i in range(99999) %}{% for j in range(99999) %}a"
      "{% endfor %}{% endfor %}");
  EXPECT_EQ(GetModel().chat_template(), "tokenizer_config.json");
  ExpectRefused(Request("", {{"user", "a"}}), grpc::INVALID_ARGUMENT,
                "more than ");
}

TEST_F(MessagesTest, ATemplateThatHidesAnswersServesTheFirstTurnOnly) {
  Serve("{{ messages[-1].content }}");
  ASSERT_TRUE(Say("s", {{"user", "a"}}).status.ok());
  ExpectRefused(Request("s", {{"user", "a"}}), kPrecondition,
                "cannot continue a session");
}

TEST_F(MessagesTest, PromptLogprobsCountTheTokensOfMessages) {
  v1::GenerateRequest request = Request("s", {{"user", "ab"}});
  request.mutable_output()->set_prompt_logprobs(true);
  EXPECT_EQ(Run(request).started.prompt_logprobs_size(), 3);
  EXPECT_EQ(Run(request).started.prompt_logprobs_size(), 5);
}

// ---- Append -----------------------------------------------------------------

TEST_F(MessagesTest, AppendTakesARequestId) {
  v1::AppendRequest request;
  request.set_session_id("s");
  request.set_create_session(true);
  request.set_text("ab");
  request.set_request_id("r");
  v1::AppendResponse response;
  grpc::ClientContext context;
  EXPECT_TRUE(server_->sessions().Append(&context, request, &response).ok());
  request.set_request_id(std::string(129, 'x'));
  grpc::ClientContext again;
  const grpc::Status status =
      server_->sessions().Append(&again, request, &response);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(),
              AllOf(HasSubstr("request_id"), HasSubstr("128")));
}

}  // namespace
}  // namespace reprise
