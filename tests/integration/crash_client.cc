#include "tests/integration/crash_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "tests/support/sealed_calls.h"

namespace reprise {
namespace {

constexpr size_t kMostSessions = 5;
constexpr uint32_t kMostTokens = 12;

template <typename Request>
Request NamedSession(const std::string& id) {
  Request request;
  request.set_id(id);
  return request;
}

}  // namespace

void CrashCounts::Add(const CrashCounts& other) {
  turns += other.turns;
  forks += other.forks;
  imports += other.imports;
  rewinds += other.rewinds;
  deletes += other.deletes;
  cancels += other.cancels;
  in_doubt += other.in_doubt;
  committed += other.committed;
  repeated += other.repeated;
  compared += other.compared;
}

std::vector<std::string> CrashClient::Sessions() const {
  std::vector<std::string> ids;
  for (const auto& [id, record] : sessions_) {
    if (record.exists()) ids.push_back(id);
  }
  return ids;
}

void CrashClient::Enter(CrashPhase phase) {
  phase_ = phase;
  ++scene_->reached[static_cast<size_t>(phase)];
}

// ---- Traffic ----------------------------------------------------------------

void CrashClient::MakeTraffic(const ServerProcess& server, CrashScene& scene) {
  scene_ = &scene;
  inference_ = server.NewStub();
  calls_ = server.NewSessionsStub();
  Enter(CrashPhase::kBetweenCalls);
  while (Step()) Enter(CrashPhase::kBetweenCalls);
}

bool CrashClient::Step() {
  const std::vector<std::string> there = Sessions();
  const bool make =
      there.empty() || (there.size() < kMostSessions && random_() % 8 == 0);
  if (make) {
    // Sometimes under the name of one that was deleted.
    const bool again = sessions_made_ > 0 && random_() % 3 == 0;
    const auto k = again ? random_() % static_cast<uint64_t>(sessions_made_)
                         : static_cast<uint64_t>(sessions_made_++);
    const std::string id =
        "c" + std::to_string(number_) + "-" + std::to_string(k);
    CrashRecord& record =
        sessions_.try_emplace(id, CrashRecord(prompt_tokens_)).first->second;
    return Turn(id, record, /*cancel=*/false);
  }
  const std::string id = there[random_() % there.size()];
  CrashRecord& record = sessions_.at(id);
  const uint64_t draw = random_() % 100;
  if (draw < 50) return Turn(id, record, /*cancel=*/false);
  if (draw < 62) return Turn(id, record, /*cancel=*/true);
  if (draw < 68) return Append(id, record);
  if (draw < 76) return there.size() >= kMostSessions || Fork(id, record);
  if (draw < 87) return Rewind(id, record);
  if (draw < 95) return Delete(id, record);
  return Suspend(id);
}

CrashTurn CrashClient::DrawTurn() {
  return {.prompt = random_() % kCrashPrompts.size(),
          .seed = random_() % 1000,
          .tokens = static_cast<uint32_t>(1 + random_() % kMostTokens)};
}

bool CrashClient::Ended(const grpc::Status& status, const char* call) {
  if (status.ok()) return true;
  EXPECT_TRUE(scene_->killed)
      << call << ": " << status.error_code() << " " << status.error_message();
  return false;
}

bool CrashClient::Turn(const std::string& id, CrashRecord& record,
                       bool cancel) {
  const CrashTurn turn = DrawTurn();
  v1::GenerateRequest request = RequestOf(id, turn);
  const bool named = !cancel && random_() % 2 == 0;
  if (named) {
    request.set_request_id("r" + std::to_string(number_) + "-" +
                           std::to_string(requests_made_++));
  }
  record.Begin({.turn = turn, .request_id = request.request_id()});
  Enter(CrashPhase::kSent);
  grpc::ClientContext context;
  Completion completion;
  const uint64_t cancel_after = random_() % turn.tokens;
  auto reader = inference_->Generate(&context, request);
  v1::GenerateResponse message;
  while (reader->Read(&message)) {
    AddMessage(message, completion);
    if (message.has_started()) Enter(CrashPhase::kStarted);
    if (message.has_delta() && phase_ == CrashPhase::kStarted) {
      Enter(CrashPhase::kStreaming);
    }
    if (completion.token_ids.size() == turn.tokens) {
      Enter(CrashPhase::kCommitting);
    }
    if (cancel && completion.token_ids.size() >= cancel_after) {
      context.TryCancel();
    }
  }
  const grpc::Status status = reader->Finish();
  if (cancel && status.error_code() == grpc::CANCELLED) {
    ++counts_.cancels;
    return Look(id, record);
  }
  if (!Ended(status, "Generate")) return false;
  EXPECT_EQ(completion.token_ids.size(), turn.tokens);
  if (completion.finished.size() != 1) {
    ADD_FAILURE() << id << ": no Finished";
    return false;
  }
  EXPECT_EQ(record.Acknowledge(completion.finished[0].revision()), "") << id;
  ++counts_.turns;
  return true;
}

bool CrashClient::Look(const std::string& id, CrashRecord& record) {
  while (true) {
    grpc::ClientContext context;
    v1::Session session;
    const grpc::Status status = calls_->Get(
        &context, NamedSession<v1::GetSessionRequest>(id), &session);
    if (status.error_code() == grpc::NOT_FOUND) {
      EXPECT_EQ(record.Settle(nullptr), "") << id;
      return true;
    }
    if (!Ended(status, "Get")) return false;
    if (session.place() == v1::SESSION_PLACE_ACTIVE) continue;
    EXPECT_EQ(record.Settle(&session), "") << id << ", after a cancel";
    return true;
  }
}

bool CrashClient::Append(const std::string& id, CrashRecord& record) {
  CrashTurn turn = DrawTurn();
  turn.tokens = 0;
  v1::AppendRequest request;
  request.set_session_id(id);
  request.set_text(kCrashPrompts[turn.prompt]);
  record.Begin({.turn = turn});
  Enter(CrashPhase::kOtherCall);
  grpc::ClientContext context;
  v1::AppendResponse response;
  if (!Ended(calls_->Append(&context, request, &response), "Append")) {
    return false;
  }
  EXPECT_EQ(record.Acknowledge(response.session().revision()), "") << id;
  return true;
}

bool CrashClient::Fork(const std::string& id, const CrashRecord& record) {
  // Half of them go through the client's hands.
  std::optional<Exported> sealed;
  if (random_() % 2 == 0) {
    sealed = Export(*calls_, id);
    if (!Ended(sealed->status, "Export")) return false;
  }
  v1::ForkSessionRequest request;
  request.set_id(id);
  request.set_new_id("c" + std::to_string(number_) + "-" +
                     std::to_string(sessions_made_++));
  CrashRecord& copy =
      sessions_.try_emplace(request.new_id(), CrashRecord(prompt_tokens_))
          .first->second;
  copy.Begin({.kind = PendingCall::Kind::kFork,
              .lineage = record.lineage(),
              .revision = record.revision()});
  Enter(CrashPhase::kOtherCall);
  v1::Session session;
  if (sealed.has_value()) {
    const Imported imported = Import(*calls_, sealed->bytes, request.new_id());
    if (!Ended(imported.status, "Import")) return false;
    session = imported.session;
    ++counts_.imports;
  } else {
    grpc::ClientContext context;
    if (!Ended(calls_->Fork(&context, request, &session), "Fork")) return false;
    ++counts_.forks;
  }
  EXPECT_EQ(copy.Acknowledge(session.revision()), "") << request.new_id();
  return true;
}

bool CrashClient::Rewind(const std::string& id, CrashRecord& record) {
  v1::RewindSessionRequest request;
  request.set_id(id);
  const auto& states = record.states();
  const auto to = std::next(states.begin(),
                            static_cast<int64_t>(random_() % states.size()));
  request.set_revision(to->first);
  record.Begin({.kind = PendingCall::Kind::kRewind, .lineage = to->second});
  Enter(CrashPhase::kOtherCall);
  grpc::ClientContext context;
  v1::Session session;
  if (!Ended(calls_->Rewind(&context, request, &session), "Rewind")) {
    return false;
  }
  EXPECT_EQ(record.Acknowledge(session.revision()), "") << id;
  ++counts_.rewinds;
  return true;
}

bool CrashClient::Delete(const std::string& id, CrashRecord& record) {
  record.Begin({.kind = PendingCall::Kind::kDelete});
  Enter(CrashPhase::kOtherCall);
  grpc::ClientContext context;
  v1::DeleteSessionResponse ignored;
  if (!Ended(
          calls_->Delete(&context, NamedSession<v1::DeleteSessionRequest>(id),
                         &ignored),
          "Delete")) {
    return false;
  }
  EXPECT_EQ(record.Acknowledge(0), "");
  ++counts_.deletes;
  return true;
}

bool CrashClient::Suspend(const std::string& id) {
  Enter(CrashPhase::kOtherCall);
  grpc::ClientContext context;
  v1::Session ignored;
  return Ended(
      calls_->Suspend(&context, NamedSession<v1::SuspendSessionRequest>(id),
                      &ignored),
      "Suspend");
}

// ---- Checks -----------------------------------------------------------------

void CrashClient::Check(const ServerProcess& server,
                        CrashReference& reference) {
  inference_ = server.NewStub();
  calls_ = server.NewSessionsStub();
  for (auto& [id, record] : sessions_) {
    const std::optional<PendingCall> pending = record.pending();
    const uint64_t revision_before = record.revision();
    if (pending.has_value()) ++counts_.in_doubt;
    if (pending.has_value() && !pending->request_id.empty() &&
        random_() % 2 == 0) {
      SendAgain(id, record, reference);
    } else {
      SettleByGet(id, record);
      if (pending.has_value() && record.revision() != revision_before) {
        ++counts_.committed;
      }
    }
    if (record.exists()) Compare(id, record, reference);
  }
}

// Carried out once, whether it had been before or is now.
void CrashClient::SendAgain(const std::string& id, CrashRecord& record,
                            CrashReference& reference) {
  v1::GenerateRequest request = RequestOf(id, record.pending()->turn);
  request.set_request_id(record.pending()->request_id);
  const Completion completion = Generate(*inference_, request);
  ASSERT_TRUE(completion.status.ok())
      << id << ": " << completion.status.error_message();
  ASSERT_EQ(completion.finished.size(), 1u);
  EXPECT_EQ(record.Acknowledge(completion.finished[0].revision()), "") << id;
  if (completion.started.repeated()) {
    ++counts_.repeated;
    ++counts_.committed;
  }
  EXPECT_EQ(completion.token_ids, reference.LastTurn(record.lineage())) << id;
}

void CrashClient::SettleByGet(const std::string& id, CrashRecord& record) {
  grpc::ClientContext context;
  v1::Session session;
  const grpc::Status status =
      calls_->Get(&context, NamedSession<v1::GetSessionRequest>(id), &session);
  const bool gone = status.error_code() == grpc::NOT_FOUND;
  ASSERT_TRUE(status.ok() || gone) << id << ": " << status.error_message();
  EXPECT_EQ(record.Settle(gone ? nullptr : &session), "") << id;
}

// It can be resumed, take a turn, and goes on as it would have without the end
// of its server.
void CrashClient::Compare(const std::string& id, const CrashRecord& record,
                          CrashReference& reference) {
  v1::GenerateRequest request = ContinuationRequest();
  request.set_session_id(id);
  request.set_commit(v1::COMMIT_POLICY_NEVER);
  const Completion completion = Generate(*inference_, request);
  ASSERT_TRUE(completion.status.ok())
      << id << ": " << completion.status.error_message();
  EXPECT_EQ(completion.started.revision(), record.revision()) << id;
  EXPECT_EQ(completion.token_ids, reference.Continuation(record.lineage()))
      << id << " at revision " << record.revision() << ": "
      << ToString(record.lineage());
  ++counts_.compared;
}

}  // namespace reprise
