// Bytes to and from a Redis server, plain or over TLS, with time-outs. For the
// Redis store alone.
#ifndef SERVER_STORE_REDIS_CHANNEL_H_
#define SERVER_STORE_REDIS_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/store/redis_uri.h"

namespace reprise {

// How long an operation may take. A large snapshot on a slow network takes
// long without anything being wrong, so what counts first is silence.
struct RedisPatience {
  int64_t silence_ms = 0;  // without a byte moving
  int64_t end_ns = 0;      // of Clock::Real(): in all

  // Both counted from now.
  static RedisPatience For(int64_t silence_ms, int64_t total_ms);
};

// One connection. Used by one thread at a time. Every function may return
// DeadlineExceeded when patience is at its end, and Unavailable, with the
// system's reason, when the connection is lost; it is of no use after that.
class RedisChannel {
 public:
  virtual ~RedisChannel() = default;

  // Returns when all bytes are given to the system.
  virtual absl::Status Send(std::string_view bytes,
                            const RedisPatience& patience) = 0;
  // Waits for at least one byte and returns how many there are.
  virtual absl::StatusOr<size_t> Receive(std::span<char> buffer,
                                         const RedisPatience& patience) = 0;
  // Whether nothing has come from the server: between two commands, whatever
  // has come is the end of the connection. Does not block.
  virtual bool Quiet() const = 0;
};

// Connects. `end_ns` bounds all but the look-up of the host's name, which takes
// as long as the system's resolver is set to. Unavailable, naming the address;
// DeadlineExceeded.
absl::StatusOr<std::unique_ptr<RedisChannel>> ConnectRedisSocket(
    const RedisAddress& address, const RedisPatience& patience);

// What TLS connections of one store share: the authorities and our certificate.
// Thread-safe.
class RedisTls {
 public:
  // InvalidArgument, naming the file, if one cannot be used.
  static absl::StatusOr<std::unique_ptr<RedisTls>> Create(
      const RedisTlsOptions& options);
  virtual ~RedisTls() = default;

  // Speaks TLS through `below` from here on. Unavailable, saying why, if the
  // server's certificate is not to be trusted or is for another name.
  virtual absl::StatusOr<std::unique_ptr<RedisChannel>> Start(
      std::unique_ptr<RedisChannel> below, const RedisPatience& patience) = 0;
};

}  // namespace reprise

#endif  // SERVER_STORE_REDIS_CHANNEL_H_
