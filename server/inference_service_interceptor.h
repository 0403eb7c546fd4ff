// What is the same for every call, whatever its service: it is counted, and a
// message that is none is the client's fault.
#ifndef SERVER_INFERENCE_SERVICE_INTERCEPTOR_H_
#define SERVER_INFERENCE_SERVICE_INTERCEPTOR_H_

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/server_interceptor.h>

#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "server/metrics.h"

namespace reprise {

// A method that this server has.
struct KnownMethod {
  std::string path;  // "/package.Service/Method"
  std::string service;
  std::string method;
};

// Makes an interceptor for each call, which
//  * counts it in the grpc_server_* metrics, health and reflection, too; all
//    unknown methods as one, since their names are the clients';
//  * answers bytes that are not the method's message (malformed, or a string
//    field that is not UTF-8) with InvalidArgument and, where it is known, the
//    field. gRPC itself says Unimplemented or Internal, and names nothing.
//
// Thread-safe.
class CallInterceptors final
    : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  // Both must outlive the server. Routes what protobuf logs to our log.
  CallInterceptors(Metrics& metrics, const Clock& clock);

  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo* info) override;

 private:
  Metrics& metrics_;
  const Clock& clock_;
  const std::vector<KnownMethod> methods_;
};

}  // namespace reprise

#endif  // SERVER_INFERENCE_SERVICE_INTERCEPTOR_H_
