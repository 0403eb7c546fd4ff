// A call as frames of HTTP/2, by hand: what gRPC's own client makes of an
// answer does not tell what the server sent.
#ifndef TESTS_INTEGRATION_HTTP2_CALL_H_
#define TESTS_INTEGRATION_HTTP2_CALL_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace reprise {

// One call on a connection of its own. Sends the body as fast as the windows
// allow, until the stream was ended or reset.
class Http2Call {
 public:
  Http2Call(int port, const std::string& path, std::string body);
  ~Http2Call();
  Http2Call(const Http2Call&) = delete;
  Http2Call& operator=(const Http2Call&) = delete;

  // Until the stream's end; false if that does not come in a minute, or the
  // stream is reset or the connection ends before it.
  bool Run();

  // Of the headers that ended the stream; -1 if there is none.
  int grpc_status() const;
  // Whether the client was still sending when the end came.
  bool cut_short() const { return sent_ < body_.size(); }

 private:
  void SendBody();
  bool Receive();
  void Take(uint8_t type, uint8_t flags, size_t stream,
            const std::string& payload);

  const std::string body_;
  const int fd_;
  std::string out_;  // to be sent
  std::string in_;   // received, not yet a whole frame
  size_t sent_ = 0;  // of the body; one more when its end was
  int64_t stream_window_ = 65'535;
  int64_t connection_window_ = 65'535;
  bool ended_ = false;
  bool reset_ = false;
  std::string trailers_;  // packed
};

}  // namespace reprise

#endif  // TESTS_INTEGRATION_HTTP2_CALL_H_
