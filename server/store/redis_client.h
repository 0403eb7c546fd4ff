// A Redis or Valkey server as one thing to call from many threads: a pool of
// connections that come back by themselves. For the Redis store alone.
#ifndef SERVER_STORE_REDIS_CLIENT_H_
#define SERVER_STORE_REDIS_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/mutex.h"
#include "server/store/redis_connection.h"
#include "server/store/redis_uri.h"

namespace reprise {

// A Lua script and how Redis knows it, the SHA-1 of its text.
struct RedisScript {
  explicit RedisScript(std::string_view text);
  std::string text;
  std::string sha1;
};

// Thread-safe. As many connections as threads that call; a few are kept.
class RedisClient {
 public:
  // Connects once, to see that it can. Errors as RedisConnection::Open, but
  // that a time-out is Unavailable too; InvalidArgument for files of TLS.
  static absl::StatusOr<std::unique_ptr<RedisClient>> Open(
      const RedisOptions& options);

  struct Replies {
    std::vector<RedisReply> list;  // one for each command
    // Sent twice, because the first answer was lost: the commands may have been
    // carried out twice.
    bool repeated = false;
  };
  // Sends the commands together. If the connection is lost, they are sent once
  // more over a new one, so they must be such that a second time does no harm.
  // Unavailable, saying why, if that failed too or the server does not answer
  // in time, and then they may have been carried out; or if a reply is an
  // error. NoSpaceError. A MOVED error of a cluster's node is followed.
  absl::StatusOr<Replies> Call(const std::vector<RedisCommand>& commands);

  // Call with one script; its text is sent only if the server does not know it.
  // With wait_replicas, Unavailable if too few replicas have what the script
  // wrote; it is written then all the same.
  absl::StatusOr<Replies> Run(const RedisScript& script,
                              const std::vector<std::string_view>& keys,
                              const std::vector<std::string_view>& arguments);

 private:
  RedisClient(const RedisOptions& options, std::unique_ptr<RedisTls> tls)
      : options_(options), tls_(std::move(tls)), address_(options.address) {}

  struct Borrowed {
    std::unique_ptr<RedisConnection> connection;
    int64_t generation = 0;
  };
  absl::StatusOr<Borrowed> Borrow();
  void GiveBack(Borrowed borrowed);
  // Makes no use of connections that were made until now.
  void Forget();
  // The new address if `error` is a MOVED one.
  bool Follow(std::string_view error);
  absl::StatusOr<Replies> CallOnce(const std::vector<RedisCommand>& commands,
                                   bool* unknown_script);

  const RedisOptions options_;
  const std::unique_ptr<RedisTls> tls_;  // null: plain; synchronises itself

  Mutex mu_;
  RedisAddress address_ ABSL_GUARDED_BY(mu_);  // of the URI, or of a MOVED
  std::vector<std::unique_ptr<RedisConnection>> idle_ ABSL_GUARDED_BY(mu_);
  int64_t generation_ ABSL_GUARDED_BY(mu_) = 0;  // of the connections in use
  // After a server that did not answer: what to say instead of asking again,
  // and until when.
  absl::Status silent_ ABSL_GUARDED_BY(mu_);
  int64_t silent_until_ns_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace reprise

#endif  // SERVER_STORE_REDIS_CLIENT_H_
