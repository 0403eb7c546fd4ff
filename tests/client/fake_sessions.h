// The Sessions service of a fake server.
#ifndef TESTS_CLIENT_FAKE_SESSIONS_H_
#define TESTS_CLIENT_FAKE_SESSIONS_H_

#include <grpcpp/grpcpp.h>

#include <map>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "engine/base/mutex.h"
#include "proto/inference.grpc.pb.h"

namespace reprise {

// A map of sessions. All calls but List answer NOT_FOUND for an unknown id.
class FakeSessions final : public v1::Sessions::Service {
 public:
  void Put(const v1::Session& session);
  v1::RewindSessionRequest last_rewind() const;
  // The next rewind answers UNAVAILABLE, after it was carried out or instead.
  void LoseRewind(bool carried_out);
  grpc::Status Create(grpc::ServerContext* context,
                      const v1::CreateSessionRequest* request,
                      v1::Session* response) override;
  grpc::Status Get(grpc::ServerContext* context,
                   const v1::GetSessionRequest* request,
                   v1::Session* response) override;
  grpc::Status List(grpc::ServerContext* context,
                    const v1::ListSessionsRequest* request,
                    v1::ListSessionsResponse* response) override;
  grpc::Status Append(grpc::ServerContext* context,
                      const v1::AppendRequest* request,
                      v1::AppendResponse* response) override;
  grpc::Status Suspend(grpc::ServerContext* context,
                       const v1::SuspendSessionRequest* request,
                       v1::Session* response) override;
  grpc::Status Resume(grpc::ServerContext* context,
                      const v1::ResumeSessionRequest* request,
                      v1::ResumeSessionResponse* response) override;
  grpc::Status Fork(grpc::ServerContext* context,
                    const v1::ForkSessionRequest* request,
                    v1::Session* response) override;
  grpc::Status Rewind(grpc::ServerContext* context,
                      const v1::RewindSessionRequest* request,
                      v1::Session* response) override;
  // What SetExport was given last; a "sealed" text else, in two chunks.
  grpc::Status Export(grpc::ServerContext* context,
                      const v1::ExportSessionRequest* request,
                      grpc::ServerWriter<v1::SnapshotChunk>* writer) override;
  // A session of as many bytes as came; DATA_LOSS if the checksum is not
  // theirs, ALREADY_EXISTS for an id that is taken.
  grpc::Status Import(grpc::ServerContext* context,
                      grpc::ServerReader<v1::SnapshotChunk>* reader,
                      v1::Session* response) override;
  // What the next imports are refused with, if it is not OK.
  void SetImportStatus(const grpc::Status& status);
  void SetExport(std::vector<v1::SnapshotChunk> chunks);
  v1::ExportSessionRequest last_export() const;
  // All of the bytes, and what the first chunk had beside them.
  std::string last_import() const;
  v1::SnapshotChunk last_import_target() const;
  grpc::Status Delete(grpc::ServerContext* context,
                      const v1::DeleteSessionRequest* request,
                      v1::DeleteSessionResponse* response) override;
  grpc::Status SavePreset(grpc::ServerContext* context,
                          const v1::SavePresetRequest* request,
                          v1::Preset* response) override;
  grpc::Status DeletePreset(grpc::ServerContext* context,
                            const v1::DeletePresetRequest* request,
                            v1::DeletePresetResponse* response) override;
  grpc::Status ListPresets(grpc::ServerContext* context,
                           const v1::ListPresetsRequest* request,
                           v1::ListPresetsResponse* response) override;
  grpc::Status Touch(grpc::ServerContext* context,
                     const v1::TouchSessionRequest* request,
                     v1::Session* response) override;

 private:
  grpc::Status Find(const std::string& id, v1::Session* response) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  std::map<std::string, v1::Session> sessions_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, v1::Preset> presets_ ABSL_GUARDED_BY(mu_);
  v1::RewindSessionRequest last_rewind_ ABSL_GUARDED_BY(mu_);
  enum class Loss { kNone, kRequest, kAnswer };
  Loss rewind_loss_ ABSL_GUARDED_BY(mu_) = Loss::kNone;
  std::vector<v1::SnapshotChunk> export_ ABSL_GUARDED_BY(mu_);
  v1::ExportSessionRequest last_export_ ABSL_GUARDED_BY(mu_);
  grpc::Status import_status_ ABSL_GUARDED_BY(mu_);
  std::string last_import_ ABSL_GUARDED_BY(mu_);
  v1::SnapshotChunk last_import_target_ ABSL_GUARDED_BY(mu_);
};

}  // namespace reprise

#endif  // TESTS_CLIENT_FAKE_SESSIONS_H_
