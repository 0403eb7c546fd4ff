// A client that makes the server wait for it.
#ifndef TESTS_SUPPORT_NARROW_STUB_H_
#define TESTS_SUPPORT_NARROW_STUB_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "proto/inference.grpc.pb.h"

namespace reprise {

// A connection of its own, whose streams take 1 KiB that nobody
// reads, and no more: the server's next write does not end before the client
// reads. By default they take 64 KiB, and more as gRPC measures the connection.
inline std::shared_ptr<grpc::Channel> NarrowChannel(int port) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);  // what measures
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 1024);
  return grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port),
                                   grpc::InsecureChannelCredentials(),
                                   arguments);
}

inline std::unique_ptr<v1::Inference::Stub> NarrowStub(int port) {
  return v1::Inference::NewStub(NarrowChannel(port));
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_NARROW_STUB_H_
