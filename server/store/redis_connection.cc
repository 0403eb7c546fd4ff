#include "server/store/redis_connection.h"

#include <hiredis/hiredis.h>

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/store/snapshot_store.h"

namespace reprise {
namespace {

// proto-max-bulk-len, as Redis comes.
constexpr size_t kMostArgumentBytes = 512 << 20;

// A command that goes on for so many time-outs is given up, even if bytes
// trickle.
constexpr int64_t kMostTimeouts = 12;

void AppendCommand(const RedisCommand& command, std::string& out) {
  absl::StrAppend(&out, "*", command.size(), "\r\n");
  for (const std::string_view argument : command) {
    absl::StrAppend(&out, "$", argument.size(), "\r\n");
    out.append(argument);
    out.append("\r\n");
  }
}

RedisReply FromHiredis(const redisReply& from) {
  RedisReply reply;
  switch (from.type) {
    case REDIS_REPLY_NIL:
      break;
    case REDIS_REPLY_INTEGER:
      reply.kind = RedisReply::Kind::kInteger;
      reply.integer = from.integer;
      break;
    case REDIS_REPLY_ARRAY:
      reply.kind = RedisReply::Kind::kList;
      reply.list.reserve(from.elements);
      for (size_t i = 0; i < from.elements; ++i) {
        reply.list.push_back(FromHiredis(*from.element[i]));
      }
      break;
    default:
      reply.kind = from.type == REDIS_REPLY_ERROR ? RedisReply::Kind::kError
                                                  : RedisReply::Kind::kBytes;
      reply.bytes.assign(from.str, from.len);
  }
  return reply;
}

// The value beside `name` in a reply of pairs; empty if there is none.
std::string_view ValueOf(const RedisReply& pairs, std::string_view name) {
  for (size_t i = 0; i + 1 < pairs.list.size(); i += 2) {
    if (pairs.list[i].bytes == name) return pairs.list[i + 1].bytes;
  }
  return "";
}

// A part of an error reply, and what to do about it. Looked for anywhere: an
// error inside a script comes wrapped in words that differ between versions.
struct ReplyAdvice {
  absl::string_view sign;
  absl::string_view advice;
};
constexpr ReplyAdvice kReplyAdvice[] = {
    {"NOAUTH", "it wants a password: see --store in --help"},
    {"WRONGPASS", "user or password are wrong"},
    {"NOPERM", "the user's ACL must allow the commands in docs/stores.md"},
    {"READONLY", "it is a replica: name the primary"},
    {"MISCONF", "its disk may be full: see its log"},
    {"NOREPLICAS", "too few replicas are connected to it"},
    {"CLUSTERDOWN", "the cluster is not whole: see cluster_state"},
    {"MOVED", "the cluster moved the keys while they were used"},
};

}  // namespace

absl::Status FromRedisError(std::string_view error) {
  const absl::string_view text = ToAbsl(error);
  if (absl::StrContains(text, "OOM command not allowed")) {
    return NoSpaceError(
        "store: Redis has reached its maxmemory; raise it, or delete sessions");
  }
  std::string message = absl::StrCat("store: Redis answered: ", text);
  for (const ReplyAdvice& advice : kReplyAdvice) {
    if (!absl::StrContains(text, advice.sign)) continue;
    absl::StrAppend(&message, "; ", advice.advice);
    break;
  }
  return absl::UnavailableError(message);
}

// Replies out of the bytes of a connection.
class RedisConnection::Parser {
 public:
  Parser() : reader_(redisReaderCreate()) {}

  void Feed(std::string_view bytes) {
    redisReaderFeed(reader_.get(), bytes.data(), bytes.size());
  }
  // None if more bytes are needed. Unavailable if they are not Redis's.
  absl::StatusOr<std::optional<RedisReply>> Next() {
    void* reply = nullptr;
    if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
      return absl::UnavailableError(
          absl::StrCat("what answers is not Redis: ", reader_->errstr));
    }
    if (reply == nullptr) return std::nullopt;
    const std::unique_ptr<redisReply, decltype(&freeReplyObject)> owner(
        static_cast<redisReply*>(reply), freeReplyObject);
    return FromHiredis(*owner);
  }

 private:
  struct FreeReader {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };
  const std::unique_ptr<redisReader, FreeReader> reader_;
};

RedisConnection::RedisConnection(std::string address,
                                 std::unique_ptr<RedisChannel> channel,
                                 const RedisOptions& options)
    : address_(std::move(address)),
      channel_(std::move(channel)),
      parser_(std::make_unique<Parser>()),
      timeout_ms_(options.timeout_ms) {}

RedisConnection::~RedisConnection() = default;

absl::StatusOr<std::unique_ptr<RedisConnection>> RedisConnection::Open(
    const RedisOptions& options, const RedisAddress& address, RedisTls* tls) {
  const std::string name = address.Text();
  const auto patience = RedisPatience::For(options.connect_timeout_ms,
                                           options.connect_timeout_ms);
  const auto at = [&name](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("store: Redis at ", name,
                                                    ": ", status.message()));
  };
  absl::StatusOr<std::unique_ptr<RedisChannel>> channel =
      ConnectRedisSocket(address, patience);
  if (!channel.ok()) return at(channel.status());
  if (tls != nullptr) {
    channel = tls->Start(*std::move(channel), patience);
    if (!channel.ok()) return at(channel.status());
  }
  std::unique_ptr<RedisConnection> connection(
      new RedisConnection(name, *std::move(channel), options));
  RETURN_IF_ERROR(connection->Greet(options, patience));
  return connection;
}

absl::Status RedisConnection::Greet(const RedisOptions& options,
                                    const RedisPatience& patience) {
  RedisCommand hello = {"HELLO", "2"};
  if (!options.password.empty()) {
    const std::string_view user = options.user;
    hello.insert(hello.end(),
                 {"AUTH", user.empty() ? "default" : user, options.password});
  }
  hello.insert(hello.end(), {"SETNAME", "reprise"});
  ASSIGN_OR_RETURN(std::vector<RedisReply> replies, CallFor({hello}, patience));
  if (replies[0].is_error()) {
    const absl::Status error = FromRedisError(replies[0].bytes);
    return absl::UnavailableError(
        absl::StrCat(error.message(), " (at ", address_, ")"));
  }
  version_ = std::string(ValueOf(replies[0], "version"));
  const std::string_view role = ValueOf(replies[0], "role");
  if (role != "master" && !role.empty()) {
    return absl::UnavailableError(
        absl::StrCat("store: Redis at ", address_, " is a ", ToAbsl(role),
                     ", which cannot be written; name the primary"));
  }
  if (options.database == 0) return absl::OkStatus();
  const std::string database = std::to_string(options.database);
  ASSIGN_OR_RETURN(replies, CallFor({{"SELECT", database}}, patience));
  if (!replies[0].is_error()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("store: Redis at ", address_,
                                             ": database ", database, ": ",
                                             replies[0].bytes));
}

absl::StatusOr<std::vector<RedisReply>> RedisConnection::Call(
    const std::vector<RedisCommand>& commands) {
  return CallFor(commands,
                 RedisPatience::For(timeout_ms_, timeout_ms_ * kMostTimeouts));
}

absl::StatusOr<std::vector<RedisReply>> RedisConnection::CallFor(
    const std::vector<RedisCommand>& commands, const RedisPatience& patience) {
  std::string bytes;
  for (const RedisCommand& command : commands) {
    for (const std::string_view argument : command) {
      if (argument.size() <= kMostArgumentBytes) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          "store: ", argument.size(),
          " bytes in one piece, Redis takes at most ", kMostArgumentBytes));
    }
    AppendCommand(command, bytes);
  }
  const auto at = [this](const absl::Status& status) {
    return absl::Status(
        status.code(),
        absl::StrCat("store: Redis at ", address_, ": ", status.message()));
  };
  const absl::Status sent = channel_->Send(bytes, patience);
  if (!sent.ok()) return at(sent);
  std::vector<RedisReply> replies;
  std::array<char, 64 << 10> buffer;
  while (replies.size() < commands.size()) {
    absl::StatusOr<std::optional<RedisReply>> next = parser_->Next();
    if (!next.ok()) return at(next.status());
    if (next->has_value()) {
      replies.push_back(**std::move(next));
      continue;
    }
    const absl::StatusOr<size_t> received = channel_->Receive(buffer, patience);
    if (!received.ok()) return at(received.status());
    parser_->Feed({buffer.data(), *received});
  }
  return replies;
}

}  // namespace reprise
