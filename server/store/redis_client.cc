#include "server/store/redis_client.h"

#include <openssl/sha.h>

#include <array>
#include <charconv>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

// Enough for the executor's threads, the sweep and those that look.
constexpr size_t kMostIdle = 8;

// So long nobody waits for a server that has just let somebody wait in vain:
// calls that queue up behind each other would make a minute of two seconds.
constexpr int64_t kSilenceNs = 1'000'000'000;

// Redirections of a cluster that are followed for one call.
constexpr int kMostMoves = 3;

std::string Sha1Hex(std::string_view text) {
  std::array<unsigned char, SHA_DIGEST_LENGTH> digest;
  SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       digest.data());
  return absl::BytesToHexString(absl::string_view(
      reinterpret_cast<const char*>(digest.data()), digest.size()));
}

// A time-out to those who wait is a store that is not there.
absl::Status AsUnavailable(const absl::Status& status) {
  if (!absl::IsDeadlineExceeded(status)) return status;
  return absl::UnavailableError(status.message());
}

}  // namespace

RedisScript::RedisScript(std::string_view text)
    : text(text), sha1(Sha1Hex(text)) {}

absl::StatusOr<std::unique_ptr<RedisClient>> RedisClient::Open(
    const RedisOptions& options) {
  std::unique_ptr<RedisTls> tls;
  if (options.tls) {
    ASSIGN_OR_RETURN(tls, RedisTls::Create(options.tls_options));
  }
  std::unique_ptr<RedisClient> client(new RedisClient(options, std::move(tls)));
  absl::StatusOr<Borrowed> first = client->Borrow();
  if (!first.ok()) return AsUnavailable(first.status());
  LogInfo("connected to Redis",
          {{"address", options.address.Text()},
           {"version", first->connection->server_version()},
           {"tls", options.tls}});
  client->GiveBack(*std::move(first));
  return client;
}

absl::StatusOr<RedisClient::Borrowed> RedisClient::Borrow() {
  RedisAddress address;
  Borrowed borrowed;
  std::vector<std::unique_ptr<RedisConnection>>
      dead;  // closed without the lock
  {
    MutexLock lock(mu_);
    borrowed.generation = generation_;
    while (!idle_.empty()) {
      borrowed.connection = std::move(idle_.back());
      idle_.pop_back();
      if (borrowed.connection->Alive()) return borrowed;
      dead.push_back(std::move(borrowed.connection));
    }
    if (Clock::Real().MonotonicNs() < silent_until_ns_) return silent_;
    address = address_;
  }
  absl::StatusOr<std::unique_ptr<RedisConnection>> connection =
      RedisConnection::Open(options_, address, tls_.get());
  if (connection.ok()) {
    borrowed.connection = *std::move(connection);
    return borrowed;
  }
  MutexLock lock(mu_);
  if (absl::IsDeadlineExceeded(connection.status())) {
    silent_ = connection.status();
    silent_until_ns_ = Clock::Real().MonotonicNs() + kSilenceNs;
  }
  // The node that a cluster has sent us to may be gone; the first one knows.
  address_ = options_.address;
  return connection.status();
}

void RedisClient::GiveBack(Borrowed borrowed) {
  MutexLock lock(mu_);
  if (borrowed.generation == generation_ && idle_.size() < kMostIdle) {
    idle_.push_back(std::move(borrowed.connection));
  }
}

void RedisClient::Forget() {
  std::vector<std::unique_ptr<RedisConnection>> idle;
  MutexLock lock(mu_);
  ++generation_;
  idle.swap(idle_);
}

bool RedisClient::Follow(std::string_view error) {
  // "MOVED <slot> <host>:<port>"; no host means the one that said it.
  if (!error.starts_with("MOVED ")) return false;
  const size_t space = error.rfind(' ');
  const size_t colon = error.rfind(':');
  if (colon == std::string_view::npos || colon < space) return false;
  const std::string_view host = error.substr(space + 1, colon - space - 1);
  const std::string_view digits = error.substr(colon + 1);
  int port = 0;
  const auto [end, failed] =
      std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failed != std::errc() || end != digits.data() + digits.size()) {
    return false;
  }
  Forget();
  MutexLock lock(mu_);
  address_.path.clear();
  if (!host.empty()) address_.host = std::string(host);
  address_.port = port;
  LogInfo("the cluster keeps the sessions elsewhere",
          {{"address", address_.Text()}});
  return true;
}

// `unknown_script`, if not null, is set when the first reply is NOSCRIPT.
absl::StatusOr<RedisClient::Replies> RedisClient::CallOnce(
    const std::vector<RedisCommand>& commands, bool* unknown_script) {
  Replies replies;
  for (int moves = 0;;) {
    absl::StatusOr<Borrowed> borrowed = Borrow();
    if (!borrowed.ok()) return AsUnavailable(borrowed.status());
    absl::StatusOr<std::vector<RedisReply>> list =
        borrowed->connection->Call(commands);
    if (!list.ok()) {
      if (absl::IsResourceExhausted(list.status())) {  // nothing was sent
        GiveBack(*std::move(borrowed));
        return list.status();
      }
      // Others made at that time are likely to be lost too.
      Forget();
      if (absl::IsDeadlineExceeded(list.status()) || replies.repeated) {
        return AsUnavailable(list.status());
      }
      replies.repeated = true;
      continue;
    }
    const RedisReply* error = nullptr;
    for (const RedisReply& reply : *list) {
      if (reply.is_error() && error == nullptr) error = &reply;
    }
    if (error == nullptr) {
      GiveBack(*std::move(borrowed));
      replies.list = *std::move(list);
      return replies;
    }
    if (unknown_script != nullptr &&
        absl::StartsWith(list->front().bytes, "NOSCRIPT")) {
      GiveBack(*std::move(borrowed));
      *unknown_script = true;
      return replies;
    }
    if (++moves <= kMostMoves && Follow(error->bytes)) continue;
    // It may come of where the connection leads, as after a failover: the next
    // call makes a new one.
    const absl::Status status = FromRedisError(error->bytes);
    if (!IsNoSpace(status)) Forget();
    return status;
  }
}

absl::StatusOr<RedisClient::Replies> RedisClient::Call(
    const std::vector<RedisCommand>& commands) {
  return CallOnce(commands, /*unknown_script=*/nullptr);
}

absl::StatusOr<RedisClient::Replies> RedisClient::Run(
    const RedisScript& script, const std::vector<std::string_view>& keys,
    const std::vector<std::string_view>& arguments) {
  const std::string num_keys = std::to_string(keys.size());
  RedisCommand command = {"EVALSHA", script.sha1, num_keys};
  command.insert(command.end(), keys.begin(), keys.end());
  command.insert(command.end(), arguments.begin(), arguments.end());
  std::vector<RedisCommand> commands = {std::move(command)};
  const std::string wanted = std::to_string(options_.wait_replicas);
  const std::string wait_ms = std::to_string((options_.timeout_ms + 1) / 2);
  if (options_.wait_replicas > 0) {
    commands.push_back({"WAIT", wanted, wait_ms});
  }
  bool unknown = false;
  absl::StatusOr<Replies> replies = CallOnce(commands, &unknown);
  if (replies.ok() && unknown) {
    const bool repeated = replies->repeated;
    commands[0][0] = "EVAL";
    commands[0][1] = script.text;
    replies = CallOnce(commands, /*unknown_script=*/nullptr);
    if (replies.ok()) replies->repeated |= repeated;
  }
  RETURN_IF_ERROR(replies.status());
  if (options_.wait_replicas > 0 &&
      replies->list[1].integer < options_.wait_replicas) {
    return absl::UnavailableError(absl::StrCat(
        "store: ", replies->list[1].integer,
        " replicas of Redis have the write, wait_replicas is ",
        options_.wait_replicas, "; it may be stored all the same"));
  }
  return replies;
}

}  // namespace reprise
