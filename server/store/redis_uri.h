// Which Redis or Valkey to use and how, as its URI says it:
//
//   redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE][?NAME=VALUE&...]
//   rediss://...            the same over TLS
//   redis+unix:PATH[?...]   over a local socket
//
//   prefix=NAME             which of several stores in one database [reprise]
//   database=N              for redis+unix: [0]
//   password_file=FILE      its first line, in place of :PASSWORD
//   user=NAME               in place of USER, with password_file
//   ca=FILE                 authorities to trust, PEM [the system's]
//   cert=FILE, key=FILE     who we are, PEM, if the server asks for it
//   server_name=NAME        that the certificate must be for [HOST]
//   connect_timeout=MS      until a connection can be used [2000]
//   timeout=MS              without a byte moving, of one command [5000]
//   wait_replicas=N         that must have a write before it is acknowledged
//                           [0]
//
// User, password and values may hold %XX. For the Redis store alone.
#ifndef SERVER_STORE_REDIS_URI_H_
#define SERVER_STORE_REDIS_URI_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace reprise {

// Where a server listens: a local socket if `path` is set.
struct RedisAddress {
  std::string host;
  int port = 6379;
  std::string path;

  // For messages: "HOST:PORT" or the path.
  std::string Text() const;
};

struct RedisTlsOptions {
  std::string ca_file;    // empty: the system's authorities
  std::string cert_file;  // empty: none is shown to the server
  std::string key_file;
  std::string server_name;
};

struct RedisOptions {
  RedisAddress address;
  int64_t database = 0;
  std::string user;  // empty: the default one
  std::string password;
  std::string password_file;  // where that is from, if it is
  std::string prefix = "reprise";
  bool tls = false;
  RedisTlsOptions tls_options;
  int64_t connect_timeout_ms = 2000;
  int64_t timeout_ms = 5000;
  int64_t wait_replicas = 0;
};

// InvalidArgument, naming the part that is wrong and what it may be, and never
// the password. Reads no file.
absl::Status CheckRedisUri(std::string_view uri);

// The errors of CheckRedisUri; NotFound if password_file cannot be read.
absl::StatusOr<RedisOptions> ParseRedisUri(std::string_view uri);

}  // namespace reprise

#endif  // SERVER_STORE_REDIS_URI_H_
