#include "server/inference_service_interceptor.h"

#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "engine/base/log.h"

namespace reprise {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::ServerRpcInfo;

// The string field that the last parse on this thread refused, as in
// "reprise.v1.GenerateRequest.text"; protobuf tells it only to its log.
thread_local std::string refused_field;

void TakeProtobufLog(google::protobuf::LogLevel level, const char*, int,
                     const std::string& message) {
  constexpr std::string_view kBegin = "String field '";
  // The same words begin what it says of a message of ours that it serialises.
  constexpr std::string_view kParsing = " when parsing ";
  const size_t end = message.find('\'', kBegin.size());
  if (message.starts_with(kBegin) && end != std::string::npos &&
      message.find(kParsing, end) != std::string::npos) {
    refused_field = message.substr(kBegin.size(), end - kBegin.size());
    return;
  }
  if (level >= google::protobuf::LOGLEVEL_WARNING) {
    LogWarning("protobuf", {{"message", message}});
  }
}

std::string_view TypeName(ServerRpcInfo::Type type) {
  switch (type) {
    case ServerRpcInfo::Type::UNARY:
      return "unary";
    case ServerRpcInfo::Type::CLIENT_STREAMING:
      return "client_stream";
    case ServerRpcInfo::Type::SERVER_STREAMING:
      return "server_stream";
    case ServerRpcInfo::Type::BIDI_STREAMING:
      return "bidi_stream";
  }
  return "unary";
}

class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(const ServerRpcInfo& info, Metrics& metrics,
                  const Clock& clock)
      : metrics_(metrics),
        clock_(clock),
        start_ns_(clock.MonotonicNs()),
        takes_one_message_(info.type() == ServerRpcInfo::Type::UNARY ||
                           info.type() ==
                               ServerRpcInfo::Type::SERVER_STREAMING),
        type_(TypeName(info.type())) {
    // "/package.Service/Method"; it lives as long as the server.
    const std::string_view full(info.method());
    const size_t slash = full.rfind('/');
    service_ = full.substr(1, slash - 1);
    method_ = full.substr(slash + 1);
    metrics_.RpcStarted(service_, method_, type_);
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    if (takes_one_message_ &&
        methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE) &&
        methods->GetRecvMessage() == nullptr) {
      no_message_ = true;
      field_ = std::exchange(refused_field, "");
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      if (no_message_) methods->ModifySendStatus(NoMessage());
      const auto code = methods->GetSendStatus().error_code();
      metrics_.RpcHandled(
          service_, method_, type_, static_cast<absl::StatusCode>(code),
          static_cast<double>(clock_.MonotonicNs() - start_ns_) * 1e-9);
    }
    methods->Proceed();
  }

 private:
  grpc::Status NoMessage() const {
    return {grpc::StatusCode::INVALID_ARGUMENT,
            field_.empty() ? "the request is not a message of this method"
                           : field_ + ": is not valid UTF-8"};
  }

  Metrics& metrics_;
  const Clock& clock_;
  const int64_t start_ns_;
  const bool takes_one_message_;
  const std::string_view type_;
  std::string_view service_;
  std::string_view method_;
  bool no_message_ = false;
  std::string field_;
};

}  // namespace

CallInterceptors::CallInterceptors(Metrics& metrics, const Clock& clock)
    : metrics_(metrics), clock_(clock) {
  google::protobuf::SetLogHandler(TakeProtobufLog);
}

grpc::experimental::Interceptor* CallInterceptors::CreateServerInterceptor(
    ServerRpcInfo* info) {
  return new CallInterceptor(*info, metrics_, clock_);  // gRPC deletes it
}

}  // namespace reprise
