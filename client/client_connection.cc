#include "client/client_connection.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace reprise {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

// A Started message may carry log-probabilities of a long prompt, which passes
// gRPC's default of 4 MiB.
constexpr int kMaxMessageBytes = 64 << 20;

std::shared_ptr<grpc::Channel> NewChannel(const std::string& address,
                                          int64_t keepalive_ms) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // A server that is stopped, or cut off, does not close its connections. One
  // that computes a long prompt says nothing either, but answers a ping.
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, static_cast<int>(keepalive_ms));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(std::max<int64_t>(keepalive_ms / 3, 1)));
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  // Channels to one address share what they know of it, and a new one would
  // wait out the pause that the old one had after its failure.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   arguments);
}

// Why a channel that cannot be connected is not: gRPC tells it to calls alone.
std::string WhyNot(const Connection& connection) {
  constexpr auto kLongest = milliseconds(1000);
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + kLongest);
  v1::Model model;
  const std::string message =
      connection.inference->GetModel(&context, {}, &model).error_message();
  const std::string& address = connection.address;
  if (absl::StrContains(message, "DNS resolution failed")) {
    return absl::StrCat("the name of ", address, " cannot be resolved");
  }
  // What it says of a server whose first bytes are no HTTP/2.
  for (const char* stranger :
       {"http1", "Failed parsing HTTP/2", "SETTINGS", "Socket closed"}) {
    if (!absl::StrContains(message, stranger)) continue;
    return absl::StrCat("what answers at ", address,
                        " is no Reprise server (its metrics port? gRPC has "
                        "another)");
  }
  return absl::StrCat("no server at ", address);
}

// Waits until the connection stands; else says why not.
std::string AwaitReady(const Connection& connection, int64_t timeout_ms) {
  grpc::Channel& channel = *connection.channel;
  const auto deadline = system_clock::now() + milliseconds(timeout_ms);
  grpc_connectivity_state state = channel.GetState(/*try_to_connect=*/true);
  while (state != GRPC_CHANNEL_READY) {
    // gRPC would try again for ever. A refusal is an answer, though, and a user
    // should not wait for it.
    if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return WhyNot(connection);
    if (!channel.WaitForStateChange(state, deadline)) {
      return absl::StrCat("no answer within ", timeout_ms, " ms from ",
                          connection.address);
    }
    state = channel.GetState(/*try_to_connect=*/true);
  }
  return "";
}

// Whether the connection has gone with the call. gRPC tells of the call first,
// sometimes.
bool IsGone(grpc::Channel& channel) {
  constexpr auto kMoment = milliseconds(50);
  return channel.GetState(/*try_to_connect=*/false) != GRPC_CHANNEL_READY ||
         channel.WaitForStateChange(GRPC_CHANNEL_READY,
                                    system_clock::now() + kMoment);
}

// What gRPC says of a connection, in words for users; what is not its own but
// the server's stays.
std::string Reworded(const std::string& message) {
  if (absl::StrContains(message, "keepalive")) return ": it does not answer";
  for (const char* own :
       {"Socket closed", "Connection reset", "Broken pipe", "GOAWAY",
        "RST_STREAM", "Stream removed", "recvmsg", "Endpoint", "http2 header",
        "failed to connect", "Transport closed", "Cancelling all calls"}) {
    if (absl::StrContains(message, own)) return "";
  }
  return message.empty() ? "" : ": " + message;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Connection>> Connections::Get() {
  size_t first = 0;
  {
    MutexLock lock(mu_);
    // Its server may have gone while nobody called it.
    if (current_ != nullptr &&
        current_->channel->GetState(/*try_to_connect=*/false) ==
            GRPC_CHANNEL_READY) {
      return current_;
    }
    current_.reset();
    first = next_;
  }
  const size_t count = options_.addresses.size();
  const int64_t timeout_ms = std::max<int64_t>(
      options_.connect_timeout_ms / static_cast<int64_t>(count), 1);
  std::string problems;
  for (size_t i = 0; i < count; ++i) {
    const size_t index = (first + i) % count;
    const std::string& address = options_.addresses[index];
    auto connection = std::make_shared<Connection>();
    connection->address = address;
    connection->channel = NewChannel(address, options_.keepalive_ms);
    connection->inference = v1::Inference::NewStub(connection->channel);
    connection->sessions = v1::Sessions::NewStub(connection->channel);
    const std::string problem = AwaitReady(*connection, timeout_ms);
    if (!problem.empty()) {
      absl::StrAppend(&problems, problems.empty() ? "" : ", ", problem);
      continue;
    }
    MutexLock lock(mu_);
    current_ = std::move(connection);
    address_ = address;
    next_ = (index + 1) % count;
    return current_;
  }
  return absl::UnavailableError(problems);
}

absl::Status Connections::Result(
    const std::shared_ptr<const Connection>& connection,
    const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message();
  // What a proxy makes of a server that went away.
  const bool reset = absl::StrContains(message, "RST_STREAM");
  if (status.error_code() != grpc::StatusCode::UNAVAILABLE && !reset) {
    // The two libraries number their codes alike.
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        message);
  }
  // What our own side says of one that does not answer its pings.
  const bool silent = absl::StrContains(message, "keepalive watchdog");
  if (reset || silent || IsGone(*connection->channel)) {
    message = absl::StrCat("the server at ", connection->address, " went away",
                           Reworded(message));
  }
  MutexLock lock(mu_);
  if (current_ == connection) current_.reset();
  return absl::UnavailableError(message);
}

std::string Connections::address() const {
  MutexLock lock(mu_);
  return address_;
}

}  // namespace reprise
