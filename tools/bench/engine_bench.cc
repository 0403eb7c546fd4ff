#include "tools/bench/engine_bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/state_kernels.h"
#include "engine/state/snapshot.h"
#include "engine/state/state_copy.h"
#include "engine/state/state_pool.h"

namespace reprise::bench {
namespace {

double SecondsOf(const std::function<void()>& run) {
  const double start = NowSeconds();
  run();
  return NowSeconds() - start;
}

// Calls `run` over and over for `seconds`, at least three times after one to
// warm up, and returns the median time of a call.
double MedianSeconds(double seconds, const std::function<void()>& run) {
  run();
  std::vector<double> times;
  const double end = NowSeconds() + seconds;
  do {
    times.push_back(SecondsOf(run));
  } while (NowSeconds() < end || times.size() < 3);
  return Median(std::move(times));
}

// What calls of `run` take, and the memory's speed beside them.
struct TimeAndReadSpeed {
  double seconds = 0;
  double read_speed = 0;
};

// Calls `run` for a fifth of a second at a time, and in between reads `bytes`
// bytes for a quarter of that, for `seconds` in all. Medians of both. At least
// three calls, after one to warm up, and three readings.
TimeAndReadSpeed MedianBesideReading(double seconds, int64_t bytes,
                                     const std::function<void()>& run) {
  constexpr double kTurn = 0.2;
  MemoryReader reader(bytes);
  run();
  std::vector<double> times;
  std::vector<double> speeds;
  const double end = NowSeconds() + seconds;
  do {
    const double turn = std::min(kTurn, 0.8 * seconds / 3);
    for (double left = turn; left >= 0;) {
      times.push_back(SecondsOf(run));
      left -= times.back();
    }
    for (const double stop = NowSeconds() + turn / 4;;) {
      speeds.push_back(reader.Read());
      if (NowSeconds() >= stop) break;
    }
  } while (NowSeconds() < end || std::min(times.size(), speeds.size()) < 3);
  return {Median(std::move(times)), Median(std::move(speeds))};
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

// Repeats the rows that a session of `from` tokens has of what grows, as if it
// had consumed `to`.
void RepeatRows(const StateLayout& layout, int64_t from, int64_t to,
                std::byte* slot) {
  for (const StateField& field : layout.fields()) {
    if (field.growth == Growth::kNone) continue;
    const int64_t row = 4 * field.elements / field.shape[0];
    const int64_t end = std::min(to, field.shape[0]) * row;
    std::byte* data = slot + field.offset;
    for (int64_t filled = std::min(from, field.shape[0]) * row; filled < end;) {
      const int64_t bytes = std::min(filled, end - filled);
      std::memcpy(data + filled, data, static_cast<size_t>(bytes));
      filled += bytes;
    }
  }
}

class EngineBench {
 public:
  EngineBench(Engine& engine, const TokenWork& work,
              const MachineLimits& limits, const BenchOptions& options,
              const std::function<void(const Figure&)>& done)
      : engine_(engine),
        work_(work),
        limits_(limits),
        options_(options),
        done_(done) {}

  absl::Status Run() {
    for (const int64_t sessions : options_.decode_sessions) {
      RETURN_IF_ERROR(Decode(sessions));
    }
    for (const int64_t tokens : options_.prefill_tokens) {
      RETURN_IF_ERROR(Prefill(tokens));
    }
    RETURN_IF_ERROR(Positions());
    return options_.suspend ? SuspendAndResume() : absl::OkStatus();
  }

 private:
  struct StepShape {
    int64_t rows = 0;
    int64_t logit_rows = 0;
    int64_t sessions = 0;
    int64_t position = 0;
  };

  // Bytes that a step has to read, and write.
  int64_t StepBytes(const StepShape& step) const {
    const StateLayout& layout = engine_.layout();
    const int64_t fixed = layout.PayloadBytesAt(0);
    const int64_t grown = layout.PayloadBytesAt(step.position) - fixed;
    return engine_.info().step_weight_bytes +
           step.sessions * (2 * fixed + grown);
  }

  // Seconds that a step takes at best, and what sets them.
  std::pair<double, std::string> StepLimit(const StepShape& step,
                                           double read_speed) const {
    const ModelInfo& info = engine_.info();
    const double head = 2.0 * info.vocab_size * info.d_model;
    const double operations =
        (work_.weights - head) * step.rows + head * step.logit_rows;
    const double memory = StepBytes(step) / read_speed;
    const double matmul = operations / limits_.matmul_rate;
    return memory > matmul ? std::pair(memory, std::string("memory"))
                           : std::pair(matmul, std::string("matmul"));
  }

  // Whether states of `sessions` sessions fit; tells if not.
  bool Fits(const std::string& name, int64_t sessions, int64_t position) {
    const std::optional<int64_t> context = engine_.info().max_context;
    if (context && position >= *context) {
      std::fprintf(stderr,
                   "%s: left out, the model was loaded with memory for %lld "
                   "tokens of a session\n",
                   name.c_str(), static_cast<long long>(*context));
      return false;
    }
    constexpr double kShare = 0.8;
    const double bytes =
        static_cast<double>(sessions) *
        static_cast<double>(engine_.layout().PayloadBytesAt(position));
    const auto available = static_cast<double>(AvailableMemory());
    if (available == 0 || bytes < kShare * available) return true;
    std::fprintf(stderr, "%s: left out, states of %.1f GB, %.1f GB are free\n",
                 name.c_str(), 1e-9 * bytes, 1e-9 * available);
    return false;
  }

  // Advances the state in `slot` by `count` tokens, in the largest steps.
  void Consume(int64_t count, std::byte* slot) {
    const int64_t chunk = engine_.max_rows() / kTileRows * kTileRows;
    const std::vector<int32_t> tokens =
        Tokens(std::min(count, chunk), engine_.info().vocab_size);
    for (int64_t position = 0; position < count;) {
      const int64_t rows = std::min(count - position, chunk);
      const StepSegment segment = {.tokens = std::span(tokens).first(rows),
                                   .position = position,
                                   .slot = slot,
                                   .logits = LogitsFor::kNone};
      engine_.Step({&segment, 1});
      position += rows;
    }
  }

  // Makes the zeroed `slot` that of a session at `position`.
  void Prepare(int64_t position, std::byte* slot) {
    const int64_t fed = std::min(position, kTileRows);
    if (fed > 0) Consume(fed, slot);
    RepeatRows(engine_.layout(), fed, position, slot);
  }

  absl::Status Decode(int64_t sessions) {
    const std::string name = absl::StrCat("decode, ", sessions, " sessions");
    if (!Fits(name, sessions, options_.context)) return absl::OkStatus();
    const StateLayout& layout = engine_.layout();
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(layout, sessions));
    const std::vector<int32_t> tokens =
        Tokens(sessions, engine_.info().vocab_size);
    std::vector<StateSlot> slots;
    std::vector<StepSegment> segments;
    for (int64_t i = 0; i < sessions; ++i) {
      ASSIGN_OR_RETURN(StateSlot slot, pool->Acquire());
      if (i == 0) {
        Prepare(options_.context, slot.data());
      } else {
        CopyState(layout, options_.context, slots[0].data(), slot.data());
      }
      segments.push_back({.tokens = std::span(tokens).subspan(i, 1),
                          .position = options_.context,
                          .slot = slot.data()});
      slots.push_back(std::move(slot));
    }
    const StepShape step = {sessions, sessions, sessions, options_.context};
    const TimeAndReadSpeed measured = MedianBesideReading(
        options_.seconds, StepBytes(step), [&] { engine_.Step(segments); });
    const auto [limit, by] = StepLimit(step, measured.read_speed);
    done_({name, sessions / measured.seconds, "tokens/s", sessions / limit, by,
           measured.read_speed});
    return absl::OkStatus();
  }

  absl::Status Prefill(int64_t tokens) {
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(engine_.layout(), 1));
    ASSIGN_OR_RETURN(const StateSlot slot, pool->Acquire());
    const int64_t steps =
        (tokens + engine_.max_rows() - 1) / engine_.max_rows();
    const StepShape step = {tokens / steps, 0, 1, tokens / 2};
    const TimeAndReadSpeed measured =
        MedianBesideReading(options_.seconds, StepBytes(step),
                            [&] { Consume(tokens, slot.data()); });
    const auto [limit, by] = StepLimit(step, measured.read_speed);
    done_({absl::StrCat("prefill, ", tokens, " tokens"),
           tokens / measured.seconds, "tokens/s", tokens / (limit * steps), by,
           measured.read_speed});
    return absl::OkStatus();
  }

  // All positions in turn, so that whatever else the machine does in the
  // meantime hits them alike.
  absl::Status Positions() {
    const auto count = std::ssize(options_.positions);
    if (count == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(engine_.layout(), count));
    std::vector<int64_t> positions;
    std::vector<double> resident;
    std::vector<StateSlot> slots;
    const std::vector<int32_t> token = {1};
    const auto step = [&](std::ptrdiff_t i) {
      const StepSegment segment = {
          .tokens = token, .position = positions[i], .slot = slots[i].data()};
      engine_.Step({&segment, 1});
    };
    for (const int64_t position : options_.positions) {
      const std::string name = absl::StrCat("position ", position);
      if (!Fits(name, 1, position)) continue;
      ASSIGN_OR_RETURN(StateSlot slot, pool->Acquire());
      Prepare(position, slot.data());
      positions.push_back(position);
      slots.push_back(std::move(slot));
      step(std::ssize(slots) - 1);
      resident.push_back(1e-6 * static_cast<double>(ResidentMemory()));
    }
    if (positions.empty()) return absl::OkStatus();
    std::vector<std::vector<double>> times(positions.size());
    const TimeAndReadSpeed measured = MedianBesideReading(
        options_.seconds * static_cast<double>(times.size()),
        StepBytes({1, 1, 1, positions[0]}), [&] {
          for (size_t i = 0; i < times.size(); ++i) {
            times[i].push_back(SecondsOf([&] { step(i); }));
          }
        });
    TellPositions(positions, resident, std::move(times), measured.read_speed);
    return absl::OkStatus();
  }

  // The promise is a flat cost: the first position is the limit of the others.
  void TellPositions(const std::vector<int64_t>& positions,
                     const std::vector<double>& resident,
                     std::vector<std::vector<double>> times,
                     double read_speed) {
    double first = 0;
    for (size_t i = 0; i < times.size(); ++i) {
      const double seconds = Median(std::move(times[i]));
      const auto [limit, by] = StepLimit({1, 1, 1, positions[i]}, read_speed);
      const std::string at = absl::StrCat("at position ", positions[i]);
      done_({"time per token " + at, 1e6 * seconds, "us", 1e6 * limit, by,
             read_speed});
      if (i == 0) {
        first = seconds;
        continue;
      }
      done_({"the same " + at + ", relative", seconds / first, "", 1,
             absl::StrCat("position ", positions[0])});
      done_({"resident memory " + at, resident[i], "MB", resident[0],
             absl::StrCat("position ", positions[0])});
    }
  }

  absl::Status SuspendAndResume() {
    const StateLayout& layout = engine_.layout();
    ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                     StatePool::Create(layout, 1));
    ASSIGN_OR_RETURN(const StateSlot slot, pool->Acquire());
    SessionRecord record;
    record.position = std::max<int64_t>(options_.context, 1);
    record.pending_token = 1;
    Prepare(record.position, slot.data());
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
    std::string copy = bytes;
    const double memcpy_seconds = MedianSeconds(options_.seconds / 4, [&] {
      std::memcpy(copy.data(), bytes.data(), bytes.size());
    });
    done_({"suspend to memory", 1e6 * suspend, "us", 1e6 * memcpy_seconds,
           "memcpy of the same bytes"});
    done_({"resume from memory", 1e6 * resume, "us", 1e6 * memcpy_seconds,
           "memcpy of the same bytes"});
    done_({"snapshot", static_cast<double>(bytes.size()), "bytes",
           static_cast<double>(layout.PayloadBytesAt(record.position)),
           "state"});
    return absl::OkStatus();
  }

  Engine& engine_;
  const TokenWork& work_;
  const MachineLimits& limits_;
  const BenchOptions& options_;
  const std::function<void(const Figure&)>& done_;
};

}  // namespace

double Figure::Share() const {
  if (limit == 0) return 0;
  return unit == "tokens/s" ? value / limit : limit / value;
}

absl::Status RunEngineBench(Engine& engine, const TokenWork& work,
                            const MachineLimits& limits,
                            const BenchOptions& options,
                            const std::function<void(const Figure&)>& done) {
  return EngineBench(engine, work, limits, options, done).Run();
}

std::vector<int32_t> GreedyTokens(Engine& engine, int64_t count) {
  std::vector<int32_t> tokens;
  auto pool = StatePool::Create(engine.layout(), 1);
  if (!pool.ok()) return tokens;
  auto slot = (*pool)->Acquire();
  if (!slot.ok()) return tokens;
  int32_t token = 1;
  for (int64_t i = 0; i < count; ++i) {
    const StepSegment segment = {
        .tokens = {&token, 1}, .position = i, .slot = slot->data()};
    const std::span<const float> logits = engine.Step({&segment, 1}).RowSpan(0);
    token = static_cast<int32_t>(
        std::max_element(logits.begin(), logits.end()) - logits.begin());
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace reprise::bench
