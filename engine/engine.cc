#include "engine/engine.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/bytes.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"
#include "engine/kernels/state_kernels.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/scratch.h"
#include "engine/model/json_text.h"
#include "engine/model/model_config.h"
#include "engine/model/packed_cache.h"
#include "engine/model/weights.h"
#include "engine/model_parts.h"

namespace reprise {
namespace {

class LoadedEngine : public Engine {
 public:
  // `scratch` is allocated for `max_rows`.
  LoadedEngine(ModelParts parts, Scratch scratch, ModelInfo info,
               int64_t max_rows);

  const ModelInfo& info() const override { return info_; }
  const StateLayout& layout() const override { return p_.layout; }
  int64_t max_rows() const override { return max_rows_; }
  MatrixView<float> Step(std::span<const StepSegment> segments) override;

 private:
  MatrixView<float> Rows(std::vector<float>& buffer, int64_t rows) {
    return {buffer.data(), rows, info_.d_model};
  }
  int64_t TakeSegments(std::span<const StepSegment> segments);
  void Settle(const Sublayer* last, const Sublayer* next, int64_t rows);
  void RunSublayers(int64_t rows);
  MatrixView<float> Logits();

  ModelParts p_;
  const ModelInfo info_;
  const int64_t max_rows_;

  // Of the step that runs.
  Scratch scratch_;
  // [PaddedRows(max_rows), d_model] each:
  std::vector<float> x_;  // the residual stream
  std::vector<float> h_;  // what a mixer, or the head, reads
  std::vector<float> y_;  // what a mixer wrote
  // [PaddedRows(max_rows), vocab_size]. Not cleared when allocated, so that the
  // system gives it memory only for as many rows as are ever asked for.
  std::unique_ptr<float[]> logits_;
  // Capacity max_rows each:
  std::vector<Segment> segments_;
  std::vector<int64_t> logit_rows_;  // rows that want logits, ascending
  std::vector<const std::byte*> slots_;
};

LoadedEngine::LoadedEngine(ModelParts parts, Scratch scratch, ModelInfo info,
                           int64_t max_rows)
    : p_(std::move(parts)),
      info_(std::move(info)),
      max_rows_(max_rows),
      scratch_(std::move(scratch)) {
  const auto padded = static_cast<size_t>(PaddedRows(max_rows));
  const size_t size = padded * static_cast<size_t>(info_.d_model);
  x_.resize(size);
  h_.resize(size);
  y_.resize(size);
  logits_ = std::make_unique_for_overwrite<float[]>(
      padded * static_cast<size_t>(info_.vocab_size));
  segments_.reserve(static_cast<size_t>(max_rows));
  logit_rows_.reserve(static_cast<size_t>(max_rows));
  slots_.reserve(static_cast<size_t>(max_rows));
}

// Checks the segments, gathers their tokens' embeddings into x_, and returns
// the number of rows.
int64_t LoadedEngine::TakeSegments(std::span<const StepSegment> segments) {
  CHECK(!segments.empty());
  segments_.clear();
  logit_rows_.clear();
  slots_.clear();
  int64_t rows = 0;
  for (const StepSegment& segment : segments) {
    const int64_t count = std::ssize(segment.tokens);
    CHECK(count >= 1 && count <= max_rows_ - rows);
    CHECK(segment.slot != nullptr && segment.position >= 0);
    CHECK(!info_.max_context || segment.position <= *info_.max_context - count);
    segments_.push_back({.first_row = rows,
                         .num_rows = count,
                         .position = segment.position,
                         .slot = segment.slot});
    slots_.push_back(segment.slot);
    for (int64_t i = 0; i < count; ++i) {
      const int32_t token = segment.tokens[static_cast<size_t>(i)];
      CHECK(token >= 0 && token < info_.vocab_size);
      p_.embedding.Read(token,
                        &x_[static_cast<size_t>((rows + i) * info_.d_model)]);
      const bool last = i == count - 1;
      if (segment.logits == LogitsFor::kAllRows ||
          (segment.logits == LogitsFor::kLastRow && last)) {
        logit_rows_.push_back(rows + i);
      }
    }
    rows += count;
  }
  std::sort(slots_.begin(), slots_.end());
  CHECK(std::adjacent_find(slots_.begin(), slots_.end()) == slots_.end());
  return rows;
}

// Between two mixers, in one pass over the rows: the residual stream takes what
// the last one wrote, and the next one gets its norm. Either may be null.
void LoadedEngine::Settle(const Sublayer* last, const Sublayer* next,
                          int64_t rows) {
  const int64_t width = info_.d_model;
  const MatrixView<float> x = Rows(x_, rows);
  const MatrixView<float> h = Rows(h_, rows);
  const MatrixView<float> y = Rows(y_, rows);
  const auto norm_is = [](const Sublayer* sublayer, NormPlacement placement) {
    return sublayer != nullptr && sublayer->norm_placement == placement;
  };
  ForEach(rows, 4 * width, [&](int64_t row) {
    if (last != nullptr) AddInto(y.Row(row), width, x.Row(row));
    if (norm_is(last, NormPlacement::kAfter)) {
      last->norm.Apply(x.Row(row), x.Row(row));
    }
    if (norm_is(next, NormPlacement::kBefore)) {
      next->norm.Apply(x.Row(row), h.Row(row));
    }
  });
}

void LoadedEngine::RunSublayers(int64_t rows) {
  const Sublayer* last = nullptr;
  for (const Sublayer& sublayer : p_.sublayers) {
    Settle(last, &sublayer, rows);
    const bool before = sublayer.norm_placement == NormPlacement::kBefore;
    sublayer.mixer->Forward(Rows(before ? h_ : x_, rows), segments_, scratch_,
                            Rows(y_, rows));
    last = &sublayer;
  }
  Settle(last, /*next=*/nullptr, rows);
}

// The head sees only the rows that want logits, moved together.
MatrixView<float> LoadedEngine::Logits() {
  const int64_t rows = std::ssize(logit_rows_);
  const MatrixView<float> logits(logits_.get(), rows, info_.vocab_size);
  if (rows == 0) return logits;
  const int64_t width = info_.d_model;
  const MatrixView<float> h = Rows(h_, rows);
  ForEach(rows, 2 * width, [&](int64_t i) {
    const float* x =
        &x_[static_cast<size_t>(logit_rows_[static_cast<size_t>(i)] * width)];
    if (p_.final_norm) {
      p_.final_norm->Apply(x, h.Row(i));
    } else {
      std::copy_n(x, width, h.Row(i));
    }
  });
  p_.head.Apply(h, logits, scratch_.linear());
  return logits;
}

MatrixView<float> LoadedEngine::Step(std::span<const StepSegment> segments) {
  const int64_t rows = TakeSegments(segments);
  if (p_.embedding_norm) {
    const MatrixView<float> x = Rows(x_, rows);
    ForEach(rows, 2 * x.cols, [&](int64_t row) {
      p_.embedding_norm->Apply(x.Row(row), x.Row(row));
    });
  }
  RunSublayers(rows);
  return Logits();
}

// "2 x (linear_attention + gated_ffn), width 64, vocabulary 256".
std::string DescribeForPeople(const ModelDescription& model) {
  std::map<std::string, int> layers;  // how many of each kind
  for (const std::vector<SublayerDescription>& layer : model.layers) {
    const std::string kind = absl::StrJoin(
        layer, " + ",
        [](std::string* out, const auto& d) { out->append(d.mixer.kind()); });
    ++layers[kind];
  }
  const std::string kinds =
      absl::StrJoin(layers, ", ", [](std::string* out, const auto& item) {
        absl::StrAppend(out, item.second, " x (", item.first, ")");
      });
  return absl::StrCat(kinds, ", width ", model.d_model, ", vocabulary ",
                      model.vocab_size);
}

ModelInfo MakeInfo(const std::string& dir, const ModelDescription& model,
                   const Weights& weights, WeightType weight_type,
                   const StateLayout& layout) {
  ModelInfo info;
  info.name = ModelName(dir);
  info.family = model.family;
  info.description = DescribeForPeople(model);
  info.vocab_size = model.vocab_size;
  info.d_model = model.d_model;
  info.num_layers = std::ssize(model.layers);
  info.num_parameters = weights.num_parameters();
  info.weight_bytes = weights.weight_bytes();
  info.step_weight_bytes = weights.step_weight_bytes();
  info.state_bytes = layout.payload_bytes();
  info.state_bytes_per_token = layout.bytes_per_token();
  info.max_context = layout.max_context();
  info.weight_type = weight_type;
  info.cpu_isa = CpuIsaName();
  info.eos_tokens = model.eos_tokens;
  info.bos_token = model.bos_token;
  info.fingerprints.model = weights.ModelFingerprint(model.config_text);
  info.fingerprints.layout = layout.fingerprint();
  return info;
}

// Tensors that the description does not speak of, neither by name nor as those
// of a part that text needs none of.
std::vector<std::string> UnknownTensors(const ModelDescription& model,
                                        const Weights& weights) {
  std::vector<std::string> unknown = weights.UnusedTensors();
  std::erase_if(unknown, [&](const std::string& name) {
    return std::any_of(
        model.ignored_prefixes.begin(), model.ignored_prefixes.end(),
        [&](const std::string& prefix) { return name.starts_with(prefix); });
  });
  return unknown;
}

void LogUnused(const std::vector<std::string>& unused) {
  if (unused.empty()) return;
  constexpr size_t kShown = 5;
  const std::span<const std::string> first(unused.data(),
                                           std::min(unused.size(), kShown));
  const std::string names = absl::StrJoin(
      first, ", ",
      [](std::string* out, const auto& name) { out->append(Quoted(name)); });
  LogWarning("tensors of the checkpoint that the model does not use",
             {{"count", unused.size()}, {"first", names}});
}

// One model on its way into an engine.
class Loading {
 public:
  // All must outlive the Loading.
  Loading(const EngineOptions& options, const Checkpoint& checkpoint,
          const ModelDescription& model, WeightType type, int64_t max_context)
      : options_(options),
        checkpoint_(checkpoint),
        model_(model),
        type_(type),
        max_context_(max_context),
        meter_(options.progress, *options.clock),
        cache_(options.packed_cache, options.model_dir, checkpoint, type,
               *options.clock) {}

  absl::StatusOr<std::unique_ptr<Engine>> Run();

 private:
  absl::Status CompareShapes();
  absl::StatusOr<std::unique_ptr<Engine>> Load();

  const EngineOptions& options_;
  const Checkpoint& checkpoint_;
  const ModelDescription& model_;
  const WeightType type_;
  const int64_t max_context_;
  LoadMeter meter_;
  PackedCache cache_;
  int64_t source_bytes_ = 0;  // of the tensors that the model uses
};

// Goes through the whole model without its numbers: what does not fit is
// refused before memory is taken, and its size is known before it is read.
absl::Status Loading::CompareShapes() {
  Scratch scratch;  // never allocated
  Weights shapes = Weights::ShapesOnly(checkpoint_, scratch.linear());
  RETURN_IF_ERROR(
      BuildModelParts(model_, max_context_, shapes, scratch).status());
  source_bytes_ = shapes.source_bytes();
  int64_t bytes_each = sizeof(float);
  if (type_ == WeightType::kBf16) bytes_each = 2;
  if (type_ == WeightType::kInt8) bytes_each = 1;
  // The padding of oneDNN's blocks, and scales, seldom take more than this.
  cache_.Begin(source_bytes_, shapes.linear_numbers() * bytes_each * 17 / 16);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Engine>> Loading::Load() {
  meter_.Start(source_bytes_);
  Scratch scratch;
  ModelInfo info;
  std::optional<ModelParts> parts;
  {
    Weights weights(checkpoint_, type_, options_.max_rows, scratch.linear(),
                    {.cache = &cache_, .meter = &meter_});
    ASSIGN_OR_RETURN(ModelParts built,
                     BuildModelParts(model_, max_context_, weights, scratch));
    parts.emplace(std::move(built));
    info = MakeInfo(options_.model_dir, model_, weights, type_, parts->layout);
    LogUnused(UnknownTensors(model_, weights));
    cache_.Finish(weights.digests());
    info.packed_cache = cache_.use();
  }  // what packing worked in is gone
  scratch.Allocate(options_.max_rows);
  return std::make_unique<LoadedEngine>(*std::move(parts), std::move(scratch),
                                        std::move(info), options_.max_rows);
}

absl::StatusOr<std::unique_ptr<Engine>> Loading::Run() {
  RETURN_IF_ERROR(CompareShapes());
  absl::StatusOr<std::unique_ptr<Engine>> engine = Load();
  if (engine.ok() || !cache_.refused()) return engine;
  cache_.StartOver();
  return Load();
}

}  // namespace

std::string ModelName(const std::string& model_dir) {
  std::error_code ignored;
  const std::filesystem::path path =
      std::filesystem::weakly_canonical(model_dir, ignored);
  // A trailing slash leaves an empty last part.
  return path.has_filename() ? path.filename() : path.parent_path().filename();
}

absl::StatusOr<std::unique_ptr<Engine>> LoadEngine(
    const EngineOptions& options) {
  if (options.max_rows < kTileRows || options.max_rows % kTileRows != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_rows is ", options.max_rows,
                     ", it must be a multiple of ", kTileRows));
  }
  if (options.max_context &&
      (*options.max_context < 1 || *options.max_context > kMostContext)) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_context is ", *options.max_context,
                     ", it must be 1..", kMostContext));
  }
  const WeightType type = ResolveWeightType(options.weights);
  ASSIGN_OR_RETURN(const Checkpoint checkpoint,
                   Checkpoint::Open(options.model_dir));
  ASSIGN_OR_RETURN(const ModelDescription model,
                   LoadModelDescription(options.model_dir, checkpoint));
  const int64_t max_context = options.max_context.value_or(
      std::min(model.max_positions.value_or(StateLayout::kDefaultMaxContext),
               StateLayout::kDefaultMaxContext));
  return Loading(options, checkpoint, model, type, max_context).Run();
}

}  // namespace reprise
