// Reads a stream to its end, bit by bit.
#ifndef TESTS_SUPPORT_ANSWER_H_
#define TESTS_SUPPORT_ANSWER_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "server/token_stream.h"

namespace reprise {

// What came out of a stream so far.
struct Answer {
  std::optional<StartedEvent> started;
  std::map<int32_t, std::string> texts;  // by index
  std::map<int32_t, std::vector<int32_t>> ids;
  std::map<int32_t, std::vector<SampledToken>> logprobs;
  std::map<int32_t, FinishedEvent> finished;
  std::vector<DeltaEvent> deltas;
  std::optional<absl::Status> status;

  const std::string& text() { return texts[0]; }
  FinishReason reason() { return finished.at(0).reason; }

  // Takes what there is; checks the order of events.
  void Read(TokenStream& stream) {
    while (std::optional<StreamEvent> event = stream.Pop()) {
      EXPECT_FALSE(status.has_value());
      if (auto* begin = std::get_if<StartedEvent>(&*event)) {
        EXPECT_FALSE(started.has_value());
        EXPECT_TRUE(deltas.empty() && finished.empty());
        started = std::move(*begin);
      } else if (auto* delta = std::get_if<DeltaEvent>(&*event)) {
        EXPECT_TRUE(started.has_value());
        EXPECT_FALSE(finished.contains(delta->index));
        texts[delta->index] += delta->text;
        for (int32_t id : delta->token_ids) ids[delta->index].push_back(id);
        for (const SampledToken& token : delta->logprobs) {
          logprobs[delta->index].push_back(token);
        }
        deltas.push_back(std::move(*delta));
      } else {
        FinishedEvent& end = std::get<FinishedEvent>(*event);
        EXPECT_TRUE(started.has_value());
        EXPECT_TRUE(finished.emplace(end.index, std::move(end)).second);
      }
    }
    status = stream.FinalStatus();
  }
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_ANSWER_H_
