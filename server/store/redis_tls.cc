#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "server/store/redis_channel.h"

namespace reprise {
namespace {

// The first error in OpenSSL's queue of this thread; empties the queue.
std::string OpenSslReason() {
  const unsigned long code = ERR_get_error();  // NOLINT(runtime/int): its type
  ERR_clear_error();
  if (code == 0) return "no reason given";
  const char* const reason = ERR_reason_error_string(code);
  return reason != nullptr ? reason : absl::StrCat("error ", code);
}

struct FreeSsl {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

// Works on bytes in memory and leaves the socket, its time-outs and signals to
// the channel below.
class TlsChannel : public RedisChannel {
 public:
  TlsChannel(SSL_CTX* context, std::unique_ptr<RedisChannel> below)
      : below_(std::move(below)), ssl_(SSL_new(context)) {
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    SSL_set_connect_state(ssl_.get());
  }

  // Unavailable, as RedisTls::Start.
  absl::Status Handshake(const std::string& server_name,
                         const RedisPatience& patience) {
    std::array<unsigned char, sizeof(in6_addr)> ip;
    const bool is_ip =
        inet_pton(AF_INET, server_name.c_str(), ip.data()) == 1 ||
        inet_pton(AF_INET6, server_name.c_str(), ip.data()) == 1;
    if (is_ip) {
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl_.get()),
                                    server_name.c_str());
    } else {
      SSL_set1_host(ssl_.get(), server_name.c_str());
      SSL_set_tlsext_host_name(ssl_.get(), server_name.c_str());
    }
    while (true) {
      ERR_clear_error();
      const int done = SSL_do_handshake(ssl_.get());
      const int error = SSL_get_error(ssl_.get(), done);
      // Also when it failed: the alert tells the server why.
      const absl::Status flushed = Flush(patience);
      if (done == 1) return flushed;
      if (error != SSL_ERROR_WANT_READ) return HandshakeError(server_name);
      RETURN_IF_ERROR(flushed);
      RETURN_IF_ERROR(Fetch(patience));
    }
  }

  absl::Status Send(std::string_view bytes,
                    const RedisPatience& patience) override {
    // A record at a time, so that what is encrypted does not pile up.
    constexpr size_t kPart = 256 << 10;
    while (!bytes.empty()) {
      const std::string_view part = bytes.substr(0, kPart);
      ERR_clear_error();
      size_t written = 0;
      if (SSL_write_ex(ssl_.get(), part.data(), part.size(), &written) != 1) {
        return absl::UnavailableError(
            absl::StrCat("cannot write over TLS: ", OpenSslReason()));
      }
      bytes.remove_prefix(written);
      RETURN_IF_ERROR(Flush(patience));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<size_t> Receive(std::span<char> buffer,
                                 const RedisPatience& patience) override {
    while (true) {
      ERR_clear_error();
      size_t received = 0;
      const int done =
          SSL_read_ex(ssl_.get(), buffer.data(), buffer.size(), &received);
      if (done == 1) return received;
      const int error = SSL_get_error(ssl_.get(), done);
      if (error == SSL_ERROR_ZERO_RETURN) {
        return absl::UnavailableError("the server has closed the connection");
      }
      if (error != SSL_ERROR_WANT_READ) {
        return absl::UnavailableError(
            absl::StrCat("cannot read over TLS: ", OpenSslReason()));
      }
      RETURN_IF_ERROR(Flush(patience));  // answers to changes of keys
      RETURN_IF_ERROR(Fetch(patience));
    }
  }

  // TLS 1.3 sends session tickets after the handshake, which come with the
  // first answer at the latest, and were read with it. What comes after the
  // last answer is the end.
  bool Quiet() const override { return below_->Quiet(); }

 private:
  absl::Status Flush(const RedisPatience& patience) {
    BIO* const out = SSL_get_wbio(ssl_.get());
    char* data = nullptr;
    const auto size = static_cast<size_t>(BIO_get_mem_data(out, &data));
    if (size == 0) return absl::OkStatus();
    const absl::Status status = below_->Send({data, size}, patience);
    BIO_reset(out);
    return status;
  }

  absl::Status Fetch(const RedisPatience& patience) {
    std::array<char, 16 << 10> buffer;
    ASSIGN_OR_RETURN(const size_t size, below_->Receive(buffer, patience));
    BIO_write(SSL_get_rbio(ssl_.get()), buffer.data(), static_cast<int>(size));
    return absl::OkStatus();
  }

  absl::Status HandshakeError(const std::string& server_name) {
    const long verified = SSL_get_verify_result(ssl_.get());
    if (verified == X509_V_OK) {
      return absl::UnavailableError(
          absl::StrCat("TLS: ", OpenSslReason(),
                       "; is this a port for TLS, and does the server know "
                       "our certificate?"));
    }
    ERR_clear_error();
    return absl::UnavailableError(absl::StrCat(
        "TLS: the certificate for \"", server_name,
        "\" is not accepted: ", X509_verify_cert_error_string(verified),
        "; ca=FILE names whom to trust, server_name=NAME whom to expect"));
  }

  const std::unique_ptr<RedisChannel> below_;
  const std::unique_ptr<SSL, FreeSsl> ssl_;
};

class OpenSslTls : public RedisTls {
 public:
  OpenSslTls(std::unique_ptr<SSL_CTX, FreeSsl> context,
             const std::string& server_name)
      : context_(std::move(context)), server_name_(server_name) {}

  absl::StatusOr<std::unique_ptr<RedisChannel>> Start(
      std::unique_ptr<RedisChannel> below,
      const RedisPatience& patience) override {
    auto channel =
        std::make_unique<TlsChannel>(context_.get(), std::move(below));
    RETURN_IF_ERROR(channel->Handshake(server_name_, patience));
    return channel;
  }

 private:
  // OpenSSL counts its users itself, and may be asked from any thread.
  const std::unique_ptr<SSL_CTX, FreeSsl> context_;
  const std::string server_name_;
};

absl::Status BadFile(std::string_view parameter, const std::string& file) {
  return absl::InvalidArgumentError(
      absl::StrCat("store: ", ToAbsl(parameter), ": ", file,
                   " cannot be used: ", OpenSslReason()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RedisTls>> RedisTls::Create(
    const RedisTlsOptions& options) {
  ERR_clear_error();
  std::unique_ptr<SSL_CTX, FreeSsl> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (options.ca_file.empty()) {
    SSL_CTX_set_default_verify_paths(context.get());
  } else if (SSL_CTX_load_verify_locations(
                 context.get(), options.ca_file.c_str(), nullptr) != 1) {
    return BadFile("ca", options.ca_file);
  }
  if (!options.cert_file.empty()) {
    if (SSL_CTX_use_certificate_chain_file(context.get(),
                                           options.cert_file.c_str()) != 1) {
      return BadFile("cert", options.cert_file);
    }
    if (SSL_CTX_use_PrivateKey_file(context.get(), options.key_file.c_str(),
                                    SSL_FILETYPE_PEM) != 1) {
      return BadFile("key", options.key_file);
    }
  }
  return std::make_unique<OpenSslTls>(std::move(context), options.server_name);
}

}  // namespace reprise
