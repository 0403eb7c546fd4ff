// Calls a Reprise server over gRPC. No exceptions; every error is an
// absl::Status with gRPC's code and the server's text.
//
//   ASSIGN_OR_RETURN(auto client, Client::Connect({.address = "host:8980"}));
//   v1::GenerateRequest request;
//   request.set_text("In the beginning");
//   RETURN_IF_ERROR(client->Generate(
//       request, [](const v1::GenerateResponse& message) {
//         std::cout << message.delta().text();
//         return true;  // go on
//       }));
#ifndef CLIENT_CLIENT_H_
#define CLIENT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/client_cancellation.h"
#include "proto/inference.pb.h"

namespace reprise {

struct ClientOptions {
  // HOST:PORT, or several with commas between: servers with one store.
  std::string address = "127.0.0.1:8980";
  // How long Connect waits for servers that do not say no.
  int64_t connect_timeout_ms = 5'000;
  // For every call but Generate, Score, Append and the ones that move a state;
  // 0 = none.
  int64_t call_timeout_ms = 30'000;
  // A server that said nothing for so long is asked for a sign of life, and
  // taken for gone if it gives none within a third of it. Servers allow 10 s.
  int64_t keepalive_ms = 15'000;
};

// Thread-safe; calls block until the server has answered.
//
// Calls go to the first address that answers. Once its server went away, the
// next call goes to the next address, or to the same if there is one only. A
// call that changes nothing is made again then; of the others only the caller
// knows whether they may be (client_resume.h does for Generate).
//
// Every call can return what the server returns, Unavailable if the server went
// away, and DeadlineExceeded.
class Client {
 public:
  // Waits until a connection stands. InvalidArgument for a bad address;
  // Unavailable, with a text for the user that names the addresses, if nobody
  // listens there or nothing answers in time.
  static absl::StatusOr<std::unique_ptr<Client>> Connect(
      const ClientOptions& options);
  ~Client();

  // Of the server that the last call went to.
  std::string address() const;

  // Called for each message of a stream; false ends the call.
  using OnMessage = absl::FunctionRef<bool(const v1::GenerateResponse&)>;
  using OnScores = absl::FunctionRef<bool(const v1::ScoreResponse&)>;

  // Streams one completion and returns its end. Cancelled if `on_message`
  // returned false or `cancellation`, which may be null, was cancelled: the
  // server then keeps or drops what was streamed, as the request says.
  absl::Status Generate(const v1::GenerateRequest& request,
                        OnMessage on_message,
                        Cancellation* cancellation = nullptr);

  // Streams the log-probabilities of a text; ends as Generate does.
  absl::Status Score(const v1::ScoreRequest& request, OnScores on_message,
                     Cancellation* cancellation = nullptr);

  absl::StatusOr<v1::TokenizeResponse> Tokenize(
      const v1::TokenizeRequest& request);
  absl::StatusOr<v1::DetokenizeResponse> Detokenize(
      const v1::DetokenizeRequest& request);
  absl::StatusOr<v1::Model> GetModel();

  absl::StatusOr<v1::Session> CreateSession(
      const v1::CreateSessionRequest& request);
  // In so long, if `timeout_ms` is given, and asked once only.
  absl::StatusOr<v1::Session> GetSession(
      const std::string& id, std::optional<int64_t> timeout_ms = std::nullopt);
  // One page.
  absl::StatusOr<v1::ListSessionsResponse> ListSessions(
      const v1::ListSessionsRequest& request);
  absl::StatusOr<v1::AppendResponse> Append(const v1::AppendRequest& request);
  absl::StatusOr<v1::Session> SuspendSession(const std::string& id);
  absl::StatusOr<v1::ResumeSessionResponse> ResumeSession(
      const std::string& id);
  absl::StatusOr<v1::Session> ForkSession(
      const v1::ForkSessionRequest& request);
  absl::StatusOr<v1::Session> RewindSession(
      const v1::RewindSessionRequest& request);
  // The session as sealed bytes. DataLoss if not all of them came.
  absl::StatusOr<v1::SealedSnapshot> ExportSession(
      const v1::ExportSessionRequest& request);
  // A session of sealed bytes. Of `target`, what the first chunk may have
  // beside them is sent: the session's id and time to live.
  absl::StatusOr<v1::Session> ImportSession(std::string_view sealed,
                                            const v1::SnapshotChunk& target);
  absl::Status DeleteSession(const std::string& id);
  absl::StatusOr<v1::Preset> SavePreset(const v1::SavePresetRequest& request);
  absl::Status DeletePreset(const std::string& name);
  // One page.
  absl::StatusOr<v1::ListPresetsResponse> ListPresets(
      const v1::ListPresetsRequest& request);
  absl::StatusOr<v1::Session> TouchSession(
      const v1::TouchSessionRequest& request);

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // CLIENT_CLIENT_H_
