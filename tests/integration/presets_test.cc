// Presets, over real gRPC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/sessions_fixture.h"

namespace reprise {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr auto kAlreadyExists = grpc::StatusCode::ALREADY_EXISTS;

class PresetsTest : public SessionsTest {
 protected:
  v1::Preset Save(const std::string& name, const std::string& session,
                  grpc::StatusCode code = grpc::StatusCode::OK) {
    v1::SavePresetRequest request;
    request.set_name(name);
    request.set_session_id(session);
    return Call<v1::Preset>(&Stub::SavePreset, request, code);
  }
  void Delete(const std::string& name,
              grpc::StatusCode code = grpc::StatusCode::OK) {
    v1::DeletePresetRequest request;
    request.set_name(name);
    Call<v1::DeletePresetResponse>(&Stub::DeletePreset, request, code);
  }
  v1::Session CreateFrom(const std::string& preset, const std::string& id,
                         grpc::StatusCode code = grpc::StatusCode::OK) {
    v1::CreateSessionRequest request = Named<v1::CreateSessionRequest>(id);
    request.set_preset(preset);
    request.set_ttl_ms(60'000);
    return Call<v1::Session>(&Stub::Create, request, code);
  }
  Completion FromPreset(const std::string& preset, const std::string& text) {
    v1::GenerateRequest request = TextRequest(text, 20);
    request.mutable_output()->set_logprobs(3);
    request.set_preset(preset);
    return Generate(server_.inference(), request);
  }
  // The system prompt that presets are made of.
  void MakeSession(const std::string& id) {
    v1::AppendRequest request;
    request.set_session_id(id);
    request.set_create_session(true);
    request.set_text("abc d");
    Call<v1::AppendResponse>(&Stub::Append, request);
  }
};

TEST_F(PresetsTest, AStatelessRequestGoesOnFromItBitForBit) {
  MakeSession("s");
  const v1::Preset preset = Save("helper", "s");
  EXPECT_EQ(preset.name(), "helper");
  EXPECT_EQ(preset.tokens(), 3u);
  EXPECT_GT(preset.snapshot_bytes(), 0u);
  EXPECT_EQ(preset.from_session(), "s");
  const Completion stateless = FromPreset("helper", "cc");
  ASSERT_TRUE(stateless.status.ok()) << stateless.status.error_message();
  EXPECT_EQ(stateless.started.resumed_from(), v1::RESUME_SOURCE_STORE);
  EXPECT_EQ(stateless.started.resume_reason(), "preset helper");
  EXPECT_EQ(stateless.started.cached_tokens(), 2u);
  EXPECT_EQ(stateless.started.prompt_tokens(), 1u);
  EXPECT_FALSE(stateless.finished.at(0).has_revision());

  v1::GenerateRequest request = SessionRequest("s", "cc", 20);
  request.mutable_output()->set_logprobs(3);
  const Completion session = Generate(server_.inference(), request);
  EXPECT_EQ(stateless.token_ids, session.token_ids);
  EXPECT_EQ(stateless.logprobs, session.logprobs);
  // Neither that nor the end of the session changes the preset.
  Call<v1::DeleteSessionResponse>(&Stub::Delete,
                                  Named<v1::DeleteSessionRequest>("s"));
  EXPECT_EQ(FromPreset("helper", "cc").token_ids, session.token_ids);
  EXPECT_EQ(FromPreset("helper", "").started.prompt_tokens(), 0u);
}

TEST_F(PresetsTest, ASessionMayBeginWithIt) {
  MakeSession("s");
  Save("helper", "s");
  const v1::Session made = CreateFrom("helper", "t");
  EXPECT_EQ(made.tokens(), 3u);
  EXPECT_EQ(made.forked_from(), "helper");
  EXPECT_EQ(made.expires_unix_ms(), made.updated_unix_ms() + 60'000);
  EXPECT_EQ(Turn("t", "cc", 20).token_ids, Turn("s", "cc", 20).token_ids);
  CreateFrom("helper", "t", kAlreadyExists);
  CreateFrom("nothing", "u", kNotFound);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("preset: there is no nothing"));
  Get("u", kNotFound);
}

TEST_F(PresetsTest, SeveralCompletionsBeginWithIt) {
  MakeSession("s");
  Save("helper", "s");
  v1::GenerateRequest request = TextRequest("cc", 10);
  request.set_preset("helper");
  request.set_n(3);
  const Completion several = Generate(server_.inference(), request);
  ASSERT_TRUE(several.status.ok()) << several.status.error_message();
  EXPECT_EQ(several.finished.size(), 3u);
  std::vector<int32_t> alone = FromPreset("helper", "cc").token_ids;
  alone.resize(10);
  EXPECT_EQ(several.token_ids, alone);
}

TEST_F(PresetsTest, NamesAreTheirOwnAndListedInPages) {
  MakeSession("s");
  for (const char* name : {"c", "a", "s"}) Save(name, "s");
  Save("a", "s", kAlreadyExists);
  EXPECT_THAT(status_.error_message(),
              HasSubstr("name: there is a preset a already"));
  v1::ListPresetsRequest list;
  list.set_page_size(2);
  auto page = Call<v1::ListPresetsResponse>(&Stub::ListPresets, list);
  ASSERT_EQ(page.presets_size(), 2);
  EXPECT_EQ(page.presets(0).name(), "a");
  EXPECT_EQ(page.presets(1).name(), "c");
  list.set_page_token(page.next_page_token());
  page = Call<v1::ListPresetsResponse>(&Stub::ListPresets, list);
  ASSERT_EQ(page.presets_size(), 1);
  EXPECT_EQ(page.presets(0).name(), "s");
  EXPECT_EQ(page.next_page_token(), "");
  // They are no sessions.
  const auto sessions =
      Call<v1::ListSessionsResponse>(&Stub::List, v1::ListSessionsRequest());
  EXPECT_EQ(sessions.sessions_size(), 1);
  Get("a", kNotFound);
  EXPECT_EQ(Turn("c", "abc", 5).started.resumed_from(), v1::RESUME_SOURCE_NONE);
}

TEST_F(PresetsTest, ADeletedOneIsGoneAndWhatBeganWithItGoesOn) {
  MakeSession("s");
  Save("helper", "s");
  CreateFrom("helper", "t");
  Delete("helper");
  Delete("helper", kNotFound);
  EXPECT_EQ(FromPreset("helper", "cc").status.error_code(), kNotFound);
  EXPECT_TRUE(Turn("t", "cc", 5).status.ok());
  Save("helper", "t");  // the name is free
}

TEST_F(PresetsTest, WhatIsWrongIsNamed) {
  MakeSession("s");
  const auto about_presets =
      AllOf(HasSubstr("a preset's name is"), Not(HasSubstr("session")));
  Save("../x", "s", kInvalidArgument);
  EXPECT_THAT(status_.error_message(), StartsWith("name: "));
  EXPECT_THAT(status_.error_message(), about_presets);
  Save("x", "../s", kInvalidArgument);
  EXPECT_THAT(status_.error_message(), HasSubstr("session_id: "));
  Save("x", "nobody", kNotFound);
  Delete("a/b", kInvalidArgument);
  EXPECT_THAT(status_.error_message(), about_presets);
  CreateFrom("a/b", "t", kInvalidArgument);
  EXPECT_THAT(status_.error_message(), StartsWith("preset: "));
  EXPECT_THAT(status_.error_message(), about_presets);
  const grpc::Status bad = FromPreset("a/b", "cc").status;
  EXPECT_EQ(bad.error_code(), kInvalidArgument);
  EXPECT_THAT(bad.error_message(), about_presets);
  const Completion missing = FromPreset("nothing", "cc");
  EXPECT_EQ(missing.status.error_code(), kNotFound);
  EXPECT_THAT(missing.status.error_message(),
              HasSubstr("preset: there is no nothing"));
  v1::SavePresetRequest save;
  save.set_name("x");
  save.set_session_id("s");
  save.set_expected_revision(9);
  Call<v1::Preset>(&Stub::SavePreset, save, kAborted);
  v1::ListPresetsRequest list;
  list.set_page_size(1001);
  Call<v1::ListPresetsResponse>(&Stub::ListPresets, list, kInvalidArgument);
  list.set_page_size(1);
  list.set_page_token("../x");
  Call<v1::ListPresetsResponse>(&Stub::ListPresets, list, kInvalidArgument);
  EXPECT_THAT(status_.error_message(), StartsWith("page_token: "));
  EXPECT_THAT(status_.error_message(), Not(HasSubstr("session")));
}

}  // namespace
}  // namespace reprise
