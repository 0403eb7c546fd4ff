// The `reprise` binary against a server in this process.
#ifndef TESTS_CLIENT_CLI_FIXTURE_H_
#define TESTS_CLIENT_CLI_FIXTURE_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/client/fake_server.h"
#include "tests/support/process.h"

namespace reprise {

inline constexpr char kBinary[] = REPRISE_BINARY_DIR "/reprise";

struct Outcome {
  int exit_code = 0;
  std::string out;
  std::string err;
};

class CliTest : public ::testing::Test {
 protected:
  std::vector<std::string> Arguments(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(),
                     {kBinary, "--server=" + server_.address()});
    return arguments;
  }
  Outcome Run(const std::vector<std::string>& arguments,
              const std::string& input = "") {
    Process process(Arguments(arguments), Process::Streams::kPipes);
    process.Write(input);
    process.CloseInput();
    const int exit_code = process.Wait();
    return {exit_code, process.out(), process.err()};
  }

  FakeServer server_;
};

}  // namespace reprise

#endif  // TESTS_CLIENT_CLI_FIXTURE_H_
