#include "tools/bench/engine_bench.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_pool.h"
#include "tools/bench/limits.h"

namespace reprise::bench {
namespace {

double Median(std::vector<double> values) {
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Calls `run` over and over for `seconds`, at least three times after one to
// warm up, and returns the median time of a call.
double MedianSeconds(double seconds, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  const double end = NowSeconds() + seconds;
  do {
    const double start = NowSeconds();
    run();
    times.push_back(NowSeconds() - start);
  } while (NowSeconds() < end || times.size() < 3);
  return Median(std::move(times));
}

// Tokens that differ from row to row, so that no embedding row is read twice
// in a row; what they are changes no time.
std::vector<int32_t> Tokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<int32_t>((i * 7919 + 13) % vocab);
  }
  return tokens;
}

int BytesPerWeight(WeightType type) {
  switch (type) {
    case WeightType::kInt8:
      return 1;
    case WeightType::kBf16:
      return 2;
    default:
      return 4;
  }
}

class EngineBench {
 public:
  EngineBench(Engine& engine, const MachineLimits& limits,
              const BenchOptions& options,
              const std::function<void(const Figure&)>& done)
      : engine_(engine), limits_(limits), options_(options), done_(done) {}

  absl::Status Run() {
    for (const int64_t sessions : options_.decode_sessions) {
      RETURN_IF_ERROR(Decode(sessions));
    }
    for (const int64_t tokens : options_.prefill_tokens) {
      RETURN_IF_ERROR(Prefill(tokens));
    }
    RETURN_IF_ERROR(Positions());
    return SuspendAndResume();
  }

 private:
  // Seconds that a step of `rows` rows over `sessions` states takes at best:
  // the weights come from memory once, every state is read and written once,
  // and every weight is multiplied for every row.
  std::pair<double, std::string> StepLimit(int64_t rows,
                                           int64_t sessions) const {
    const ModelInfo& info = engine_.info();
    const double bytes = static_cast<double>(info.step_weight_bytes) +
                         2.0 * sessions * info.state_bytes;
    const double weights = static_cast<double>(info.step_weight_bytes) /
                           BytesPerWeight(info.weight_type);
    const double memory = bytes / limits_.model_read_bytes_per_s;
    const double matmul = 2 * weights * rows / limits_.matmul_flops_per_s;
    return memory > matmul ? std::pair(memory, std::string("memory"))
                           : std::pair(matmul, std::string("matmul"));
  }

  absl::Status Decode(int64_t sessions) {
    ASSIGN_OR_RETURN(
        const std::unique_ptr<StatePool> pool,
        StatePool::Create(engine_.layout().slot_bytes(), sessions));
    const std::vector<int32_t> tokens =
        Tokens(sessions, engine_.info().vocab_size);
    std::vector<StateSlot> slots;
    std::vector<StepSegment> segments;
    for (int64_t i = 0; i < sessions; ++i) {
      ASSIGN_OR_RETURN(StateSlot slot, pool->Acquire());
      segments.push_back(
          {.tokens = std::span(tokens).subspan(i, 1), .slot = slot.data()});
      slots.push_back(std::move(slot));
    }
    const double seconds = MedianSeconds(options_.seconds, [&] {
      engine_.Step(segments);
      for (StepSegment& segment : segments) ++segment.position;
    });
    const auto [limit, by] = StepLimit(sessions, sessions);
    done_({absl::StrCat("decode, ", sessions, " sessions"), sessions / seconds,
           "tokens/s", sessions / limit, by});
    return absl::OkStatus();
  }

  // Advances the state in `slot` by `count` tokens, in the largest steps.
  void Consume(int64_t count, std::byte* slot, int64_t& position) {
    const int64_t chunk = engine_.max_rows() / kTileRows * kTileRows;
    const std::vector<int32_t> tokens =
        Tokens(std::min(count, chunk), engine_.info().vocab_size);
    while (count > 0) {
      const int64_t rows = std::min(count, chunk);
      const StepSegment segment = {.tokens = std::span(tokens).first(rows),
                                   .position = position,
                                   .slot = slot,
                                   .logits = LogitsFor::kNone};
      engine_.Step({&segment, 1});
      position += rows;
      count -= rows;
    }
  }

  absl::Status Prefill(int64_t tokens) {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(engine_.layout().slot_bytes(), 1));
    ASSIGN_OR_RETURN(const StateSlot slot, pool->Acquire());
    int64_t position = 0;
    const double seconds = MedianSeconds(
        options_.seconds, [&] { Consume(tokens, slot.data(), position); });
    const int64_t steps =
        (tokens + engine_.max_rows() - 1) / engine_.max_rows();
    const auto [limit, by] = StepLimit(tokens / steps, 1);
    done_({absl::StrCat("prefill, ", tokens, " tokens"), tokens / seconds,
           "tokens/s", tokens / (limit * steps), by});
    return absl::OkStatus();
  }

  // The session really consumes all tokens up to each position.
  absl::Status Positions() {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(engine_.layout().slot_bytes(), 1));
    ASSIGN_OR_RETURN(const StateSlot slot, pool->Acquire());
    const std::vector<int32_t> token = {1};
    int64_t position = 0;
    double first = 0;
    for (const int64_t target : options_.positions) {
      Consume(std::max<int64_t>(0, target - position), slot.data(), position);
      const double seconds = MedianSeconds(options_.seconds, [&] {
        const StepSegment segment = {
            .tokens = token, .position = position++, .slot = slot.data()};
        engine_.Step({&segment, 1});
      });
      // The promise is a flat cost: the first position is the limit.
      done_({absl::StrCat("time per token at position ", target), 1e6 * seconds,
             "us", 1e6 * first, first > 0 ? "the first position" : ""});
      if (first == 0) first = seconds;
    }
    return absl::OkStatus();
  }

  absl::Status SuspendAndResume() {
    const StateLayout& layout = engine_.layout();
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(layout.slot_bytes(), 1));
    ASSIGN_OR_RETURN(const StateSlot slot, pool->Acquire());
    SessionRecord record;
    Consume(256, slot.data(), record.position);
    record.pending_token = 1;
    const ModelFingerprints& fingerprints = engine_.info().fingerprints;
    std::string bytes;
    const double suspend = MedianSeconds(options_.seconds / 4, [&] {
      bytes = EncodeSnapshot(fingerprints, record, layout, slot.bytes());
    });
    absl::Status status;
    const double resume = MedianSeconds(options_.seconds / 4, [&] {
      status.Update(DecodeSnapshot(bytes, fingerprints, layout,
                                   engine_.info().vocab_size, slot.bytes())
                        .status());
    });
    RETURN_IF_ERROR(status);
    std::vector<std::byte> copy(layout.slot_bytes());
    const double memcpy_seconds = MedianSeconds(options_.seconds / 4, [&] {
      std::copy_n(slot.data(), copy.size(), copy.data());
    });
    done_({"suspend to memory", 1e6 * suspend, "us", 1e6 * memcpy_seconds,
           "memcpy of the state"});
    done_({"resume from memory", 1e6 * resume, "us", 1e6 * memcpy_seconds,
           "memcpy of the state"});
    done_({"snapshot", static_cast<double>(bytes.size()), "bytes",
           static_cast<double>(engine_.info().state_bytes), "state"});
    return absl::OkStatus();
  }

  Engine& engine_;
  const MachineLimits& limits_;
  const BenchOptions& options_;
  const std::function<void(const Figure&)>& done_;
};

}  // namespace

absl::StatusOr<MachineLimits> MeasureLimits(const Engine& engine) {
  // Twice the caches of small servers; larger ones are no worse measured.
  constexpr int64_t kBeyondCaches = int64_t{1} << 30;
  constexpr int64_t kMatmulRows = 512;
  MachineLimits limits;
  limits.read_bytes_per_s = MeasureReadSpeed(kBeyondCaches);
  limits.model_read_bytes_per_s =
      MeasureReadSpeed(engine.info().step_weight_bytes);
  ASSIGN_OR_RETURN(limits.matmul_flops_per_s,
                   MeasureMatmulRate(engine.info().weight_type, kMatmulRows));
  return limits;
}

absl::Status RunEngineBench(Engine& engine, const MachineLimits& limits,
                            const BenchOptions& options,
                            const std::function<void(const Figure&)>& done) {
  return EngineBench(engine, limits, options, done).Run();
}

}  // namespace reprise::bench
