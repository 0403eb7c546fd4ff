#include "tools/golden/golden_case.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/bytes.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/model/json_text.h"
#include "engine/model/safetensors.h"
#include "engine/state/state_copy.h"
#include "engine/state/state_pool.h"

namespace reprise {
namespace {

// Token ids, [batch, length].
struct Ids {
  int64_t batch = 0;
  int64_t length = 0;
  std::vector<int32_t> values;

  std::span<const int32_t> Row(int64_t row) const {
    return {&values[static_cast<size_t>(row * length)],
            static_cast<size_t>(length)};
  }
};

absl::Status Malformed(std::string_view tensor, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("golden tensor ", Quoted(tensor), " ", ToAbsl(why)));
}

absl::StatusOr<Ids> ReadIds(const Checkpoint& file, std::string_view name,
                            int64_t vocab_size) {
  ASSIGN_OR_RETURN(std::vector<int32_t> values, file.ReadI32(name));
  const std::vector<int64_t>& shape = file.Find(name)->shape;
  if (shape.size() != 2 || values.empty()) {
    return Malformed(name, "is not [batch, length]");
  }
  for (const int32_t id : values) {
    if (id < 0 || id >= vocab_size) {
      return Malformed(name, "has an id past the vocabulary");
    }
  }
  return Ids{shape[0], shape[1], std::move(values)};
}

absl::StatusOr<std::vector<float>> ReadFloats(
    const Checkpoint& file, std::string_view name,
    const std::vector<int64_t>& shape) {
  const TensorInfo* tensor = file.Find(name);
  if (tensor == nullptr) return Malformed(name, "is missing");
  if (tensor->shape != shape) {
    return Malformed(name,
                     absl::StrCat("has shape ", ShapeText(tensor->shape),
                                  ", the model gives ", ShapeText(shape)));
  }
  std::vector<float> values(static_cast<size_t>(tensor->elements));
  RETURN_IF_ERROR(file.ReadF32(name, values));
  return values;
}

// A field of a state, as the data have it.
struct NamedState {
  std::vector<int64_t> shape;
  std::vector<float> values;
};

// How the data name a state, and how the engine names it if its last two axes
// are the other way round.
constexpr std::string_view kRecurrent = ".recurrent";
constexpr std::string_view kSwapped = ".ssm";

NamedState SwapLastAxes(const NamedState& from) {
  NamedState to = from;
  const size_t axes = from.shape.size();
  std::swap(to.shape[axes - 2], to.shape[axes - 1]);
  const auto rows = static_cast<size_t>(from.shape[axes - 2]);
  const auto cols = static_cast<size_t>(from.shape[axes - 1]);
  for (size_t i = 0; i < from.values.size(); ++i) {
    const size_t matrix = i / (rows * cols) * rows * cols;
    const size_t row = i / cols % rows;
    to.values[matrix + i % cols * rows + row] = from.values[i];
  }
  return to;
}

// One run over a golden file; every session in it has the same length.
class GoldenRun {
 public:
  GoldenRun(Engine& engine, const Checkpoint& golden, GoldenResult& result)
      : engine_(engine), golden_(golden), result_(result) {}

  absl::Status Run();

 private:
  // Works in `slot`; `spare` takes a copy of the state.
  absl::Status RunSession(int64_t row, StateSlot& slot, StateSlot& spare);
  // Whether a session may have so many tokens.
  absl::Status CheckRoom(std::string_view ids_name, int64_t tokens) const;
  // Feeds a segment and compares its logits.
  absl::Status Feed(std::string_view ids_name, std::string_view logits_name,
                    int64_t row, int64_t position, StateSlot& slot);
  // The field that the data call `name`.
  absl::StatusOr<NamedState> FindState(std::string_view name, int64_t position,
                                       const StateSlot& slot);
  // Compares all tensors called PREFIX + "L.NAME" with the state.
  absl::Status CompareState(std::string_view prefix, int64_t row,
                            int64_t position, const StateSlot& slot);
  absl::Status Continue(int64_t row, int64_t position, StateSlot& slot);
  // Compares the logits after a prompt with those that others published.
  absl::Status RunPrompt(StateSlot& slot);

  Engine& engine_;
  const Checkpoint& golden_;
  GoldenResult& result_;
  int32_t best_token_ = 0;  // after the last Feed
  double divergences_ = 0;  // of `positions_` positions
  int64_t positions_ = 0;
};

int32_t ArgMax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) -
                              logits.begin());
}

// NaN counts as infinitely wrong.
double LargestDifference(std::span<const float> a, std::span<const float> b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(difference <= largest)) {
      largest = std::isnan(difference) ? INFINITY : difference;
    }
  }
  return largest;
}

double LogSumExp(std::span<const float> logits) {
  const double highest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - highest);
  return highest + std::log(sum);
}

// KL(softmax(expected) || softmax(actual)), in nats.
double Divergence(std::span<const float> expected,
                  std::span<const float> actual) {
  const double expected_sum = LogSumExp(expected);
  const double actual_sum = LogSumExp(actual);
  double divergence = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double p = expected[i] - expected_sum;
    divergence += std::exp(p) * (p - (actual[i] - actual_sum));
  }
  return divergence;
}

absl::Status GoldenRun::CheckRoom(std::string_view ids_name,
                                  int64_t tokens) const {
  const std::optional<int64_t> most = engine_.info().max_context;
  if (!most.has_value() || tokens <= *most) return absl::OkStatus();
  return Malformed(ids_name, absl::StrCat("makes a session of ", tokens,
                                          " tokens, at most ", *most));
}

absl::Status GoldenRun::Feed(std::string_view ids_name,
                             std::string_view logits_name, int64_t row,
                             int64_t position, StateSlot& slot) {
  const int64_t vocab = engine_.info().vocab_size;
  ASSIGN_OR_RETURN(const Ids ids, ReadIds(golden_, ids_name, vocab));
  ASSIGN_OR_RETURN(
      const std::vector<float> expected,
      ReadFloats(golden_, logits_name, {ids.batch, ids.length, vocab}));
  if (row >= ids.batch) return Malformed(ids_name, "has fewer sessions");
  RETURN_IF_ERROR(CheckRoom(ids_name, position + ids.length));
  const std::span<const int32_t> tokens = ids.Row(row);
  const int64_t per_step = engine_.max_rows();
  for (int64_t first = 0; first < ids.length; first += per_step) {
    const int64_t count = std::min(per_step, ids.length - first);
    const StepSegment segment{
        .tokens = tokens.subspan(static_cast<size_t>(first),
                                 static_cast<size_t>(count)),
        .position = position + first,
        .slot = slot.data(),
        .logits = LogitsFor::kAllRows};
    const MatrixView<float> logits = engine_.Step({&segment, 1});
    const auto columns = static_cast<size_t>(vocab);
    for (int64_t i = 0; i < count; ++i) {
      const std::span<const float> golden = std::span(expected).subspan(
          static_cast<size_t>(row * ids.length + first + i) * columns, columns);
      result_.logits_error = std::max(
          result_.logits_error, LargestDifference(logits.RowSpan(i), golden));
      divergences_ += Divergence(golden, logits.RowSpan(i));
    }
    positions_ += count;
    result_.divergence = divergences_ / static_cast<double>(positions_);
    result_.numbers += count * vocab;
    best_token_ = ArgMax(logits.RowSpan(count - 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<NamedState> GoldenRun::FindState(std::string_view name,
                                                int64_t position,
                                                const StateSlot& slot) {
  for (const StateField& field : engine_.layout().fields()) {
    // Mamba-2's state: the data have [heads, head_dim, state_size].
    const bool swapped =
        name.ends_with(kRecurrent) && field.name.ends_with(kSwapped) &&
        name.substr(0, name.size() - kRecurrent.size()) ==
            std::string_view(field.name)
                .substr(0, field.name.size() - kSwapped.size());
    if (field.name != name && !swapped) continue;
    NamedState state{field.ShapeInUse(position),
                     FieldValues(field, position, slot.data())};
    return swapped ? SwapLastAxes(state) : state;
  }
  return Malformed(name, "has no counterpart in the model's state");
}

absl::Status GoldenRun::CompareState(std::string_view prefix, int64_t row,
                                     int64_t position, const StateSlot& slot) {
  const int64_t batch = golden_.Find("input_ids")->shape[0];
  for (const auto& item : golden_.tensors()) {
    const std::string_view name = item.first;
    if (!name.starts_with(prefix)) continue;
    const std::string_view field_name = name.substr(prefix.size());
    ASSIGN_OR_RETURN(const NamedState state,
                     FindState(field_name, position, slot));
    std::vector<int64_t> shape = state.shape;
    shape.insert(shape.begin(), batch);
    ASSIGN_OR_RETURN(const std::vector<float> all,
                     ReadFloats(golden_, name, shape));
    const std::vector<float>& actual = state.values;
    const std::span<const float> expected(
        &all[static_cast<size_t>(row) * actual.size()], actual.size());
    double scale = 1;
    for (const float value : expected) {
      scale = std::max(scale, std::abs(static_cast<double>(value)));
    }
    const double error = LargestDifference(actual, expected);
    result_.numbers += std::ssize(actual);
    result_.state_error = std::max(result_.state_error, error);
    result_.state_allowance = std::max(result_.state_allowance,
                                       error / (kGoldenStateTolerance * scale));
  }
  return absl::OkStatus();
}

// `best_token_` is what follows the state in `slot`.
absl::Status GoldenRun::Continue(int64_t row, int64_t position,
                                 StateSlot& slot) {
  ASSIGN_OR_RETURN(const Ids expected,
                   ReadIds(golden_, "greedy_ids", engine_.info().vocab_size));
  if (row >= expected.batch) return Malformed("greedy_ids", "has fewer rows");
  RETURN_IF_ERROR(CheckRoom("greedy_ids", position + expected.length));
  for (const int32_t id : expected.Row(row)) {
    ++result_.greedy_total;
    result_.greedy_agreed += best_token_ == id;
    const StepSegment segment{.tokens = {&best_token_, 1},
                              .position = position++,
                              .slot = slot.data()};
    best_token_ = ArgMax(engine_.Step({&segment, 1}).RowSpan(0));
  }
  return absl::OkStatus();
}

absl::Status GoldenRun::RunSession(int64_t row, StateSlot& slot,
                                   StateSlot& spare) {
  ASSIGN_OR_RETURN(const Ids ids,
                   ReadIds(golden_, "input_ids", engine_.info().vocab_size));
  RETURN_IF_ERROR(Feed("input_ids", "logits", row, /*position=*/0, slot));
  RETURN_IF_ERROR(CompareState("state.", row, ids.length, slot));
  const StateLayout& layout = engine_.layout();
  if (golden_.Find("greedy_ids") != nullptr) {
    CopyState(layout, ids.length, slot.data(), spare.data());
    RETURN_IF_ERROR(Continue(row, ids.length, slot));
    CopyState(layout, ids.length, spare.data(), slot.data());
  }
  const TensorInfo* second = golden_.Find("input_ids_2");
  if (second != nullptr) {
    RETURN_IF_ERROR(Feed("input_ids_2", "logits_2", row, ids.length, slot));
    const int64_t position = ids.length + second->shape.back();
    RETURN_IF_ERROR(CompareState("state_2.", row, position, slot));
  }
  return absl::OkStatus();
}

absl::Status GoldenRun::RunPrompt(StateSlot& slot) {
  const int64_t vocab = engine_.info().vocab_size;
  ASSIGN_OR_RETURN(const Ids ids, ReadIds(golden_, "prompt_ids", vocab));
  if (ids.length > engine_.max_rows()) {
    return Malformed("prompt_ids", "is longer than a step");
  }
  RETURN_IF_ERROR(CheckRoom("prompt_ids", ids.length));
  const StepSegment segment{.tokens = ids.Row(0), .slot = slot.data()};
  const std::span<const float> logits = engine_.Step({&segment, 1}).RowSpan(0);
  for (const char* name : {"prompt_logits", "rwkvcpp_expected_logits"}) {
    ASSIGN_OR_RETURN(const std::vector<float> expected,
                     ReadFloats(golden_, name, {vocab}));
    result_.logits_error =
        std::max(result_.logits_error, LargestDifference(logits, expected));
    result_.numbers += vocab;
  }
  return absl::OkStatus();
}

absl::Status GoldenRun::Run() {
  ASSIGN_OR_RETURN(const Ids ids,
                   ReadIds(golden_, "input_ids", engine_.info().vocab_size));
  ASSIGN_OR_RETURN(const std::unique_ptr<StatePool> pool,
                   StatePool::Create(engine_.layout(), /*num_slots=*/2));
  for (int64_t row = 0; row < ids.batch; ++row) {
    ASSIGN_OR_RETURN(StateSlot slot, pool->Acquire());
    ASSIGN_OR_RETURN(StateSlot spare, pool->Acquire());
    RETURN_IF_ERROR(RunSession(row, slot, spare));
  }
  if (golden_.Find("prompt_ids") == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(StateSlot slot, pool->Acquire());
  return RunPrompt(slot);
}

absl::Status RunCase(const std::string& dir, WeightType weights,
                     const LoadProgressCallback& progress,
                     GoldenResult& result) {
  EngineOptions options{.model_dir = dir, .weights = weights};
  options.progress = progress;
  ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(options));
  ASSIGN_OR_RETURN(
      const Checkpoint golden,
      Checkpoint::OpenFile(std::filesystem::path(dir) / "golden.safetensors"));
  return GoldenRun(*engine, golden, result).Run();
}

std::string Judge(const GoldenResult& result) {
  if (result.logits_error > kGoldenLogitsTolerance) {
    return absl::StrCat("logits differ by more than ", kGoldenLogitsTolerance);
  }
  if (result.state_allowance > 1) {
    return absl::StrCat("states differ by more than ", kGoldenStateTolerance,
                        " of their largest number");
  }
  if (result.greedy_agreed != result.greedy_total) {
    return "greedy tokens differ";
  }
  return "";
}

}  // namespace

GoldenResult RunGoldenCase(const std::string& dir, WeightType weights,
                           const LoadProgressCallback& progress) {
  GoldenResult result;
  const absl::Status status = RunCase(dir, weights, progress, result);
  result.failure = status.ok() ? Judge(result) : std::string(status.message());
  return result;
}

}  // namespace reprise
