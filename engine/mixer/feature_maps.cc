#include "engine/mixer/feature_maps.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/row_ops.h"
#include "engine/model/linear_attention_description.h"

namespace reprise {
namespace {

// Of the division that makes a head's features sum to one.
constexpr float kSumEpsilon = 1e-4F;

// How often the vector is rolled (Schlag et al. 2021, "nu").
constexpr int64_t kDpfpRolls = 4;

// softmax([2 y, -2 y]) of `d` numbers (Zhang et al. 2024).
void Hedgehog(const float* y, int64_t d, float* out) {
  for (int64_t i = 0; i < d; ++i) {
    out[i] = 2 * y[i];
    out[d + i] = -2 * y[i];
  }
  Softmax(out, 2 * d);
}

// u[i] * u[i - j] for j = 1..4, indices modulo 2 d, u = [relu(x), -relu(x)].
void Dpfp(const float* x, int64_t d, float* out) {
  const int64_t n = 2 * d;
  const auto u = [x, d](int64_t i) {
    return i < d ? std::max(x[i], 0.0F) : -std::max(x[i - d], 0.0F);
  };
  for (int64_t j = 1; j <= kDpfpRolls; ++j) {
    for (int64_t i = 0; i < n; ++i) {
      *out++ = u(i) * u((i + n - j % n) % n);
    }
  }
}

// exp([u, -u] - temperature |x|^2 / 2 - ln(n) / 2) of n features, u being
// sqrt(temperature) times the n / 2 projections of the `d` numbers of x.
void Favor(const float* x, int64_t d, const float* projections,
           const FeatureLayers& layers, float* out) {
  const int64_t half = layers.random_features / 2;
  const float root = std::sqrt(layers.temperature);
  float squares = 0;
  for (int64_t i = 0; i < d; ++i) squares += x[i] * x[i];
  const float shift =
      0.5F * (layers.temperature * squares +
              std::log(static_cast<float>(layers.random_features)));
  for (int64_t i = 0; i < half; ++i) {
    const float u = root * projections[i];
    out[i] = u - shift;
    out[half + i] = -u - shift;
  }
  Exp(out, 2 * half);
}

// One head of one row. `in` is what the map's layers made of x where it has
// any, else x; it may be `out` where the map works in place.
void MapHead(FeatureMap map, const float* in, int64_t d, float* out) {
  switch (map) {
    case FeatureMap::kIdentity:
      break;
    case FeatureMap::kT2r:
      std::copy_n(in, d, out);
      Relu(out, d);
      break;
    case FeatureMap::kRelu:
      Relu(out, d);
      break;
    case FeatureMap::kEluPlusOne:
      EluPlusOne(out, d);
      break;
    case FeatureMap::kElementwiseProduct:
      Multiply(in, in + d, d, out);
      break;
    case FeatureMap::kHedgehog:
      Hedgehog(in, d, out);
      break;
    case FeatureMap::kDpfp:
      Dpfp(in, d, out);
      break;
    case FeatureMap::kFavor:
      CHECK(!"Favor needs x besides its projections");
  }
}

// Outputs of the map's layers for each of its inputs; 0 without layers.
int64_t LayerOutputs(FeatureMap map) {
  switch (map) {
    case FeatureMap::kElementwiseProduct:
      return 2;
    case FeatureMap::kFavor:
    case FeatureMap::kHedgehog:
    case FeatureMap::kT2r:
      return 1;
    default:
      return 0;
  }
}

}  // namespace

absl::StatusOr<FeatureMapper> FeatureMapper::Create(
    const Options& options, const FeatureLayers& layers,
    const MixerContext& context) {
  FeatureMapper mapper(options, layers);
  const int64_t outputs = LayerOutputs(options.map);
  if (outputs > 0) {
    const int64_t dim = options.map == FeatureMap::kFavor
                            ? layers.random_features / 2
                            : options.dim;
    std::vector<LinearPart> parts = {{layers.layer1, dim}};
    if (outputs == 2) parts.push_back({layers.layer2, dim});
    ASSIGN_OR_RETURN(Linear linear, context.weights.MakeHeadLinear(
                                        parts, options.dim, options.heads));
    mapper.layers_ = std::move(linear);
    context.scratch.Reserve(options.packed_buffer, options.heads * options.dim);
    context.scratch.Reserve(options.layers_buffer,
                            options.heads * dim * outputs);
  }
  if (!mapper.in_place()) {
    context.scratch.Reserve(options.result_buffer,
                            options.heads * mapper.feature_dim());
  }
  return mapper;
}

bool FeatureMapper::in_place() const {
  return options_.map == FeatureMap::kIdentity ||
         options_.map == FeatureMap::kRelu ||
         options_.map == FeatureMap::kEluPlusOne;
}

// What the layers make of every head of x: [rows, heads * outputs * dim].
MatrixView<float> FeatureMapper::ApplyLayers(MatrixView<float> x,
                                             Scratch& scratch) const {
  const int64_t head_rows = x.rows * options_.heads;
  // Without gaps, the heads of all rows are the rows of one matrix.
  const MatrixView<float> packed =
      scratch.Matrix(options_.packed_buffer, head_rows, options_.dim);
  ForEach(x.rows, x.cols, [&](int64_t row) {
    std::copy_n(x.Row(row), x.cols, packed.data + row * x.cols);
  });
  const MatrixView<float> mapped =
      scratch.Matrix(options_.layers_buffer, head_rows, layers_->out());
  layers_->Apply(packed, mapped, scratch.linear());
  return {mapped.data, x.rows, options_.heads * layers_->out()};
}

MatrixView<float> FeatureMapper::Apply(MatrixView<float> x,
                                       Scratch& scratch) const {
  const int64_t heads = options_.heads;
  const int64_t features = feature_dim();
  const MatrixView<float> in = layers_ ? ApplyLayers(x, scratch) : x;
  const MatrixView<float> out =
      in_place()
          ? x
          : scratch.Matrix(options_.result_buffer, x.rows, heads * features);
  const int64_t in_dim = in.cols / heads;
  ForEach(x.rows, out.cols, [&](int64_t row) {
    for (int64_t head = 0; head < heads; ++head) {
      float* to = out.Row(row) + head * features;
      const float* from = in.Row(row) + head * in_dim;
      if (options_.map == FeatureMap::kFavor) {
        Favor(x.Row(row) + head * options_.dim, options_.dim, from, favor_, to);
      } else {
        MapHead(options_.map, from, options_.dim, to);
      }
      if (options_.sum_to_one) {
        Scale(1 / (Sum(to, features) + kSumEpsilon), features, to);
      }
    }
  });
  return out;
}

}  // namespace reprise
