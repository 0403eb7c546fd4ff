#include "server/inference_service_interceptor.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "proto/inference.grpc.pb.h"

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

// Of our services, and of those that gRPC brings.
std::vector<KnownMethod> MethodsOfServer() {
  std::vector<KnownMethod> methods;
  const auto add = [&](std::string_view service, std::string_view method) {
    methods.push_back({absl::StrCat("/", ToAbsl(service), "/", ToAbsl(method)),
                       std::string(service), std::string(method)});
  };
  for (const char* service :
       {v1::Inference::service_full_name(), v1::Sessions::service_full_name(),
        v1::Admin::service_full_name()}) {
    const google::protobuf::ServiceDescriptor* const found =
        google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
            service);
    CHECK(found != nullptr);
    for (int i = 0; i < found->method_count(); ++i) {
      add(service, found->method(i)->name());
    }
  }
  add("grpc.health.v1.Health", "Check");
  add("grpc.health.v1.Health", "Watch");
  add("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo");
  return methods;
}

const KnownMethod& FindMethod(const std::vector<KnownMethod>& methods,
                              std::string_view path) {
  static const KnownMethod& unknown =
      *new KnownMethod{"", "unknown", "unknown"};
  const auto found = std::find_if(
      methods.begin(), methods.end(),
      [&](const KnownMethod& method) { return method.path == path; });
  return found == methods.end() ? unknown : *found;
}

class CallInterceptor final : public grpc::experimental::Interceptor {
 public:
  CallInterceptor(ServerRpcInfo& info, const KnownMethod& method,
                  Metrics& metrics, const Clock& clock)
      : info_(info),
        method_(method),
        metrics_(metrics),
        clock_(clock),
        start_ns_(clock.MonotonicNs()),
        takes_one_message_(info.type() == ServerRpcInfo::Type::UNARY ||
                           info.type() ==
                               ServerRpcInfo::Type::SERVER_STREAMING),
        type_(TypeName(info.type())) {
    metrics_.RpcStarted(method_.service, method_.method, type_);
  }

  void Intercept(
      grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::POST_RECV_MESSAGE)) {
      // Taken whatever became of the message: the next parse on this thread is
      // another call's.
      std::string field = std::exchange(refused_field, "");
      // A stream of messages ends without one, too.
      if (methods->GetRecvMessage() == nullptr &&
          (takes_one_message_ || !field.empty())) {
        no_message_ = true;
        field_ = std::move(field);
      }
    }
    if (methods->QueryInterceptionHookPoint(
            InterceptionHookPoints::PRE_SEND_STATUS)) {
      if (no_message_) methods->ModifySendStatus(NoMessage());
      const auto code = methods->GetSendStatus().error_code();
      metrics_.RpcHandled(
          method_.service, method_.method, type_,
          static_cast<absl::StatusCode>(code),
          static_cast<double>(clock_.MonotonicNs() - start_ns_) * 1e-9);
    }
    methods->Proceed();
  }

 private:
  grpc::Status NoMessage() const {
    if (info_.server_context()->IsCancelled()) {
      return {grpc::StatusCode::CANCELLED, "the client went away"};
    }
    return {grpc::StatusCode::INVALID_ARGUMENT,
            field_.empty() ? "the request is not a message of this method"
                           : field_ + ": is not valid UTF-8"};
  }

  ServerRpcInfo& info_;
  const KnownMethod& method_;
  Metrics& metrics_;
  const Clock& clock_;
  const int64_t start_ns_;
  const bool takes_one_message_;
  const std::string_view type_;
  bool no_message_ = false;
  std::string field_;
};

}  // namespace

CallInterceptors::CallInterceptors(Metrics& metrics, const Clock& clock)
    : metrics_(metrics), clock_(clock), methods_(MethodsOfServer()) {
  google::protobuf::SetLogHandler(TakeProtobufLog);
}

grpc::experimental::Interceptor* CallInterceptors::CreateServerInterceptor(
    ServerRpcInfo* info) {
  // gRPC deletes it.
  return new CallInterceptor(*info, FindMethod(methods_, info->method()),
                             metrics_, clock_);
}

}  // namespace reprise
