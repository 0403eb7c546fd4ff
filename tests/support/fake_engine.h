// A tiny engine whose arithmetic can be followed by hand: see fake_state.h.
// Nothing depends on what else is in a step.
#ifndef TESTS_SUPPORT_FAKE_ENGINE_H_
#define TESTS_SUPPORT_FAKE_ENGINE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "engine/base/log.h"
#include "engine/engine.h"
#include "engine/kernels/state_kernels.h"
#include "tests/support/fake_state.h"

namespace reprise {

class FakeEngine : public Engine {
 public:
  struct Options {
    int64_t vocab_size = 32;
    int64_t max_rows = 512;
    // The state remembers where segments of more than one row were cut, if not
    // at a multiple of kTileRows, as rounding does in a real engine.
    bool cuts_matter = false;
    // As of a model whose state grows by a row for every token.
    std::optional<int64_t> max_context;
  };

  explicit FakeEngine(const Options& options)
      : options_(options), layout_(options.max_context.value_or(1)) {
    layout_.Add("0.lanes", {4});
    layout_.Add("0.count", {1});
    if (options.max_context.has_value()) layout_.AddContext("0.rows", {1});
    info_.name = "fake";
    info_.family = "fake";
    info_.vocab_size = options.vocab_size;
    info_.state_bytes = layout_.payload_bytes();
    info_.fingerprints = {.model = 1, .layout = layout_.fingerprint()};
    logits_.resize(options.max_rows * options.vocab_size);
  }

  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return layout_; }
  int64_t max_rows() const override { return options_.max_rows; }

  MatrixView<float> Step(std::span<const StepSegment> segments) override {
    if (before_step) before_step(segments);
    ++steps;
    int64_t rows = 0, logit_rows = 0;
    std::set<std::byte*> slots;
    for (const StepSegment& segment : segments) {
      const int64_t count = static_cast<int64_t>(segment.tokens.size());
      CHECK(count >= 1);
      CHECK(slots.insert(segment.slot).second);
      rows += count;
      FakeState state = Load(segment.slot);
      CHECK(segment.position == static_cast<int64_t>(state.count));
      for (int64_t i = 0; i < count; ++i) {
        CHECK(segment.tokens[i] >= 0);
        CHECK(segment.tokens[i] < options_.vocab_size);
        state.Consume(static_cast<uint64_t>(segment.tokens[i]));
        if (segment.logits == LogitsFor::kAllRows ||
            (segment.logits == LogitsFor::kLastRow && i + 1 == count)) {
          WriteLogits(state, logit_rows++);
        }
      }
      const int64_t rest = count % kTileRows;
      if (options_.cuts_matter && rest > 1) {
        state.lanes[0] =
            static_cast<float>(MixBits(state.Hash() + rest) & 0xFFFFFF);
      }
      Store(state, segment.slot);
    }
    CHECK(rows <= options_.max_rows);
    total_rows += rows;
    return {logits_.data(), logit_rows, options_.vocab_size};
  }

  FakeState Load(const std::byte* slot) const {
    FakeState state;
    std::memcpy(state.lanes.data(), slot + layout_.fields()[0].offset, 16);
    std::memcpy(&state.count, slot + layout_.fields()[1].offset, 4);
    return state;
  }

  // Called at the start of a step, if set.
  std::function<void(std::span<const StepSegment>)> before_step;
  bool overflows = false;  // logits are not numbers from now on
  int64_t steps = 0;
  int64_t total_rows = 0;  // of all steps

 private:
  void Store(const FakeState& state, std::byte* slot) const {
    std::memcpy(slot + layout_.fields()[0].offset, state.lanes.data(), 16);
    std::memcpy(slot + layout_.fields()[1].offset, &state.count, 4);
  }
  void WriteLogits(const FakeState& state, int64_t row) {
    for (int64_t v = 0; v < options_.vocab_size; ++v) {
      logits_[row * options_.vocab_size + v] =
          overflows ? std::numeric_limits<float>::quiet_NaN() : state.Logit(v);
    }
  }

  const Options options_;
  ModelInfo info_;
  StateLayout layout_;
  std::vector<float> logits_;  // [max_rows, vocab_size]
};

}  // namespace reprise

#endif  // TESTS_SUPPORT_FAKE_ENGINE_H_
