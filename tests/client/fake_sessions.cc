#include "tests/client/fake_sessions.h"

#include <utility>

#include "engine/base/bytes.h"

namespace reprise {

void FakeSessions::Put(const v1::Session& session) {
  MutexLock lock(mu_);
  sessions_[session.id()] = session;
}

grpc::Status FakeSessions::Find(const std::string& id,
                                v1::Session* response) const {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no session '" + id + "'");
  }
  *response = found->second;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Create(grpc::ServerContext*,
                                  const v1::CreateSessionRequest* request,
                                  v1::Session* response) {
  MutexLock lock(mu_);
  response->set_id(request->has_id() ? request->id() : "drawn");
  sessions_[response->id()] = *response;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Get(grpc::ServerContext*,
                               const v1::GetSessionRequest* request,
                               v1::Session* response) {
  MutexLock lock(mu_);
  return Find(request->id(), response);
}

// The page token is the last id of the page before.
grpc::Status FakeSessions::List(grpc::ServerContext*,
                                const v1::ListSessionsRequest* request,
                                v1::ListSessionsResponse* response) {
  MutexLock lock(mu_);
  auto next = sessions_.upper_bound(request->page_token());
  for (uint32_t i = 0; i < request->page_size() && next != sessions_.end();
       ++i) {
    *response->add_sessions() = next->second;
    ++next;
  }
  if (next != sessions_.end()) {
    response->set_next_page_token(
        response->sessions(response->sessions_size() - 1).id());
  }
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Append(grpc::ServerContext*,
                                  const v1::AppendRequest* request,
                                  v1::AppendResponse* response) {
  MutexLock lock(mu_);
  response->set_prompt_tokens(request->text().size());
  return Find(request->session_id(), response->mutable_session());
}

grpc::Status FakeSessions::Suspend(grpc::ServerContext*,
                                   const v1::SuspendSessionRequest* request,
                                   v1::Session* response) {
  MutexLock lock(mu_);
  const grpc::Status status = Find(request->id(), response);
  response->set_place(v1::SESSION_PLACE_SUSPENDED);
  return status;
}

grpc::Status FakeSessions::Resume(grpc::ServerContext*,
                                  const v1::ResumeSessionRequest* request,
                                  v1::ResumeSessionResponse* response) {
  MutexLock lock(mu_);
  response->set_resumed_from(v1::RESUME_SOURCE_STORE);
  response->set_resume_us(1'500);
  return Find(request->id(), response->mutable_session());
}

grpc::Status FakeSessions::Fork(grpc::ServerContext*,
                                const v1::ForkSessionRequest* request,
                                v1::Session* response) {
  MutexLock lock(mu_);
  const grpc::Status status = Find(request->id(), response);
  if (!status.ok()) return status;
  response->set_id(request->has_new_id() ? request->new_id() : "drawn");
  response->set_forked_from(request->id());
  sessions_[response->id()] = *response;
  return grpc::Status::OK;
}

v1::RewindSessionRequest FakeSessions::last_rewind() const {
  MutexLock lock(mu_);
  return last_rewind_;
}

grpc::Status FakeSessions::Rewind(grpc::ServerContext*,
                                  const v1::RewindSessionRequest* request,
                                  v1::Session* response) {
  MutexLock lock(mu_);
  last_rewind_ = *request;
  const Loss loss = std::exchange(rewind_loss_, Loss::kNone);
  const grpc::Status lost(grpc::StatusCode::UNAVAILABLE, "shutting down");
  if (loss == Loss::kRequest) return lost;
  const grpc::Status status = Find(request->id(), response);
  if (!status.ok()) return status;
  if (request->has_expected_revision() &&
      request->expected_revision() != response->revision()) {
    return grpc::Status(grpc::StatusCode::ABORTED, "another revision");
  }
  if (request->revision() > response->revision()) {
    return grpc::Status(grpc::StatusCode::OUT_OF_RANGE, "not kept");
  }
  const v1::Session before = *response;
  for (const v1::Checkpoint& checkpoint : before.checkpoints()) {
    if (checkpoint.revision() == request->revision()) {
      response->set_tokens(checkpoint.tokens());
    }
  }
  v1::Checkpoint& latest = *response->add_checkpoints();
  latest.set_revision(before.revision());
  latest.set_tokens(before.tokens());
  response->set_revision(before.revision() + 1);
  sessions_[response->id()] = *response;
  return loss == Loss::kAnswer ? lost : grpc::Status::OK;
}

void FakeSessions::LoseRewind(bool carried_out) {
  MutexLock lock(mu_);
  rewind_loss_ = carried_out ? Loss::kAnswer : Loss::kRequest;
}

void FakeSessions::SetExport(std::vector<v1::SnapshotChunk> chunks) {
  MutexLock lock(mu_);
  export_ = std::move(chunks);
}

void FakeSessions::SetImportStatus(const grpc::Status& status) {
  MutexLock lock(mu_);
  import_status_ = status;
}

v1::ExportSessionRequest FakeSessions::last_export() const {
  MutexLock lock(mu_);
  return last_export_;
}

std::string FakeSessions::last_import() const {
  MutexLock lock(mu_);
  return last_import_;
}

v1::SnapshotChunk FakeSessions::last_import_target() const {
  MutexLock lock(mu_);
  return last_import_target_;
}

grpc::Status FakeSessions::Export(
    grpc::ServerContext*, const v1::ExportSessionRequest* request,
    grpc::ServerWriter<v1::SnapshotChunk>* writer) {
  MutexLock lock(mu_);
  last_export_ = *request;
  v1::Session session;
  const grpc::Status status = Find(request->id(), &session);
  if (!status.ok()) return status;
  std::vector<v1::SnapshotChunk> chunks = export_;
  if (chunks.empty()) {
    chunks.resize(2);
    chunks[0].set_data("sea");
    v1::SnapshotInfo& info = *chunks[0].mutable_info();
    info.set_session_id(request->id());
    info.set_revision(session.revision());
    info.set_tokens(session.tokens());
    info.set_sealed_bytes(6);
    info.set_elements(request->seal().elements());
    info.set_zstd(request->seal().zstd());
    chunks[1].set_data("led");
    chunks[1].set_crc32c(Crc32c("sealed"));
  }
  for (const v1::SnapshotChunk& chunk : chunks) writer->Write(chunk);
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Import(grpc::ServerContext*,
                                  grpc::ServerReader<v1::SnapshotChunk>* reader,
                                  v1::Session* response) {
  std::string bytes;
  v1::SnapshotChunk chunk, target;
  bool first = true, whole = false;
  while (reader->Read(&chunk)) {
    if (first) target = chunk;
    first = false;
    bytes += chunk.data();
    whole = chunk.has_crc32c() && chunk.crc32c() == Crc32c(bytes);
  }
  if (!whole) return grpc::Status(grpc::StatusCode::DATA_LOSS, "crc32c");
  MutexLock lock(mu_);
  if (!import_status_.ok()) return import_status_;
  response->set_id(target.has_session_id() ? target.session_id() : "made");
  if (sessions_.contains(response->id())) {
    return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "it is taken");
  }
  response->set_revision(4);
  response->set_tokens(bytes.size());
  response->set_snapshot_bytes(bytes.size());
  sessions_[response->id()] = *response;
  last_import_ = std::move(bytes);
  target.clear_data();
  last_import_target_ = std::move(target);
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Delete(grpc::ServerContext*,
                                  const v1::DeleteSessionRequest* request,
                                  v1::DeleteSessionResponse*) {
  MutexLock lock(mu_);
  v1::Session session;
  const grpc::Status status = Find(request->id(), &session);
  sessions_.erase(request->id());
  return status;
}

grpc::Status FakeSessions::SavePreset(grpc::ServerContext*,
                                      const v1::SavePresetRequest* request,
                                      v1::Preset* response) {
  MutexLock lock(mu_);
  v1::Session session;
  const grpc::Status status = Find(request->session_id(), &session);
  if (!status.ok()) return status;
  response->set_name(request->name());
  response->set_from_session(session.id());
  response->set_tokens(session.tokens());
  response->set_snapshot_bytes(session.snapshot_bytes());
  presets_[request->name()] = *response;
  return grpc::Status::OK;
}

grpc::Status FakeSessions::DeletePreset(grpc::ServerContext*,
                                        const v1::DeletePresetRequest* request,
                                        v1::DeletePresetResponse*) {
  MutexLock lock(mu_);
  if (presets_.erase(request->name()) > 0) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::NOT_FOUND, "no such preset");
}

grpc::Status FakeSessions::ListPresets(grpc::ServerContext*,
                                       const v1::ListPresetsRequest*,
                                       v1::ListPresetsResponse* response) {
  MutexLock lock(mu_);
  for (const auto& [name, preset] : presets_) {
    *response->add_presets() = preset;
  }
  return grpc::Status::OK;
}

grpc::Status FakeSessions::Touch(grpc::ServerContext*,
                                 const v1::TouchSessionRequest* request,
                                 v1::Session* response) {
  MutexLock lock(mu_);
  return Find(request->id(), response);
}

}  // namespace reprise
