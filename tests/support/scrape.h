// Scraping metrics as Prometheus does, and checking them with its own tool.
#ifndef TESTS_SUPPORT_SCRAPE_H_
#define TESTS_SUPPORT_SCRAPE_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

namespace reprise {

// The output of a shell command, both streams, and its exit status.
struct CommandResult {
  std::string output;
  int status = -1;
};

inline CommandResult RunCommand(const std::string& command) {
  CommandResult result;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof(buffer), pipe)) {
    result.output.append(buffer, n);
  }
  result.status = pclose(pipe);
  return result;
}

inline bool HavePromtool() {
  return RunCommand("promtool --version").status == 0;
}

// promtool says nothing about metrics that it likes.
inline void ExpectPromtoolAccepts(const std::string& scrape) {
  const std::string path =
      ::testing::TempDir() + "scrape." + std::to_string(getpid());
  std::ofstream(path) << scrape;
  const CommandResult result =
      RunCommand("promtool check metrics < '" + path + "'");
  std::remove(path.c_str());
  EXPECT_EQ(result.status, 0) << result.output;
  EXPECT_EQ(result.output, "");
}

// A connection to a port of this machine; -1 if nobody listens.
inline int ConnectToPort(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) ==
      0) {
    return fd;
  }
  close(fd);
  return -1;
}

// The whole answer to GET /metrics on a port of this machine, headers first;
// empty if nobody listens.
inline std::string HttpGetMetrics(int port) {
  const int fd = ConnectToPort(port);
  std::string answer;
  if (fd >= 0) {
    const std::string request =
        "GET /metrics HTTP/1.1\r\nHost: localhost\r\n"
        "Connection: close\r\n\r\n";
    EXPECT_EQ(send(fd, request.data(), request.size(), 0),
              static_cast<ssize_t>(request.size()));
    char buffer[4096];
    for (ssize_t n; (n = recv(fd, buffer, sizeof(buffer), 0)) > 0;) {
      answer.append(buffer, static_cast<size_t>(n));
    }
  }
  close(fd);
  return answer;
}

// The value of the sample that `series` names, as in `name{label="value"}`; -1
// if there is none.
inline double MetricValue(const std::string& scrape,
                          const std::string& series) {
  const size_t at = ("\n" + scrape).find("\n" + series + " ");
  if (at == std::string::npos) return -1;
  return std::strtod(scrape.c_str() + at + series.size() + 1, nullptr);
}

// What follows the headers.
inline std::string HttpBody(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? "" : answer.substr(end + 4);
}

inline std::string ScrapeMetrics(int port) {
  return HttpBody(HttpGetMetrics(port));
}

// Nothing runs, nothing is leased, and of `slots` of the embedded model's as
// many are in use as sessions are resident: none is lost.
inline bool IsAtRest(const std::string& scrape, int slots) {
  const std::string model = "model=\"embedded\"";
  const auto sessions = [&](const std::string& state) {
    return MetricValue(
        scrape, "reprise_sessions{" + model + ",state=\"" + state + "\"}");
  };
  const double used =
      MetricValue(scrape, "reprise_state_pool_used_ratio{tier=\"slot\"}");
  return MetricValue(scrape, "reprise_requests_running{" + model + "}") == 0 &&
         sessions("active") == 0 &&
         std::lround(used * slots) == std::lround(sessions("resident"));
}

}  // namespace reprise

#endif  // TESTS_SUPPORT_SCRAPE_H_
