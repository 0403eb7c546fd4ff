// One connection to a Redis or Valkey server: who we are, commands, replies.
// For the Redis store alone.
#ifndef SERVER_STORE_REDIS_CONNECTION_H_
#define SERVER_STORE_REDIS_CONNECTION_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/redis_channel.h"
#include "server/store/redis_uri.h"

namespace reprise {

struct RedisReply {
  enum class Kind { kNone, kBytes, kInteger, kList, kError };
  Kind kind = Kind::kNone;
  std::string bytes;  // of kBytes, which are statuses too, and of kError
  int64_t integer = 0;
  std::vector<RedisReply> list;

  bool is_none() const { return kind == Kind::kNone; }
  bool is_bytes() const { return kind == Kind::kBytes; }
  bool is_error() const { return kind == Kind::kError; }
};

// A command and its arguments; what they point to must outlive the call.
using RedisCommand = std::vector<std::string_view>;

// Used by one thread at a time.
class RedisConnection {
 public:
  // Connects, authenticates and chooses the database. `tls` is null for plain
  // connections, else it must outlive this. Unavailable, naming the address
  // and saying what to do, if the server cannot be reached, does not let us in,
  // or cannot be written because it is a replica; DeadlineExceeded if it does
  // not answer in time.
  static absl::StatusOr<std::unique_ptr<RedisConnection>> Open(
      const RedisOptions& options, const RedisAddress& address, RedisTls* tls);
  ~RedisConnection();

  // Sends the commands together and returns a reply for each, errors of the
  // server's among them. Unavailable if the connection is lost and
  // DeadlineExceeded if the server is silent for the time-out, both naming the
  // address; the commands may have been carried out all the same, and the
  // connection is of no use then. ResourceExhausted, naming the limit, if an
  // argument is larger than Redis takes.
  absl::StatusOr<std::vector<RedisReply>> Call(
      const std::vector<RedisCommand>& commands);

  // Whether it may be used again: the server has not closed it.
  bool Alive() const { return channel_->Quiet(); }

  const std::string& server_version() const { return version_; }

 private:
  class Parser;
  RedisConnection(std::string address, std::unique_ptr<RedisChannel> channel,
                  const RedisOptions& options);

  absl::StatusOr<std::vector<RedisReply>> CallFor(
      const std::vector<RedisCommand>& commands, const RedisPatience& patience);
  absl::Status Greet(const RedisOptions& options,
                     const RedisPatience& patience);

  const std::string address_;
  const std::unique_ptr<RedisChannel> channel_;
  const std::unique_ptr<Parser> parser_;
  const int64_t timeout_ms_;
  std::string version_;
};

// What an error reply means: NoSpaceError if the server's memory is full, else
// Unavailable; with what to do about it, where that is known.
absl::Status FromRedisError(std::string_view error);

}  // namespace reprise

#endif  // SERVER_STORE_REDIS_CONNECTION_H_
