// Every field of a request that can be wrong, over real gRPC: the code, the
// field's path and the range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/raw_rpc.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// One server for all cases: refusing a request must leave it whole.
class RequestErrorsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = new TestServer(); }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }
  static TestServer& server() { return *server_; }

 private:
  static inline TestServer* server_ = nullptr;
};

struct Case {
  const char* name;
  void (*change)(v1::GenerateRequest&);
  grpc::StatusCode code;
  const char* field;
  const char* detail = "";
};

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

using S = v1::SamplingOptions;
using T = v1::StoppingOptions;
using R = v1::GenerateRequest;

constexpr Case kCases[] = {
    {"TemperatureHigh",
     [](R& r) { r.mutable_sampling()->set_temperature(2.5f); }, kInvalid,
     "sampling.temperature"},
    {"TemperatureNegative",
     [](R& r) { r.mutable_sampling()->set_temperature(-1); }, kInvalid,
     "sampling.temperature"},
    {"TemperatureNan",
     [](R& r) { r.mutable_sampling()->set_temperature(kNan); }, kInvalid,
     "sampling.temperature"},
    {"TemperatureInfinite",
     [](R& r) { r.mutable_sampling()->set_temperature(kInf); }, kInvalid,
     "sampling.temperature"},
    {"TopKZero", [](R& r) { r.mutable_sampling()->set_top_k(0); }, kInvalid,
     "sampling.top_k", "0 is not in [1, 32]; leave it unset"},
    {"TopKPastVocabulary", [](R& r) { r.mutable_sampling()->set_top_k(33); },
     kInvalid, "sampling.top_k", "33 is not in [1, 32]"},
    {"TopKHuge", [](R& r) { r.mutable_sampling()->set_top_k(0xFFFFFFFF); },
     kInvalid, "sampling.top_k", "4294967295 is not in [1, 32]"},
    {"TopPZero", [](R& r) { r.mutable_sampling()->set_top_p(0); }, kInvalid,
     "sampling.top_p"},
    {"TopPHigh", [](R& r) { r.mutable_sampling()->set_top_p(1.01f); }, kInvalid,
     "sampling.top_p"},
    {"TopPNan", [](R& r) { r.mutable_sampling()->set_top_p(kNan); }, kInvalid,
     "sampling.top_p"},
    {"MinPOne", [](R& r) { r.mutable_sampling()->set_min_p(1); }, kInvalid,
     "sampling.min_p"},
    {"MinPNegative", [](R& r) { r.mutable_sampling()->set_min_p(-0.1f); },
     kInvalid, "sampling.min_p"},
    {"TypicalPZero", [](R& r) { r.mutable_sampling()->set_typical_p(0); },
     kInvalid, "sampling.typical_p"},
    {"RepetitionPenaltyZero",
     [](R& r) { r.mutable_sampling()->set_repetition_penalty(0); }, kInvalid,
     "sampling.repetition_penalty"},
    {"RepetitionPenaltyHigh",
     [](R& r) { r.mutable_sampling()->set_repetition_penalty(11); }, kInvalid,
     "sampling.repetition_penalty"},
    {"PresencePenaltyHigh",
     [](R& r) { r.mutable_sampling()->set_presence_penalty(3); }, kInvalid,
     "sampling.presence_penalty"},
    {"FrequencyPenaltyLow",
     [](R& r) { r.mutable_sampling()->set_frequency_penalty(-2.1f); }, kInvalid,
     "sampling.frequency_penalty"},
    {"PenaltyDecayZero",
     [](R& r) { r.mutable_sampling()->set_penalty_decay(0); }, kInvalid,
     "sampling.penalty_decay"},
    {"PenaltyLastNHigh",
     [](R& r) { r.mutable_sampling()->set_penalty_last_n(65537); }, kInvalid,
     "sampling.penalty_last_n"},
    {"PenaltyLastNHuge",
     [](R& r) { r.mutable_sampling()->set_penalty_last_n(0xFFFFFFFF); },
     kInvalid, "sampling.penalty_last_n"},
    {"LogitBiasHigh",
     [](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[3] = 101; },
     kInvalid, "sampling.logit_bias"},
    {"LogitBiasPastVocabulary",
     [](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[32] = 1; },
     kInvalid, "sampling.logit_bias"},
    {"LogitBiasNegativeId",
     [](R& r) { (*r.mutable_sampling()->mutable_logit_bias())[-1] = 1; },
     kInvalid, "sampling.logit_bias"},
    {"MaxNewTokensZero",
     [](R& r) { r.mutable_stopping()->set_max_new_tokens(0); }, kInvalid,
     "stopping.max_new_tokens", "[1, 2000]"},
    {"MaxNewTokensHigh",
     [](R& r) { r.mutable_stopping()->set_max_new_tokens(2001); }, kInvalid,
     "stopping.max_new_tokens", "2001"},
    {"MinNewTokensHigh",
     [](R& r) { r.mutable_stopping()->set_min_new_tokens(11); }, kInvalid,
     "stopping.min_new_tokens", "11"},
    {"StopEmpty", [](R& r) { r.mutable_stopping()->add_stop(""); }, kInvalid,
     "stopping.stop[0]"},
    {"StopLong",
     [](R& r) {
       T& t = *r.mutable_stopping();
       t.add_stop("a");
       t.add_stop(std::string(257, 'a'));
     },
     kInvalid, "stopping.stop[1]", "257"},
    {"StopMany",
     [](R& r) {
       T& t = *r.mutable_stopping();
       for (int i = 0; i < 17; ++i) t.add_stop("a");
     },
     kInvalid, "stopping.stop", "17"},
    {"StopTokenPastVocabulary",
     [](R& r) { r.mutable_stopping()->add_stop_token_ids(32); }, kInvalid,
     "stopping.stop_token_ids[0]", "32"},
    {"StopTokensMany",
     [](R& r) {
       T& t = *r.mutable_stopping();
       for (int i = 0; i < 65; ++i) t.add_stop_token_ids(1);
     },
     kInvalid, "stopping.stop_token_ids", "65"},
    {"TimeLimitZero", [](R& r) { r.mutable_stopping()->set_time_limit_ms(0); },
     kInvalid, "stopping.time_limit_ms"},
    {"LogprobsHigh", [](R& r) { r.mutable_output()->set_logprobs(21); },
     kInvalid, "output.logprobs", "[0, 20]"},
    {"NoInput", [](R& r) { r.clear_text(); }, kInvalid, "text"},
    {"EmptyText", [](R& r) { r.set_text(""); }, kInvalid, "text"},
    {"EmptyTokenIds", [](R& r) { r.mutable_token_ids(); }, kInvalid,
     "token_ids"},
    {"TokenIdPastVocabulary",
     [](R& r) {
       r.mutable_token_ids()->add_ids(1);
       r.mutable_token_ids()->add_ids(32);
     },
     kInvalid, "token_ids.ids[1]", "[0, 32)"},
    {"TokenIdNegative", [](R& r) { r.mutable_token_ids()->add_ids(-1); },
     kInvalid, "token_ids.ids[0]"},
    {"TextThatHasNoTokens", [](R& r) { r.set_text("XYZ"); }, kInvalid, "text"},
    {"PromptTooLong", [](R& r) { r.set_text(std::string(4002, 'a')); },
     kInvalid, "text", "2000"},
    {"RequestIdLong", [](R& r) { r.set_request_id(std::string(129, 'x')); },
     kInvalid, "request_id", "128"},
    {"SessionIdEmpty", [](R& r) { r.set_session_id(""); }, kInvalid,
     "session_id"},
    {"SessionIdPath", [](R& r) { r.set_session_id("../x"); }, kInvalid,
     "session_id"},
    {"SessionIdHuge",
     [](R& r) { r.set_session_id(std::string(32 << 10, 'x')); }, kInvalid,
     "session_id"},
    {"ExpectedRevisionWithoutSession", [](R& r) { r.set_expected_revision(1); },
     kInvalid, "expected_revision"},
    {"CreateSessionWithoutSession", [](R& r) { r.set_create_session(true); },
     kInvalid, "create_session"},
    {"CommitUnknown",
     [](R& r) { r.set_commit(static_cast<v1::CommitPolicy>(9)); }, kInvalid,
     "commit", "9"},
    {"OnCancelUnknown",
     [](R& r) { r.set_on_cancel(static_cast<v1::OnCancel>(9)); }, kInvalid,
     "on_cancel", "9"},
    {"NZero", [](R& r) { r.set_n(0); }, kInvalid, "n"},
    {"NMoreThanSlots", [](R& r) { r.set_n(9); }, kInvalid, "n", "[1, 8]"},
    {"NOnACommittedTurn",
     [](R& r) {
       r.set_session_id("s");
       r.set_create_session(true);
       r.set_n(2);
     },
     kInvalid, "n", "COMMIT_POLICY_NEVER"},
    {"MessagesWithoutATemplate",
     [](R& r) { r.mutable_messages()->add_messages()->set_role("user"); },
     grpc::StatusCode::FAILED_PRECONDITION, "messages", "no chat template"},
    {"PresetPath", [](R& r) { r.set_preset("../p"); }, kInvalid, "preset"},
    {"Snapshot", [](R& r) { r.set_snapshot("s"); }, kInvalid, "snapshot",
     "do not start with RPSE"},
    {"CutSnapshot", [](R& r) { r.set_snapshot("RPSE"); },
     grpc::StatusCode::DATA_LOSS, "snapshot", "has 4 bytes"},
    {"SealTtl",
     [](R& r) { r.mutable_output()->mutable_snapshot()->set_ttl_ms(0); },
     kInvalid, "output.snapshot.ttl_ms", "0 is not in [1, "},
};

class FieldTest : public RequestErrorsTest,
                  public ::testing::WithParamInterface<Case> {};

TEST_P(FieldTest, IsRefusedByName) {
  v1::GenerateRequest request = TextRequest("abc", 10);
  GetParam().change(request);
  const Completion c = Generate(server().inference(), request);
  EXPECT_EQ(c.status.error_code(), GetParam().code) << c.status.error_message();
  EXPECT_THAT(c.status.error_message(), HasSubstr(GetParam().field));
  EXPECT_THAT(c.status.error_message(), HasSubstr(GetParam().detail));
  EXPECT_TRUE(c.messages.empty());
}

INSTANTIATE_TEST_SUITE_P(All, FieldTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST_F(RequestErrorsTest, ServerStillServesAfterAllOfThem) {
  EXPECT_TRUE(
      Generate(server().inference(), TextRequest("abc", 10)).status.ok());
}

TEST_F(RequestErrorsTest, MessageOverTheLimitIsRefusedByGrpc) {
  v1::GenerateRequest request = TextRequest(std::string(65 << 10, 'a'), 10);
  const Completion c = Generate(server().inference(), request);
  EXPECT_EQ(c.status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(RequestErrorsTest, NulInTheTextIsATokenizersBusiness) {
  v1::GenerateRequest request = TextRequest(std::string("a\0b", 3), 10);
  const Completion c = Generate(server().inference(), request);
  EXPECT_EQ(c.status.error_code(), kInvalid);  // the fake one has no NUL
}

TEST(PromptLogprobsTest, AreLimitedInAll) {
  ServerOptions options = TestServer::SmallOptions();
  options.max_prompt_tokens = 4000;
  TestServer server(options);
  v1::GenerateRequest request = TextRequest("", 1);
  request.mutable_output()->set_prompt_logprobs(true);
  request.mutable_output()->set_logprobs(20);
  // 3120 * 21 = 65,520; one token more would make 65,541.
  for (int i = 0; i < 3120; ++i) request.mutable_token_ids()->add_ids(6);
  const Completion most = Generate(server.inference(), request);
  EXPECT_TRUE(most.status.ok()) << most.status.error_message();
  EXPECT_EQ(most.started.prompt_logprobs_size(), 3119);
  request.mutable_token_ids()->add_ids(6);
  const Completion more = Generate(server.inference(), request);
  EXPECT_EQ(more.status.error_code(), kInvalid);
  EXPECT_THAT(more.status.error_message(),
              AllOf(StartsWith("output.prompt_logprobs: "), HasSubstr("65541"),
                    HasSubstr("65536")));
  // The log-probabilities of the completion alone are no part of it.
  request.mutable_output()->set_prompt_logprobs(false);
  EXPECT_TRUE(Generate(server.inference(), request).status.ok());
}

TEST_F(RequestErrorsTest, TextThatIsNotUtf8IsRefused) {
  // Field 2, two bytes, of which the second can never occur in UTF-8.
  const RawAnswer answer =
      RawCall(server().channel(), "/reprise.v1.Inference/Generate",
              std::string("\x12\x02"
                          "a\xFF",
                          4));
  EXPECT_EQ(answer.status.error_code(), kInvalid)
      << answer.status.error_message();
  EXPECT_THAT(answer.status.error_message(),
              HasSubstr("GenerateRequest.text: is not valid UTF-8"));
}

TEST_F(RequestErrorsTest, BytesThatAreNoMessageAreRefused) {
  const RawAnswer answer =
      RawCall(server().channel(), "/reprise.v1.Inference/Generate",
              std::string("\xFF\xFF\xFF", 3));
  EXPECT_EQ(answer.status.error_code(), kInvalid)
      << answer.status.error_message();
  const RawAnswer unary =
      RawCall(server().channel(), "/reprise.v1.Sessions/Get",
              std::string("\xFF\xFF\xFF", 3));
  EXPECT_EQ(unary.status.error_code(), kInvalid);
}

TEST_F(RequestErrorsTest, DetokenizeNamesTheIdThatIsNone) {
  v1::DetokenizeRequest request;
  request.add_ids(2);
  request.add_ids(32);
  v1::DetokenizeResponse response;
  grpc::ClientContext context;
  const grpc::Status status =
      server().inference().Detokenize(&context, request, &response);
  EXPECT_EQ(status.error_code(), kInvalid);
  EXPECT_THAT(status.error_message(), HasSubstr("ids[1]: 32"));
}

TEST_F(RequestErrorsTest, DetokenizeTakesAsManyIdsAsAPromptMayHave) {
  const int64_t limit = TestServer::SmallOptions().max_prompt_tokens;
  v1::DetokenizeRequest request;
  for (int64_t i = 0; i < limit; ++i) request.add_ids(2);
  for (const bool over : {false, true}) {
    if (over) request.add_ids(2);
    v1::DetokenizeResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        server().inference().Detokenize(&context, request, &response);
    EXPECT_EQ(status.error_code(), over ? kInvalid : grpc::StatusCode::OK);
    if (over) {
      EXPECT_THAT(status.error_message(),
                  HasSubstr("ids: " + std::to_string(limit + 1) + " tokens"));
    }
  }
}

TEST_F(RequestErrorsTest, TokenizeGivesIdsAndPieces) {
  v1::TokenizeRequest request;
  request.set_text("abc <eos>d");
  request.set_allow_special_tokens(true);
  v1::TokenizeResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(server().inference().Tokenize(&context, request, &response).ok());
  EXPECT_THAT(response.ids(), ::testing::ElementsAre(10, 6, 0, 5));
  EXPECT_THAT(response.pieces(),
              ::testing::ElementsAre("abc", " ", "<eos>", "d"));
}

TEST_F(RequestErrorsTest, GetModelShowsTheLimits) {
  v1::Model model;
  grpc::ClientContext context;
  ASSERT_TRUE(server().inference().GetModel(&context, {}, &model).ok());
  EXPECT_EQ(model.name(), "fake");
  EXPECT_EQ(model.vocab_size(), 32u);
  EXPECT_EQ(model.tokenizer(), "fake");
  EXPECT_THAT(model.eos_token_ids(), ::testing::ElementsAre(0));
  EXPECT_EQ(model.limits().max_prompt_tokens(), 2000u);
  EXPECT_EQ(model.limits().resident_sessions(), 8u);
  EXPECT_FALSE(model.server_version().empty());
}

}  // namespace
}  // namespace reprise
