// Which server the calls of a client go to. For client.cc.
#ifndef CLIENT_CLIENT_CONNECTION_H_
#define CLIENT_CLIENT_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "proto/inference.grpc.pb.h"

namespace reprise {

// A connection that stands, or stood. Immutable; its parts are thread-safe.
struct Connection {
  std::string address;
  std::shared_ptr<grpc::Channel> channel;  // shared: with its stubs, by gRPC
  std::unique_ptr<v1::Inference::Stub> inference;
  std::unique_ptr<v1::Sessions::Stub> sessions;

  v1::Inference::Stub& stub(v1::Inference::Stub*) const { return *inference; }
  v1::Sessions::Stub& stub(v1::Sessions::Stub*) const { return *sessions; }
};

struct ConnectionOptions {
  std::vector<std::string> addresses;  // at least one
  int64_t connect_timeout_ms = 0;      // for all addresses together
  int64_t keepalive_ms = 0;
};

// One connection at a time, to one of several addresses. Thread-safe.
class Connections {
 public:
  explicit Connections(ConnectionOptions options)
      : options_(std::move(options)) {}

  // The connection that stands; else connects to the addresses in turn,
  // beginning with the one after that which was lost, and blocks for that.
  // Unavailable, naming each address and why not, if none answers.
  // shared: a call keeps it while others have moved on.
  absl::StatusOr<std::shared_ptr<const Connection>> Get();

  // What a call over `connection` came to, with a text for people. A server
  // that is gone, or says that it is of no use now, is Unavailable, whatever
  // gRPC calls it, and Get goes on to the next address.
  absl::Status Result(const std::shared_ptr<const Connection>& connection,
                      const grpc::Status& status);

  // Of the connection that stands or stood last; empty before the first.
  std::string address() const;

 private:
  const ConnectionOptions options_;
  mutable Mutex mu_;
  std::shared_ptr<const Connection> current_ ABSL_GUARDED_BY(mu_);
  std::string address_ ABSL_GUARDED_BY(mu_);
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;  // of the addresses
};

}  // namespace reprise

#endif  // CLIENT_CLIENT_CONNECTION_H_
