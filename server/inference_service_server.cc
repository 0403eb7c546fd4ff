#include "server/inference_service_server.h"

#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/inference_service.h"
#include "server/inference_service_interceptor.h"

namespace reprise {
namespace {

constexpr int kSecondMs = 1000;

// A client that vanished without a word is found out by a ping, so that its
// stream does not wait for the slow-reader time-out. Clients may ping as often
// as common proxies and libraries are set to.
void SetKeepalive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20 * kSecondMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10 * kSecondMs);
}

void SetLimits(grpc::ServerBuilder& builder, const ServerOptions& options) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  // A small message may unpack to gigabytes, and gRPC looks at its size only
  // then. Clients learn that none is taken, and hear Unimplemented.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  // Memory for what is in transit. Beyond it gRPC resets streams and closes
  // connections, whosoever they are, so that it is for a flood alone; room for
  // some of the largest requests at once keeps it from being the normal state.
  constexpr int64_t kLeastBytes = int64_t{256} << 20;
  grpc::ResourceQuota quota("reprise");
  quota.Resize(static_cast<size_t>(
      std::max(kLeastBytes, 16 * options.max_request_bytes)));
  // Only reflection runs on threads of its own, one for each open stream.
  quota.SetMaxThreads(16);
  builder.SetResourceQuota(quota);
  // Connections that never speak HTTP/2 hold a descriptor for so long.
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                             10 * kSecondMs);
}

// gRPC's own lines, in our format.
void TakeGrpcLog(gpr_log_func_args* line) {
  const LogFields fields = {{"message", line->message}};
  switch (line->severity) {
    case GPR_LOG_SEVERITY_ERROR:
      return LogError("grpc", fields);
    case GPR_LOG_SEVERITY_INFO:
      return LogInfo("grpc", fields);
    default:
      return LogDebug("grpc", fields);
  }
}

}  // namespace

struct RpcServer::Impl {
  explicit Impl(ServiceContext& context)
      : context(context), inference(context), sessions(context) {}

  ServiceContext& context;
  InferenceService inference;
  SessionsService sessions;
  AdminService admin;
  // Destroyed in the opposite order: connections come from the listener, and
  // calls use the services.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<Listener> listener;
};

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    ServiceContext& context, std::unique_ptr<Listener> listener) {
  auto impl = std::make_unique<Impl>(context);
  gpr_set_log_function(TakeGrpcLog);
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  SetKeepalive(builder);
  SetLimits(builder, context.options);
  using Builder = grpc::ServerBuilder::experimental_type;
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  std::vector<
      std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface>>
      interceptors;
  interceptors.push_back(
      std::make_unique<CallInterceptors>(context.metrics, context.clock));
  builder.experimental().SetInterceptorCreators(std::move(interceptors));
  builder.RegisterService(&impl->inference);
  builder.RegisterService(&impl->sessions);
  builder.RegisterService(&impl->admin);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) {
    return absl::InternalError("gRPC does not start");
  }
  // "" is the whole server, SERVING by default.
  grpc::HealthCheckServiceInterface* health =
      impl->server->GetHealthCheckService();
  health->SetServingStatus("reprise.v1.Inference", true);
  health->SetServingStatus("reprise.v1.Sessions", true);
  impl->listener = std::move(listener);
  RETURN_IF_ERROR(
      impl->listener->Start([acceptor = impl->acceptor.get()](int fd) {
        grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters
            connection;
        connection.fd = fd;
        acceptor->HandleNewConnection(&connection);
      }));
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

RpcServer::~RpcServer() { Shutdown(/*grace_ms=*/0); }

int RpcServer::port() const { return impl_->listener->port(); }

void RpcServer::StopServing() {
  impl_->server->GetHealthCheckService()->Shutdown();
  impl_->context.calls.BeginDrain();
}

void RpcServer::CancelCalls() {
  impl_->context.calls.CancelAll(CancelCause::kShutdown);
}

void RpcServer::Shutdown(int64_t grace_ms) {
  if (impl_->server == nullptr) return;
  impl_->listener->Stop();
  impl_->server->Shutdown(std::chrono::system_clock::now() +
                          std::chrono::milliseconds(grace_ms));
  impl_->server->Wait();
  impl_->server.reset();
  CHECK(impl_->context.calls.open() == 0);  // gRPC has ended them all
}

}  // namespace reprise
