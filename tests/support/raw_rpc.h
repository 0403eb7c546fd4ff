// Calls with bytes instead of messages: for services whose messages have no
// header in Debian's packages (health, reflection), and for requests that no
// well-behaved client sends.
#ifndef TESTS_SUPPORT_RAW_RPC_H_
#define TESTS_SUPPORT_RAW_RPC_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

namespace reprise {

inline grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string ToString(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

struct RawAnswer {
  grpc::Status status;
  std::string bytes;  // of the first message
};

// One request, the first response and the status of a streaming call of any
// kind.
inline RawAnswer RawCall(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& method, const std::string& bytes) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto wait = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  auto call = stub.PrepareCall(&context, method, &queue);
  call->StartCall(nullptr);
  wait();
  grpc::WriteOptions last;
  call->WriteLast(ToByteBuffer(bytes), last.set_last_message(), nullptr);
  wait();
  RawAnswer answer;
  grpc::ByteBuffer response;
  call->Read(&response, nullptr);
  if (wait()) {
    answer.bytes = ToString(response);
    grpc::ByteBuffer rest;
    do {
      rest.Clear();
      call->Read(&rest, nullptr);
    } while (wait());
  }
  call->Finish(&answer.status, nullptr);
  wait();
  queue.Shutdown();
  return answer;
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_RAW_RPC_H_
