// Sessions over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "tests/integration/sessions_fixture.h"

namespace reprise {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST_F(SessionsTest, SecondTurnContinuesWithoutReadingTheFirstAgain) {
  const Completion first = Turn("s", "abc d", 10);
  ASSERT_TRUE(first.status.ok()) << first.status.error_message();
  EXPECT_EQ(first.started.session_id(), "s");
  EXPECT_EQ(first.started.revision(), 0u);
  EXPECT_EQ(first.started.resumed_from(), v1::RESUME_SOURCE_NONE);
  EXPECT_EQ(first.finished.at(0).revision(), 1u);

  const Completion second = Turn("s", "cc", 10);
  ASSERT_TRUE(second.status.ok());
  EXPECT_EQ(second.started.revision(), 1u);
  EXPECT_EQ(second.started.prompt_tokens(), 1u);
  EXPECT_EQ(second.started.resumed_from(), v1::RESUME_SOURCE_SLOT);
  // All tokens but the pending one: 3 + 10 - 1.
  EXPECT_EQ(second.started.cached_tokens(), 12u);
  EXPECT_EQ(second.finished.at(0).revision(), 2u);
  EXPECT_EQ(Get("s").tokens(), 3u + 10 + 1 + 10);
}

TEST_F(SessionsTest, SessionSaysWhatOneLongRequestSays) {
  v1::GenerateRequest greedy = SessionRequest("s", "abc d", 10);
  greedy.mutable_sampling()->set_temperature(0);
  const Completion first = Generate(server_.inference(), greedy);
  greedy.set_text("");
  const Completion second = Generate(server_.inference(), greedy);
  v1::GenerateRequest whole = TextRequest("abc d", 20);
  whole.mutable_sampling()->set_temperature(0);
  const Completion once = Generate(server_.inference(), whole);
  std::vector<int32_t> both = first.token_ids;
  both.insert(both.end(), second.token_ids.begin(), second.token_ids.end());
  EXPECT_EQ(both, once.token_ids);
}

TEST_F(SessionsTest, SuspendedSessionContinuesBitForBit) {
  Turn("kept", "abc d", 20);
  Turn("put-away", "abc d", 20);
  EXPECT_EQ(Suspend("put-away").place(), v1::SESSION_PLACE_MEMORY);
  v1::GenerateRequest next = SessionRequest("kept", "cc", 50);
  next.mutable_output()->set_logprobs(3);
  const Completion kept = Generate(server_.inference(), next);
  next.set_session_id("put-away");
  const Completion resumed = Generate(server_.inference(), next);
  EXPECT_EQ(kept.started.resumed_from(), v1::RESUME_SOURCE_SLOT);
  EXPECT_EQ(resumed.started.resumed_from(), v1::RESUME_SOURCE_MEMORY);
  EXPECT_FALSE(resumed.started.resume_reason().empty());
  EXPECT_EQ(resumed.started.cached_tokens(), kept.started.cached_tokens());
  EXPECT_EQ(resumed.token_ids, kept.token_ids);
  const auto logprobs = [](const Completion& c) {
    std::string bytes;
    for (const v1::GenerateResponse& message : c.messages) {
      for (const v1::TokenLogprobs& token : message.delta().logprobs()) {
        bytes += token.SerializeAsString();
      }
    }
    return bytes;
  };
  EXPECT_EQ(logprobs(resumed), logprobs(kept));
}

TEST_F(SessionsTest, ResumeWarmsTheSessionUp) {
  Turn("s", "abc", 5);
  Suspend("s");
  const auto resumed = Call<v1::ResumeSessionResponse>(
      &Stub::Resume, Named<v1::ResumeSessionRequest>("s"));
  EXPECT_EQ(resumed.resumed_from(), v1::RESUME_SOURCE_MEMORY);
  EXPECT_EQ(resumed.session().place(), v1::SESSION_PLACE_RESIDENT);
  EXPECT_EQ(Turn("s", "cc", 5).started.resumed_from(), v1::RESUME_SOURCE_SLOT);
}

TEST_F(SessionsTest, UnknownSessionIsNotFoundEverywhere) {
  v1::GenerateRequest request = SessionRequest("nobody", "abc", 5);
  request.set_create_session(false);
  const Completion c = Generate(server_.inference(), request);
  EXPECT_EQ(c.status.error_code(), kNotFound);
  Get("nobody", kNotFound);
  Suspend("nobody", kNotFound);
  Call<v1::ResumeSessionResponse>(
      &Stub::Resume, Named<v1::ResumeSessionRequest>("nobody"), kNotFound);
  Call<v1::Session>(&Stub::Fork, Named<v1::ForkSessionRequest>("nobody"),
                    kNotFound);
  Call<v1::DeleteSessionResponse>(
      &Stub::Delete, Named<v1::DeleteSessionRequest>("nobody"), kNotFound);
  Call<v1::Session>(&Stub::Touch, Named<v1::TouchSessionRequest>("nobody"),
                    kNotFound);
  v1::AppendRequest append;
  append.set_session_id("nobody");
  append.set_text("abc");
  Call<v1::AppendResponse>(&Stub::Append, append, kNotFound);
}

TEST_F(SessionsTest, BadIdIsInvalidEverywhere) {
  for (const std::string& id :
       {std::string(), std::string("../x"), std::string(".x"),
        std::string("a/b"), std::string("a\0b", 3), std::string(129, 'x'),
        std::string(60 << 10, 'x')}) {
    Get(id, kInvalidArgument);
    EXPECT_THAT(status_.error_message(), HasSubstr("id"));
    Suspend(id, kInvalidArgument);
    Call<v1::Session>(&Stub::Create, Named<v1::CreateSessionRequest>(id),
                      kInvalidArgument);
    Call<v1::DeleteSessionResponse>(
        &Stub::Delete, Named<v1::DeleteSessionRequest>(id), kInvalidArgument);
    v1::ForkSessionRequest fork = Named<v1::ForkSessionRequest>("s");
    fork.set_new_id(id);
    Call<v1::Session>(&Stub::Fork, fork, kInvalidArgument);
    EXPECT_THAT(status_.error_message(), HasSubstr("new_id"));
  }
}

TEST_F(SessionsTest, SecondTurnAtOnceIsAborted) {
  Turn("s", "abc", 5);
  server_.gate().Limit(3);
  grpc::ClientContext context;
  auto reader =
      server_.inference().Generate(&context, SessionRequest("s", "cc", 50));
  v1::GenerateResponse message;
  ASSERT_TRUE(reader->Read(&message));  // it has the session
  server_.gate().AwaitBlocked();
  EXPECT_EQ(Get("s").place(), v1::SESSION_PLACE_ACTIVE);
  Suspend("s", kAborted);
  Call<v1::DeleteSessionResponse>(
      &Stub::Delete, Named<v1::DeleteSessionRequest>("s"), kAborted);
  grpc::ClientContext second_context;
  auto second = server_.inference().Generate(&second_context,
                                             SessionRequest("s", "d", 5));
  server_.gate().Open();
  // The first may be over when the second is looked at, so close the gate's
  // race by reading the second's end only.
  v1::GenerateResponse other;
  while (second->Read(&other)) {
  }
  const grpc::Status status = second->Finish();
  EXPECT_TRUE(status.ok() || status.error_code() == kAborted);
  while (reader->Read(&message)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
}

TEST_F(SessionsTest, TurnAtAnotherRevisionIsAborted) {
  Turn("s", "abc", 5);
  v1::GenerateRequest request = SessionRequest("s", "cc", 5);
  request.set_expected_revision(7);
  EXPECT_EQ(Generate(server_.inference(), request).status.error_code(),
            kAborted);
  request.set_expected_revision(1);
  EXPECT_TRUE(Generate(server_.inference(), request).status.ok());
}

TEST_F(SessionsTest, TurnThatIsNeverCommittedLeavesNoTrace) {
  Turn("s", "abc", 5);
  v1::GenerateRequest request = SessionRequest("s", "cc", 20);
  request.set_commit(v1::COMMIT_POLICY_NEVER);
  const Completion tried = Generate(server_.inference(), request);
  EXPECT_FALSE(tried.finished.at(0).has_revision());
  EXPECT_EQ(Get("s").revision(), 1u);
  EXPECT_EQ(Generate(server_.inference(), request).token_ids, tried.token_ids);
}

TEST_F(SessionsTest, CancelledTurnKeepsOrRollsBackAsAsked) {
  for (const bool keep : {true, false}) {
    const std::string id = keep ? "kept" : "rolled-back";
    Turn(id, "abc", 5);
    server_.gate().Limit(5);
    v1::GenerateRequest request = SessionRequest(id, "cc", 2000);
    request.set_on_cancel(keep ? v1::ON_CANCEL_KEEP : v1::ON_CANCEL_ROLL_BACK);
    grpc::ClientContext context;
    auto reader = server_.inference().Generate(&context, request);
    v1::GenerateResponse message;
    ASSERT_TRUE(reader->Read(&message));
    ASSERT_TRUE(reader->Read(&message));
    server_.gate().AwaitBlocked();
    context.TryCancel();
    EXPECT_TRUE(Eventually([&] {
      server_.gate().Limit(1);
      return server_.scheduler().idle();
    }));
    server_.gate().Open();
    (void)reader->Finish();
    EXPECT_EQ(Get(id).revision(), keep ? 2u : 1u);
    EXPECT_TRUE(Turn(id, "d", 5).status.ok());
  }
}

// As in GenerateTest: "<" is no text.
TEST_F(SessionsTest, AppendReadsNamesOfSpecialTokensAsTextUnlessAllowed) {
  v1::AppendRequest request;
  request.set_session_id("special");
  request.set_create_session(true);
  request.set_text("abc<eos>");
  Call<v1::AppendResponse>(&Stub::Append, request, kInvalidArgument);
  request.set_allow_special_tokens(true);
  const auto response = Call<v1::AppendResponse>(&Stub::Append, request);
  EXPECT_EQ(response.prompt_tokens(), 2u);
}

TEST_F(SessionsTest, AppendReadsAndCommits) {
  v1::AppendRequest request;
  request.set_session_id("s");
  request.set_text("abc d");
  request.set_create_session(true);
  const auto first = Call<v1::AppendResponse>(&Stub::Append, request);
  EXPECT_EQ(first.prompt_tokens(), 3u);
  EXPECT_EQ(first.cached_tokens(), 0u);
  EXPECT_EQ(first.session().revision(), 1u);
  EXPECT_EQ(first.session().tokens(), 3u);
  // Appended and then asked, it says what one prompt says.
  const Completion asked = Turn("s", "cc", 20);
  EXPECT_EQ(
      asked.token_ids,
      Generate(server_.inference(), TextRequest("abc dcc", 20)).token_ids);
  request.set_text("");
  Call<v1::AppendResponse>(&Stub::Append, request, kInvalidArgument);
}

TEST_F(SessionsTest, ForkContinuesAsItsOriginal) {
  Turn("s", "abc", 20);
  v1::ForkSessionRequest request = Named<v1::ForkSessionRequest>("s");
  request.set_new_id("t");
  const auto fork = Call<v1::Session>(&Stub::Fork, request);
  EXPECT_EQ(fork.id(), "t");
  EXPECT_EQ(fork.forked_from(), "s");
  Call<v1::Session>(&Stub::Fork, request, grpc::StatusCode::ALREADY_EXISTS);
  EXPECT_EQ(Turn("t", "cc", 30).token_ids, Turn("s", "cc", 30).token_ids);
  request.clear_new_id();
  EXPECT_THAT(Call<v1::Session>(&Stub::Fork, request).id(),
              MatchesRegex("[0-9a-f]+"));
}

TEST_F(SessionsTest, CreatedSessionIsEmptyAndItsIdTaken) {
  const auto drawn =
      Call<v1::Session>(&Stub::Create, v1::CreateSessionRequest());
  EXPECT_EQ(drawn.id().size(), 32u);
  EXPECT_EQ(drawn.revision(), 0u);
  EXPECT_FALSE(drawn.has_expires_unix_ms());
  Call<v1::Session>(&Stub::Create, Named<v1::CreateSessionRequest>(drawn.id()),
                    grpc::StatusCode::ALREADY_EXISTS);
  v1::GenerateRequest request = SessionRequest(drawn.id(), "", 5);
  const Completion empty = Generate(server_.inference(), request);
  EXPECT_EQ(empty.status.error_code(),
            kInvalidArgument);  // nothing to go on from
  EXPECT_TRUE(Turn(drawn.id(), "abc", 5).status.ok());
}

TEST_F(SessionsTest, TimeToLiveIsCheckedAndShown) {
  v1::CreateSessionRequest request = Named<v1::CreateSessionRequest>("s");
  request.set_ttl_ms(0);
  Call<v1::Session>(&Stub::Create, request, kInvalidArgument);
  EXPECT_THAT(status_.error_message(), HasSubstr("ttl_ms"));
  request.set_ttl_ms(~uint64_t{0});
  Call<v1::Session>(&Stub::Create, request, kInvalidArgument);
  request.set_ttl_ms(60'000);
  const auto made = Call<v1::Session>(&Stub::Create, request);
  EXPECT_EQ(made.expires_unix_ms(), made.updated_unix_ms() + 60'000);
  v1::TouchSessionRequest touch = Named<v1::TouchSessionRequest>("s");
  EXPECT_TRUE(Call<v1::Session>(&Stub::Touch, touch).has_expires_unix_ms());
  touch.set_ttl_ms(0);
  EXPECT_FALSE(Call<v1::Session>(&Stub::Touch, touch).has_expires_unix_ms());
}

TEST_F(SessionsTest, CommittedAppendSaysSoWhateverBecameOfTheSession) {
  // The executor is left with one thread, which takes its tasks in order: the
  // commit, a deletion, the look-up for the answer.
  std::promise<void> release;
  server_.executor().Run(
      [held = release.get_future().share()] { held.wait(); });
  server_.store().SetHook([this](StoreCall call) {
    if (call != StoreCall::kPut) return;
    server_.executor().Run([this] {
      EXPECT_TRUE(server_.manager().Delete({ServerOptions().tenant, "s"}).ok());
    });
  });
  v1::AppendRequest request;
  request.set_session_id("s");
  request.set_create_session(true);
  request.set_text("abc d");
  const auto response = Call<v1::AppendResponse>(&Stub::Append, request);
  EXPECT_EQ(response.session().id(), "s");
  EXPECT_EQ(response.session().revision(), 1u);
  EXPECT_EQ(response.session().tokens(), 0u);  // not known any more
  EXPECT_EQ(response.prompt_tokens(), 3u);
  Get("s", kNotFound);
  release.set_value();
}

TEST_F(SessionsTest, DeletedSessionIsGone) {
  Turn("s", "abc", 5);
  Call<v1::DeleteSessionResponse>(&Stub::Delete,
                                  Named<v1::DeleteSessionRequest>("s"));
  Get("s", kNotFound);
  EXPECT_EQ(Turn("s", "abc", 5).finished.at(0).revision(), 1u);  // a new one
}

TEST_F(SessionsTest, ListComesInPages) {
  for (const char* id : {"c", "a", "e", "b", "d"}) {
    Call<v1::Session>(&Stub::Create, Named<v1::CreateSessionRequest>(id));
  }
  v1::ListSessionsRequest request;
  request.set_page_size(2);
  std::vector<std::string> ids;
  int pages = 0;
  do {
    const auto page = Call<v1::ListSessionsResponse>(&Stub::List, request);
    for (const v1::Session& session : page.sessions()) {
      ids.push_back(session.id());
    }
    request.set_page_token(page.next_page_token());
    ++pages;
  } while (!request.page_token().empty());
  EXPECT_THAT(ids, ElementsAre("a", "b", "c", "d", "e"));
  EXPECT_EQ(pages, 3);
  for (const uint32_t size : {0u, 1001u, 0xFFFFFFFFu}) {
    request.set_page_size(size);
    Call<v1::ListSessionsResponse>(&Stub::List, request, kInvalidArgument);
    EXPECT_THAT(status_.error_message(), HasSubstr("page_size"));
  }
  request.set_page_size(2);
  request.set_page_token("../x");
  Call<v1::ListSessionsResponse>(&Stub::List, request, kInvalidArgument);
}

TEST_F(SessionsTest, CallsNotBuiltYetSaySo) {
  constexpr auto kUnimplemented = grpc::StatusCode::UNIMPLEMENTED;
  auto admin = v1::Admin::NewStub(server_.channel());
  grpc::ClientContext load_context, drain_context;
  v1::GetLoadResponse load;
  v1::DrainResponse drain;
  EXPECT_EQ(admin->GetLoad(&load_context, {}, &load).error_code(),
            kUnimplemented);
  EXPECT_EQ(admin->Drain(&drain_context, {}, &drain).error_code(),
            kUnimplemented);
}

}  // namespace
}  // namespace reprise
