#include "tests/integration/http2_call.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace reprise {
namespace {

enum Type : uint8_t {
  kData = 0,
  kHeaders = 1,
  kReset = 3,
  kSettings = 4,
  kPing = 6,
  kWindow = 8,
};
constexpr uint8_t kEndStream = 1;
constexpr uint8_t kAnswer = 1;  // to SETTINGS and PING
constexpr uint8_t kEndHeaders = 4;
constexpr int64_t kMaxFrame = 16'384;  // the largest that everybody takes

std::string Sized(const std::string& text) {
  return static_cast<char>(text.size()) + text;
}

// Big-endian.
std::string Number(size_t value, int bytes) {
  std::string text;
  while (--bytes >= 0) text += static_cast<char>(value >> (8 * bytes));
  return text;
}

size_t NumberAt(const std::string& text, size_t at, size_t bytes) {
  size_t value = 0;
  for (size_t i = 0; i < bytes; ++i) {
    value = value << 8 | static_cast<uint8_t>(text[at + i]);
  }
  return value;
}

std::string Frame(Type type, uint8_t flags, size_t stream,
                  const std::string& payload) {
  return Number(payload.size(), 3) + static_cast<char>(type) +
         static_cast<char>(flags) + Number(stream, 4) + payload;
}

}  // namespace

Http2Call::Http2Call(int port, const std::string& path, std::string body)
    : body_(std::move(body)), fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(
      connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  // HPACK: indexed POST and http; literals for :path (4), :authority (1),
  // content-type (31), and te, a new name.
  const std::string headers =
      "\x83\x86\x04" + Sized(path) + '\x01' + Sized("localhost") + "\x0f\x10" +
      Sized("application/grpc") + '\0' + Sized("te") + Sized("trailers");
  out_ = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "") +
         Frame(kHeaders, kEndHeaders, 1, headers);
}

Http2Call::~Http2Call() { close(fd_); }

bool Http2Call::Run() {
  constexpr int kMinuteMs = 60'000;
  while (!ended_ && !reset_) {
    SendBody();
    pollfd ready{fd_, POLLIN, 0};
    if (!out_.empty()) ready.events |= POLLOUT;
    if (poll(&ready, 1, kMinuteMs) <= 0) return false;
    if ((ready.revents & POLLOUT) != 0) {
      const ssize_t size =
          send(fd_, out_.data(), out_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (size < 0) return false;
      out_.erase(0, static_cast<size_t>(size));
    }
    if ((ready.revents & (POLLIN | POLLHUP)) != 0 && !Receive()) return false;
  }
  return ended_;
}

// Names and values are written out where a connection has its first.
int Http2Call::grpc_status() const {
  const std::string name = "grpc-status";
  const size_t at = trailers_.find(name);
  if (at == std::string::npos) return -1;
  return std::atoi(trailers_.c_str() + at + name.size() + 1);  // and its length
}

void Http2Call::SendBody() {
  while (out_.size() < 4 * kMaxFrame && sent_ <= body_.size()) {
    const auto left = static_cast<int64_t>(body_.size() - sent_);
    const int64_t size =
        std::min({kMaxFrame, stream_window_, connection_window_, left});
    if (size <= 0 && left > 0) return;
    out_ += Frame(kData, size == left ? kEndStream : 0, 1,
                  body_.substr(sent_, static_cast<size_t>(size)));
    sent_ += static_cast<size_t>(size) + (size == left ? 1 : 0);
    stream_window_ -= size;
    connection_window_ -= size;
  }
}

bool Http2Call::Receive() {
  char bytes[1 << 14];
  const ssize_t size = recv(fd_, bytes, sizeof(bytes), 0);
  if (size <= 0) return false;
  in_.append(bytes, static_cast<size_t>(size));
  constexpr size_t kHeader = 9;
  while (in_.size() >= kHeader) {
    const size_t end = kHeader + NumberAt(in_, 0, 3);
    if (in_.size() < end) break;
    Take(static_cast<uint8_t>(in_[3]), static_cast<uint8_t>(in_[4]),
         NumberAt(in_, 5, 4), in_.substr(kHeader, end - kHeader));
    in_.erase(0, end);
  }
  return true;
}

void Http2Call::Take(uint8_t type, uint8_t flags, size_t stream,
                     const std::string& payload) {
  if (type == kWindow) {
    (stream == 0 ? connection_window_ : stream_window_) +=
        static_cast<int64_t>(NumberAt(payload, 0, 4));
  } else if (type == kPing && flags == 0) {
    out_ += Frame(kPing, kAnswer, 0, payload);
  } else if (type == kSettings && flags == 0) {
    constexpr size_t kInitialWindow = 4;
    constexpr int64_t kDefaultWindow = 65'535;
    for (size_t at = 0; at + 6 <= payload.size(); at += 6) {
      if (NumberAt(payload, at, 2) != kInitialWindow) continue;
      stream_window_ +=
          static_cast<int64_t>(NumberAt(payload, at + 2, 4)) - kDefaultWindow;
    }
    out_ += Frame(kSettings, kAnswer, 0, "");
  } else if (type == kReset && !ended_) {
    reset_ = true;
  } else if (type == kHeaders && (flags & kEndStream) != 0) {
    trailers_ = payload;
    ended_ = true;
  }
}

}  // namespace reprise
