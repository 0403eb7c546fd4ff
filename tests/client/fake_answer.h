// What a fake server answers to Generate.
#ifndef TESTS_CLIENT_FAKE_ANSWER_H_
#define TESTS_CLIENT_FAKE_ANSWER_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <string>
#include <vector>

#include "proto/inference.pb.h"

namespace reprise {

struct FakeAnswer {
  std::vector<v1::GenerateResponse> messages;
  grpc::Status status;
  // After the messages, waits until the client cancels.
  bool wait_for_cancel = false;
  // Sends the last message again and again, until the client cancels.
  bool endless = false;
};

v1::GenerateResponse StartedMessage(const std::string& session_id);
v1::GenerateResponse DeltaMessage(const std::string& text,
                                  uint32_t tokens_so_far, uint32_t index = 0);
v1::GenerateResponse FinishedMessage(uint32_t tokens);
// Started, a Delta for each text, Finished.
FakeAnswer AnswerOf(const std::vector<std::string>& texts,
                    const std::string& session_id = "");
// No message, only an error.
FakeAnswer ErrorAnswer(grpc::StatusCode code, const std::string& text);

}  // namespace reprise

#endif  // TESTS_CLIENT_FAKE_ANSWER_H_
