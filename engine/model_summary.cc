#include "engine/model_summary.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "engine/base/log.h"
#include "engine/base/status_macros.h"
#include "engine/engine.h"
#include "engine/mixer/scratch.h"
#include "engine/model/model_config.h"
#include "engine/model/moe_description.h"
#include "engine/model/safetensors.h"
#include "engine/model/softmax_attention_description.h"
#include "engine/model/weights.h"
#include "engine/model_parts.h"

namespace reprise {
namespace {

constexpr int64_t kTokenCounts[] = {1 << 10, 32 << 10, 128 << 10, 1 << 20};

FieldSummary SummariseField(const StateField& field, std::string_view name) {
  FieldSummary summary{
      .name = std::string(name), .shape = field.shape, .growth = field.growth};
  if (field.growth == Growth::kNone) return summary;
  if (field.growth == Growth::kWindow) summary.window = field.shape[0];
  summary.shape.erase(summary.shape.begin());
  return summary;
}

std::vector<LayerSummary> SummariseLayers(const ModelDescription& model,
                                          const StateLayout& layout) {
  std::vector<LayerSummary> layers;
  for (const std::vector<SublayerDescription>& sublayers : model.layers) {
    LayerSummary& layer = layers.emplace_back();
    for (const SublayerDescription& sublayer : sublayers) {
      layer.mixers.emplace_back(sublayer.mixer.kind());
    }
  }
  for (const StateField& field : layout.fields()) {
    // "LAYER.NAME"
    const std::string_view name = field.name;
    const size_t dot = name.find('.');
    size_t layer = 0;
    std::from_chars(name.data(), name.data() + dot, layer);
    CHECK(layer < layers.size());
    layers[layer].state.push_back(SummariseField(field, name.substr(dot + 1)));
  }
  return layers;
}

// The smallest number of layers that, repeated, gives them all.
size_t PeriodOf(const std::vector<LayerSummary>& layers) {
  for (size_t period = 1; period < layers.size(); ++period) {
    if (layers.size() % period != 0) continue;
    if (std::equal(layers.begin() + static_cast<std::ptrdiff_t>(period),
                   layers.end(), layers.begin())) {
      return period;
    }
  }
  return layers.size();
}

std::vector<LayerRun> RunsOf(const std::vector<LayerSummary>& layers,
                             size_t count) {
  std::vector<LayerRun> runs;
  for (size_t i = 0; i < count; ++i) {
    if (runs.empty() || runs.back().layer != layers[i]) {
      runs.push_back({0, layers[i]});
    }
    ++runs.back().count;
  }
  return runs;
}

int64_t KvCacheBytesPerToken(const ModelSummary& summary) {
  return 2 * summary.num_layers * summary.d_model *
         static_cast<int64_t>(sizeof(float));
}

// The state in use grows ever more slowly with the tokens, as windows fill, and
// the KV cache at one rate: once the state is smaller, it stays so.
std::optional<int64_t> SmallerFrom(const StateLayout& layout,
                                   int64_t kv_bytes_per_token) {
  const auto smaller = [&](int64_t tokens) {
    return layout.PayloadBytesAt(tokens) < tokens * kv_bytes_per_token;
  };
  if (!smaller(kMostContext)) return std::nullopt;
  int64_t no = 0, yes = kMostContext;
  while (yes - no > 1) {
    const int64_t middle = no + (yes - no) / 2;
    (smaller(middle) ? yes : no) = middle;
  }
  return yes;
}

void AddMemory(const StateLayout& layout, ModelSummary& summary) {
  const int64_t kv_bytes = KvCacheBytesPerToken(summary);
  summary.state_bytes = layout.payload_bytes();
  summary.state_bytes_per_token = layout.bytes_per_token();
  for (const int64_t tokens : kTokenCounts) {
    summary.memory.push_back({.tokens = tokens,
                              .state_bytes = layout.PayloadBytesAt(tokens),
                              .kv_cache_bytes = tokens * kv_bytes});
  }
  summary.smaller_from_tokens = SmallerFrom(layout, kv_bytes);
}

TokenWork WorkOf(const ModelDescription& model, const Weights& weights,
                 const StateLayout& layout) {
  TokenWork work{.weights = 2 * weights.multiplications()};
  for (const StateField& field : layout.fields()) {
    if (field.growth == Growth::kNone) work.state += 4 * field.elements;
  }
  for (const std::vector<SublayerDescription>& layer : model.layers) {
    for (const SublayerDescription& sublayer : layer) {
      if (const auto* moe = sublayer.mixer.AsIf<MoeFfnDescription>()) {
        const int64_t idle = std::ssize(moe->experts) - moe->per_row;
        work.weights -= 2 * idle * 3 * moe->width * model.d_model;
      }
      const auto* softmax = sublayer.mixer.AsIf<SoftmaxAttentionDescription>();
      if (softmax == nullptr) continue;
      const int64_t per_token = 4 * softmax->heads * softmax->head_dim;
      if (softmax->window > 0) {
        work.state += per_token * softmax->window;
      } else {
        work.per_context_token += per_token;
      }
    }
  }
  return work;
}

void AddTensors(const Checkpoint& checkpoint, const Weights& weights,
                ModelSummary& summary) {
  summary.num_parameters = weights.num_parameters();
  summary.unused_tensors = weights.UnusedTensors();
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    const int64_t bytes = std::ssize(tensor.bytes);
    if (std::binary_search(summary.unused_tensors.begin(),
                           summary.unused_tensors.end(), name)) {
      summary.unused_bytes += bytes;
    } else {
      summary.bytes_by_dtype[std::string(DTypeName(tensor.dtype))] += bytes;
    }
  }
}

}  // namespace

absl::StatusOr<ModelSummary> SummariseModel(const std::string& dir) {
  ASSIGN_OR_RETURN(const Checkpoint checkpoint, Checkpoint::Open(dir));
  ASSIGN_OR_RETURN(const ModelDescription model,
                   LoadModelDescription(dir, checkpoint));
  Scratch scratch;  // never allocated
  Weights weights = Weights::ShapesOnly(checkpoint, scratch.linear());
  ASSIGN_OR_RETURN(const ModelParts parts,
                   BuildModelParts(model, kMostContext, weights, scratch));
  ModelSummary summary;
  summary.family = model.family;
  summary.vocab_size = model.vocab_size;
  summary.d_model = model.d_model;
  summary.num_layers = std::ssize(model.layers);
  summary.max_positions = model.max_positions;
  const std::vector<LayerSummary> layers = SummariseLayers(model, parts.layout);
  const size_t period = PeriodOf(layers);
  summary.repeats = static_cast<int64_t>(layers.size() / period);
  summary.period = RunsOf(layers, period);
  AddTensors(checkpoint, weights, summary);
  AddMemory(parts.layout, summary);
  summary.work = WorkOf(model, weights, parts.layout);
  return summary;
}

}  // namespace reprise
