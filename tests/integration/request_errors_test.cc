// Every field of a request that can be wrong, over real gRPC: the code, the
// field's path and the range.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "tests/support/raw_rpc.h"
#include "tests/support/test_server.h"

namespace reprise {
namespace {

using ::testing::HasSubstr;

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
  std::function<void(v1::GenerateRequest&)> change;
  grpc::StatusCode code;
  const char* field;
  const char* detail = "";
};

constexpr auto kInvalid = grpc::StatusCode::INVALID_ARGUMENT;
constexpr auto kUnbuilt = grpc::StatusCode::UNIMPLEMENTED;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename Set>
Case Sampling(const char* name, Set set, const char* field) {
  return {name, [set](v1::GenerateRequest& r) { set(*r.mutable_sampling()); },
          kInvalid, field};
}

template <typename Set>
Case Stopping(const char* name, Set set, const char* field,
              const char* detail = "") {
  return {name, [set](v1::GenerateRequest& r) { set(*r.mutable_stopping()); },
          kInvalid, field, detail};
}

using S = v1::SamplingOptions;
using T = v1::StoppingOptions;
using R = v1::GenerateRequest;

const Case kCases[] = {
    Sampling(
        "TemperatureHigh", [](S& s) { s.set_temperature(2.5f); },
        "sampling.temperature"),
    Sampling(
        "TemperatureNegative", [](S& s) { s.set_temperature(-1); },
        "sampling.temperature"),
    Sampling(
        "TemperatureNan", [](S& s) { s.set_temperature(kNan); },
        "sampling.temperature"),
    Sampling(
        "TemperatureInfinite", [](S& s) { s.set_temperature(kInf); },
        "sampling.temperature"),
    Sampling(
        "TopKZero", [](S& s) { s.set_top_k(0); }, "sampling.top_k"),
    Sampling(
        "TopKPastVocabulary", [](S& s) { s.set_top_k(33); }, "sampling.top_k"),
    Sampling(
        "TopKHuge", [](S& s) { s.set_top_k(0xFFFFFFFF); }, "sampling.top_k"),
    Sampling(
        "TopPZero", [](S& s) { s.set_top_p(0); }, "sampling.top_p"),
    Sampling(
        "TopPHigh", [](S& s) { s.set_top_p(1.01f); }, "sampling.top_p"),
    Sampling(
        "TopPNan", [](S& s) { s.set_top_p(kNan); }, "sampling.top_p"),
    Sampling(
        "MinPOne", [](S& s) { s.set_min_p(1); }, "sampling.min_p"),
    Sampling(
        "MinPNegative", [](S& s) { s.set_min_p(-0.1f); }, "sampling.min_p"),
    Sampling(
        "TypicalPZero", [](S& s) { s.set_typical_p(0); }, "sampling.typical_p"),
    Sampling(
        "RepetitionPenaltyZero", [](S& s) { s.set_repetition_penalty(0); },
        "sampling.repetition_penalty"),
    Sampling(
        "RepetitionPenaltyHigh", [](S& s) { s.set_repetition_penalty(11); },
        "sampling.repetition_penalty"),
    Sampling(
        "PresencePenaltyHigh", [](S& s) { s.set_presence_penalty(3); },
        "sampling.presence_penalty"),
    Sampling(
        "FrequencyPenaltyLow", [](S& s) { s.set_frequency_penalty(-2.1f); },
        "sampling.frequency_penalty"),
    Sampling(
        "PenaltyDecayZero", [](S& s) { s.set_penalty_decay(0); },
        "sampling.penalty_decay"),
    Sampling(
        "PenaltyLastNHigh", [](S& s) { s.set_penalty_last_n(65537); },
        "sampling.penalty_last_n"),
    Sampling(
        "PenaltyLastNHuge", [](S& s) { s.set_penalty_last_n(0xFFFFFFFF); },
        "sampling.penalty_last_n"),
    Sampling(
        "LogitBiasHigh", [](S& s) { (*s.mutable_logit_bias())[3] = 101; },
        "sampling.logit_bias"),
    Sampling(
        "LogitBiasPastVocabulary",
        [](S& s) { (*s.mutable_logit_bias())[32] = 1; }, "sampling.logit_bias"),
    Sampling(
        "LogitBiasNegativeId", [](S& s) { (*s.mutable_logit_bias())[-1] = 1; },
        "sampling.logit_bias"),
    Stopping(
        "MaxNewTokensZero", [](T& t) { t.set_max_new_tokens(0); },
        "stopping.max_new_tokens", "[1, 2000]"),
    Stopping(
        "MaxNewTokensHigh", [](T& t) { t.set_max_new_tokens(2001); },
        "stopping.max_new_tokens", "2001"),
    Stopping(
        "MinNewTokensHigh", [](T& t) { t.set_min_new_tokens(11); },
        "stopping.min_new_tokens", "11"),
    Stopping(
        "StopEmpty", [](T& t) { t.add_stop(""); }, "stopping.stop[0]"),
    Stopping(
        "StopLong",
        [](T& t) {
          t.add_stop("a");
          t.add_stop(std::string(257, 'a'));
        },
        "stopping.stop[1]", "257"),
    Stopping(
        "StopMany",
        [](T& t) {
          for (int i = 0; i < 17; ++i) t.add_stop("a");
        },
        "stopping.stop", "17"),
    Stopping(
        "StopTokenPastVocabulary", [](T& t) { t.add_stop_token_ids(32); },
        "stopping.stop_token_ids[0]", "32"),
    Stopping(
        "StopTokensMany",
        [](T& t) {
          for (int i = 0; i < 65; ++i) t.add_stop_token_ids(1);
        },
        "stopping.stop_token_ids", "65"),
    Stopping(
        "TimeLimitZero", [](T& t) { t.set_time_limit_ms(0); },
        "stopping.time_limit_ms"),
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
    {"Messages", [](R& r) { r.mutable_messages(); }, kUnbuilt, "messages"},
    {"Preset", [](R& r) { r.set_preset("p"); }, kUnbuilt, "preset"},
    {"Snapshot", [](R& r) { r.set_snapshot("s"); }, kUnbuilt, "snapshot"},
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
  EXPECT_TRUE(model.exact());
  EXPECT_EQ(model.limits().max_prompt_tokens(), 2000u);
  EXPECT_EQ(model.limits().resident_sessions(), 8u);
  EXPECT_FALSE(model.server_version().empty());
}

}  // namespace
}  // namespace reprise
