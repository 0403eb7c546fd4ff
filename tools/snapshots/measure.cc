#include "tools/snapshots/measure.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_copy.h"
#include "engine/state/state_pool.h"

namespace reprise::snapshots {
namespace {

struct Way {
  const char* name;
  SnapshotEncoding encoding;
};
constexpr std::array<Way, 4> kWays = {{
    {"f32", {StateEncoding::kF32, false}},
    {"f32+zstd", {StateEncoding::kF32, true}},
    {"bf16", {StateEncoding::kBf16, false}},
    {"bf16+zstd", {StateEncoding::kBf16, true}},
}};

double MedianSeconds(double seconds, const std::function<void()>& run) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  };
  run();
  std::vector<double> times;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    run();
    times.push_back(since(start));
  } while (since(begin) < seconds || times.size() < 3);
  const auto middle = times.begin() + std::ssize(times) / 2;
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// The logarithm of the sum of all e^x.
double LogSum(std::span<const float> logits) {
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - most);
  return most + std::log(sum);
}

int32_t Likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// What a row of logits of each of two states says of the token that follows.
void Compare(std::span<const float> exact, std::span<const float> rounded,
             int32_t next, TurnEffect& effect) {
  const double exact_sum = LogSum(exact), rounded_sum = LogSum(rounded);
  double divergence = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    const double p = exact[i] - exact_sum;
    divergence += std::exp(p) * (p - (rounded[i] - rounded_sum));
  }
  effect.mean_divergence += divergence;
  effect.max_divergence = std::max(effect.max_divergence, divergence);
  effect.agreement += Likeliest(exact) == Likeliest(rounded) ? 1 : 0;
  effect.exact_loss += exact_sum - exact[next];
  effect.written_loss += rounded_sum - rounded[next];
}

// A conversation from one place of the text, and its twin that is rounded.
class Place {
 public:
  Place(Engine& engine, std::span<const int32_t> text, StateSlot exact,
        StateSlot rounded, StatePool& pool)
      : engine_(engine),
        text_(text),
        pool_(pool),
        exact_(std::move(exact)),
        rounded_(std::move(rounded)) {}

  void Read(int64_t tokens) {
    const int64_t chunk = engine_.max_rows() / kTileRows * kTileRows;
    while (position_ < tokens) {
      const int64_t count = std::min(chunk, tokens - position_);
      const StepSegment segment = {.tokens = text_.subspan(position_, count),
                                   .position = position_,
                                   .slot = exact_.data(),
                                   .logits = LogitsFor::kNone};
      engine_.Step({&segment, 1});
      position_ += count;
    }
    CopyState(engine_.layout(), position_, exact_.data(), rounded_.data());
  }

  std::string Encode(const StateSlot& slot, const SnapshotEncoding& how) const {
    SessionRecord record;
    record.revision = 1;
    record.position = position_;
    record.pending_token = text_[position_];
    return EncodeSnapshot(engine_.info().fingerprints, record, engine_.layout(),
                          slot.bytes(), how);
  }
  std::string EncodeExact(const SnapshotEncoding& how) const {
    return Encode(exact_, how);
  }

  // Into a slot that was taken for it, as a resume does.
  absl::StatusOr<StateSlot> Decode(const std::string& bytes) {
    ASSIGN_OR_RETURN(StateSlot slot, pool_.Acquire());
    RETURN_IF_ERROR(DecodeSnapshot(bytes, engine_.info().fingerprints,
                                   engine_.layout(), engine_.info().vocab_size,
                                   slot.bytes())
                        .status());
    return slot;
  }

  absl::Status Round(StateEncoding elements) {
    const std::string bytes = Encode(rounded_, {elements, false});
    rounded_ = StateSlot();
    ASSIGN_OR_RETURN(rounded_, Decode(bytes));
    return absl::OkStatus();
  }

  // Both read the next `count` tokens of the text.
  void Turn(int64_t count, TurnEffect& effect) {
    const std::span<const int32_t> tokens = text_.subspan(position_, count);
    const MatrixView<float> logits = Step(tokens, tokens, LogitsFor::kAllRows);
    for (int64_t i = 0; i < count; ++i) {
      Compare(logits.RowSpan(i), logits.RowSpan(count + i),
              text_[position_ + i + 1], effect);
    }
    position_ += count;
  }

  // How many of `count` tokens, each the likeliest, are equal from the first.
  int64_t Greedy(int64_t count) {
    int32_t exact = text_[position_], rounded = exact;
    for (int64_t i = 0; i < count; ++i) {
      const MatrixView<float> logits =
          Step({&exact, 1}, {&rounded, 1}, LogitsFor::kLastRow);
      exact = Likeliest(logits.RowSpan(0));
      rounded = Likeliest(logits.RowSpan(1));
      if (exact != rounded) return i;
      ++position_;
    }
    return count;
  }

 private:
  MatrixView<float> Step(std::span<const int32_t> exact,
                         std::span<const int32_t> rounded, LogitsFor which) {
    const std::array<StepSegment, 2> segments = {{
        {exact, position_, exact_.data(), which},
        {rounded, position_, rounded_.data(), which},
    }};
    return engine_.Step(segments);
  }

  Engine& engine_;
  const std::span<const int32_t> text_;
  StatePool& pool_;
  StateSlot exact_;
  StateSlot rounded_;
  int64_t position_ = 0;
};

absl::StatusOr<Place> StartPlace(Engine& engine, std::span<const int32_t> text,
                                 StatePool& pool) {
  ASSIGN_OR_RETURN(StateSlot exact, pool.Acquire());
  ASSIGN_OR_RETURN(StateSlot rounded, pool.Acquire());
  return Place(engine, text, std::move(exact), std::move(rounded), pool);
}

absl::Status Time(Place& place, double seconds,
                  std::vector<EncodingCost>& costs) {
  absl::Status status;
  for (size_t way = 0; way < kWays.size(); ++way) {
    const SnapshotEncoding& how = kWays[way].encoding;
    const std::string bytes = place.EncodeExact(how);
    costs[way].encode_seconds =
        MedianSeconds(seconds, [&] { place.EncodeExact(how); });
    costs[way].decode_seconds = MedianSeconds(
        seconds, [&] { status.Update(place.Decode(bytes).status()); });
  }
  return status;
}

absl::Status CheckText(int64_t tokens, int64_t max_rows,
                       const MeasureOptions& options) {
  const int64_t needed =
      options.prompt_tokens + options.turns * options.turn_tokens + 1;
  if (tokens < needed + options.places) {
    return absl::InvalidArgumentError(
        absl::StrCat("the text has ", tokens, " tokens, ",
                     needed + options.places, " are needed at least"));
  }
  if (2 * options.turn_tokens <= max_rows) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("two turns of ", options.turn_tokens,
                   " tokens are more than a step has, ", max_rows));
}

}  // namespace

absl::StatusOr<Measurements> Measure(Engine& engine,
                                     const std::vector<int32_t>& text,
                                     const MeasureOptions& options) {
  const int64_t size = std::ssize(text);
  RETURN_IF_ERROR(CheckText(size, engine.max_rows(), options));
  ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                   StatePool::Create(engine.layout(), /*num_slots=*/3));
  const int64_t length =
      options.prompt_tokens + options.turns * options.turn_tokens + 1;
  Measurements found;
  for (const Way& way : kWays) found.encodings.push_back({.name = way.name});
  found.turns.resize(options.turns);
  for (int64_t i = 0; i < options.places; ++i) {
    const int64_t begin =
        options.places > 1 ? i * (size - length) / (options.places - 1) : 0;
    const auto part = std::span(text).subspan(begin, length);
    {
      ASSIGN_OR_RETURN(Place place, StartPlace(engine, part, *pool));
      place.Read(options.prompt_tokens);
      for (size_t way = 0; way < kWays.size(); ++way) {
        found.encodings[way].bytes +=
            static_cast<double>(place.EncodeExact(kWays[way].encoding).size());
      }
      if (i + 1 == options.places) {
        RETURN_IF_ERROR(Time(place, options.seconds, found.encodings));
      }
      for (TurnEffect& effect : found.turns) {
        RETURN_IF_ERROR(place.Round(options.elements));
        place.Turn(options.turn_tokens, effect);
      }
    }
    ASSIGN_OR_RETURN(Place place, StartPlace(engine, part, *pool));
    place.Read(options.prompt_tokens);
    RETURN_IF_ERROR(place.Round(options.elements));
    const int64_t equal = place.Greedy(options.turn_tokens);
    found.greedy_equal += equal;
    found.greedy_tokens += options.turn_tokens;
    found.greedy_places += equal == options.turn_tokens ? 1 : 0;
  }
  const auto places = static_cast<double>(options.places);
  for (EncodingCost& cost : found.encodings) cost.bytes /= places;
  for (TurnEffect& effect : found.turns) {
    const double tokens = places * static_cast<double>(options.turn_tokens);
    effect.mean_divergence /= tokens;
    effect.agreement /= tokens;
    effect.exact_loss /= tokens;
    effect.written_loss /= tokens;
  }
  return found;
}

}  // namespace reprise::snapshots
