// DeltaNet (Schlag et al. 2021; Yang et al. 2024) and gated DeltaNet (Yang,
// Kautz and Hatamizadeh 2024): one matmul for everything that x is projected
// to, short convolutions, the delta rule per session and head, a norm and a
// gate per head, one matmul back.
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/simd_ops.h"
#include "engine/mixer/delta_heads.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/short_conv.h"
#include "engine/model/delta_description.h"
#include "engine/model/mixer_description.h"

namespace reprise {
namespace {

// Buffers of the scratch.
enum Buffer : int64_t {
  kProjected,  // [rows, q | k | v | gate | beta | decay]
  kOutput,     // [rows, heads * value_dim]
};

// Of the division that makes a head's length one.
constexpr float kL2Epsilon = 1e-6F;

// First columns of a projected row's parts; `end` where there is no such part.
struct Columns {
  int64_t k = 0;  // q is at 0
  int64_t v = 0;
  int64_t gate = 0;
  int64_t beta = 0;
  int64_t decay = 0;
  int64_t end = 0;
};

// What DeltaNet is made of.
struct Parts {
  DeltaNetDescription description;
  Columns columns;
  Linear projection;
  std::vector<ShortConvolution> convolutions;
  std::vector<float> constant_beta;  // [heads], or empty: beta is projected
  std::vector<float> decay_rate;     // [heads], -exp(a_log); empty: no decay
  std::vector<float> dt_bias;        // [heads]
  Norm output_norm;
  Linear o;
  int64_t s_offset = 0;  // bytes, in the slot
};

class DeltaNet : public Mixer {
 public:
  explicit DeltaNet(Parts parts) : p_(std::move(parts)), d_(p_.description) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  void Convolve(MatrixView<float> projected,
                std::span<const Segment> segments) const;
  void PrepareRow(float* row) const;
  DeltaArgs StepArgs(MatrixView<float> projected, MatrixView<float> o) const;
  void Finish(const HeadTile& tile, MatrixView<float> projected,
              MatrixView<float> o) const;

  const Parts p_;
  const DeltaNetDescription& d_;
};

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// log(1 + exp(x)), which must not overflow.
float Softplus(float x) {
  return std::max(x, 0.0F) + std::log1p(std::exp(-std::abs(x)));
}

void Activate(HeadActivation activation, float* x, int64_t n) {
  switch (activation) {
    case HeadActivation::kIdentity:
      break;
    case HeadActivation::kSilu:
      Silu(x, n);
      break;
    case HeadActivation::kRelu:
      Relu(x, n);
      break;
    case HeadActivation::kEluPlusOne:
      EluPlusOne(x, n);
      break;
  }
}

void NormalizeHead(HeadNorm norm, float* x, int64_t n) {
  if (norm == HeadNorm::kL2) {
    const auto count = static_cast<float>(n);
    // x / sqrt(mean + eps / n) is sqrt(n) times what is wanted.
    RmsNorm(x, /*weight=*/nullptr, n, kL2Epsilon / count, x);
    Scale(1 / std::sqrt(count), n, x);
    return;
  }
  // After relu all features may be 0, and stay so.
  const float sum = Sum(x, n);
  if (sum != 0) Scale(1 / sum, n, x);
}

void DeltaNet::Convolve(MatrixView<float> projected,
                        std::span<const Segment> segments) const {
  int64_t column = 0;
  for (const ShortConvolution& convolution : p_.convolutions) {
    const MatrixView<float> columns(projected.data + column, projected.rows,
                                    convolution.channels(), projected.stride);
    convolution.Apply(columns, segments, columns);
    column += convolution.channels();
  }
}

// From projections to what the kernel takes.
void DeltaNet::PrepareRow(float* row) const {
  const Columns& c = p_.columns;
  Activate(d_.qk_activation, row, c.v);
  Activate(d_.v_activation, row + c.v, c.gate - c.v);
  for (int64_t i = 0; i < c.v; i += d_.key_dim) {
    NormalizeHead(d_.qk_norm, row + i, d_.key_dim);
  }
  for (int64_t i = c.beta; i < c.decay; ++i) {
    row[i] = d_.beta_scale * Sigmoid(row[i]);
  }
  for (size_t i = 0; i < p_.decay_rate.size(); ++i) {
    float& decay = row[c.decay + static_cast<int64_t>(i)];
    decay = std::exp(p_.decay_rate[i] * Softplus(decay + p_.dt_bias[i]));
  }
}

DeltaArgs DeltaNet::StepArgs(MatrixView<float> projected,
                             MatrixView<float> o) const {
  const Columns& c = p_.columns;
  const auto from = [&](int64_t column) {
    return HeadRows{projected.data + column, projected.stride};
  };
  DeltaArgs args;
  args.q = from(0);
  args.k = from(c.k);
  args.v = from(c.v);
  args.beta = p_.constant_beta.empty()
                  ? from(c.beta)
                  : HeadRows{p_.constant_beta.data(), /*stride=*/0};
  if (!p_.decay_rate.empty()) args.decay = from(c.decay);
  args.o = o.data;
  args.o_stride = o.stride;
  args.heads_per_key = d_.heads / d_.key_heads;
  args.key_dim = d_.key_dim;
  args.value_dim = d_.value_dim;
  args.scale = d_.scale;
  return args;
}

void DeltaNet::Finish(const HeadTile& tile, MatrixView<float> projected,
                      MatrixView<float> o) const {
  const int64_t dim = d_.value_dim;
  for (int64_t r = tile.first_row; r < tile.first_row + tile.num_rows; ++r) {
    for (int64_t head = tile.first_head; head < tile.last_head; ++head) {
      float* out = o.Row(r) + head * dim;
      p_.output_norm.Apply(out, out);
      if (d_.gate.weight) {
        const float* gate = projected.Row(r) + p_.columns.gate + head * dim;
        SiluMultiply(gate, out, dim, out);
      }
    }
  }
}

void DeltaNet::Forward(MatrixView<const float> x,
                       std::span<const Segment> segments, Scratch& scratch,
                       MatrixView<float> y) const {
  const MatrixView<float> projected =
      scratch.Matrix(kProjected, x.rows, p_.columns.end);
  const MatrixView<float> o =
      scratch.Matrix(kOutput, x.rows, d_.heads * d_.value_dim);
  p_.projection.Apply(x, projected, scratch.linear());
  Convolve(projected, segments);
  ForEach(x.rows, p_.columns.gate,
          [&](int64_t row) { PrepareRow(projected.Row(row)); });
  AdvanceDelta(StepArgs(projected, o), segments, d_.heads, p_.s_offset,
               [&](const HeadTile& tile) { Finish(tile, projected, o); });
  p_.o.Apply(o, y, scratch.linear());
}

absl::StatusOr<Linear> MakeProjection(const DeltaNetDescription& d,
                                      const MixerContext& context,
                                      Columns& columns) {
  std::vector<LinearPart> parts;
  // Adds a part, if it is there, and returns the column after it.
  const auto add = [&](const LinearRef& ref, int64_t out) {
    if (!ref.weight) return columns.end;
    parts.push_back({ref, out});
    return columns.end += out;
  };
  columns.k = add(d.q, d.key_heads * d.key_dim);
  columns.v = add(d.k, d.key_heads * d.key_dim);
  columns.gate = add(d.v, d.heads * d.value_dim);
  columns.beta = add(d.gate, d.heads * d.value_dim);
  columns.decay = add(d.beta, d.heads);
  add(d.decay, d.heads);
  return context.weights.MakeLinear(parts, context.d_model);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeDeltaNet(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<DeltaNetDescription>();
  const int64_t value_width = d.heads * d.value_dim;
  Columns columns;
  ASSIGN_OR_RETURN(Linear projection, MakeProjection(d, context, columns));
  std::vector<ShortConvolution> convolutions;
  int64_t convolved = 0;
  for (const DeltaConvolution& c : d.convolutions) {
    ASSIGN_OR_RETURN(ShortConvolution convolution,
                     ShortConvolution::Create(c.conv, c.field, context));
    convolved += convolution.channels();
    convolutions.push_back(std::move(convolution));
  }
  CHECK(convolved == 0 || convolved == columns.gate);
  std::vector<float> constant_beta;
  if (!d.beta.weight) {
    constant_beta.assign(static_cast<size_t>(d.heads), d.beta_scale);
  }
  std::vector<float> decay_rate;
  std::vector<float> dt_bias;
  if (d.decay.weight) {
    ASSIGN_OR_RETURN(decay_rate, context.weights.Vector(d.a_log, d.heads));
    ASSIGN_OR_RETURN(dt_bias, context.weights.Vector(d.dt_bias, d.heads));
    for (float& rate : decay_rate) rate = -std::exp(rate);
  }
  ASSIGN_OR_RETURN(Norm output_norm,
                   Norm::Create(d.output_norm, d.value_dim, context.weights));
  const LinearPart out[] = {{d.o, context.d_model}};
  ASSIGN_OR_RETURN(Linear o, context.weights.MakeLinear(out, value_width));

  context.scratch.Reserve(kProjected, columns.end);
  context.scratch.Reserve(kOutput, value_width);
  Parts parts{.description = d,
              .columns = columns,
              .projection = std::move(projection),
              .convolutions = std::move(convolutions),
              .constant_beta = std::move(constant_beta),
              .decay_rate = std::move(decay_rate),
              .dt_bias = std::move(dt_bias),
              .output_norm = std::move(output_norm),
              .o = std::move(o)};
  parts.s_offset = context.layout.Add(absl::StrCat(context.layer, ".recurrent"),
                                      {d.heads, d.key_dim, d.value_dim});
  return std::make_unique<DeltaNet>(std::move(parts));
}

}  // namespace reprise
