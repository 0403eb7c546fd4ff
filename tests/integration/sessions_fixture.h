// The calls of the Sessions service against a server in this process.
#ifndef TESTS_INTEGRATION_SESSIONS_FIXTURE_H_
#define TESTS_INTEGRATION_SESSIONS_FIXTURE_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/test_server.h"

namespace reprise {

inline constexpr auto kNotFound = grpc::StatusCode::NOT_FOUND;
inline constexpr auto kAborted = grpc::StatusCode::ABORTED;
inline constexpr auto kInvalidArgument = grpc::StatusCode::INVALID_ARGUMENT;

class SessionsTest : public ::testing::Test {
 protected:
  Completion Turn(const std::string& session, const std::string& text,
                  uint32_t tokens) {
    return Generate(server_.inference(), SessionRequest(session, text, tokens));
  }

  // Calls a method of the stub and checks its code.
  template <typename Response, typename Method, typename Request>
  Response Call(Method method, const Request& request,
                grpc::StatusCode code = grpc::StatusCode::OK) {
    grpc::ClientContext context;
    Response response;
    status_ = (server_.sessions().*method)(&context, request, &response);
    EXPECT_EQ(status_.error_code(), code) << status_.error_message();
    return response;
  }
  using Stub = v1::Sessions::Stub;
  template <typename Request>
  static Request Named(const std::string& id) {
    Request request;
    request.set_id(id);
    return request;
  }
  v1::Session Get(const std::string& id,
                  grpc::StatusCode code = grpc::StatusCode::OK) {
    return Call<v1::Session>(&Stub::Get, Named<v1::GetSessionRequest>(id),
                             code);
  }
  v1::Session Suspend(const std::string& id,
                      grpc::StatusCode code = grpc::StatusCode::OK) {
    return Call<v1::Session>(&Stub::Suspend,
                             Named<v1::SuspendSessionRequest>(id), code);
  }

  TestServer server_;
  grpc::Status status_;
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_SESSIONS_FIXTURE_H_
