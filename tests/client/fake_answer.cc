#include "tests/client/fake_answer.h"

namespace reprise {

v1::GenerateResponse StartedMessage(const std::string& session_id) {
  v1::GenerateResponse message;
  v1::Started* started = message.mutable_started();
  started->set_prompt_tokens(5);
  started->set_session_id(session_id);
  started->set_resumed_from(v1::RESUME_SOURCE_NONE);
  return message;
}

v1::GenerateResponse DeltaMessage(const std::string& text,
                                  uint32_t tokens_so_far, uint32_t index) {
  v1::GenerateResponse message;
  message.mutable_delta()->set_text(text);
  message.mutable_delta()->set_index(index);
  message.mutable_delta()->mutable_usage()->set_completion_tokens(
      tokens_so_far);
  return message;
}

v1::GenerateResponse FinishedMessage(uint32_t tokens) {
  v1::GenerateResponse message;
  v1::Finished* finished = message.mutable_finished();
  finished->set_reason(v1::FINISH_REASON_LENGTH);
  finished->mutable_usage()->set_completion_tokens(tokens);
  return message;
}

FakeAnswer AnswerOf(const std::vector<std::string>& texts,
                    const std::string& session_id) {
  FakeAnswer answer;
  uint32_t tokens = 0;
  answer.messages.push_back(StartedMessage(session_id));
  for (const std::string& text : texts) {
    answer.messages.push_back(DeltaMessage(text, ++tokens));
  }
  answer.messages.push_back(FinishedMessage(tokens));
  return answer;
}

FakeAnswer ErrorAnswer(grpc::StatusCode code, const std::string& text) {
  FakeAnswer answer;
  answer.status = grpc::Status(code, text);
  return answer;
}

}  // namespace reprise
