// Causal softmax attention (Vaswani et al. 2017), with grouped heads, rotary
// positions, and a window where a model has one. What it keeps of a session are
// its keys and values, a row per token: all of them, or the latest as a ring.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/attention_kernels.h"
#include "engine/kernels/rotary.h"
#include "engine/kernels/simd_ops.h"
#include "engine/kernels/state_kernels.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/mixer/session_groups.h"
#include "engine/model/mixer_description.h"
#include "engine/model/softmax_attention_description.h"

namespace reprise {
namespace {

// The segment that `row`, one of the step's, belongs to.
const Segment& SegmentOf(std::span<const Segment> segments, int64_t row) {
  const auto next = std::upper_bound(
      segments.begin(), segments.end(), row,
      [](int64_t r, const Segment& segment) { return r < segment.first_row; });
  return *(next - 1);
}

// Buffers of the scratch.
enum Buffer : int64_t {
  kProjected,  // [rows, q (with gates) | k | v]
  kOutput,     // [rows, heads * head_dim]
};

// What SoftmaxAttention is made of.
struct Parts {
  SoftmaxAttentionDescription description;
  Linear projection;  // [d_model] to [q | k | v]
  std::optional<Norm> q_norm;
  std::optional<Norm> k_norm;
  std::vector<double> turns;  // per token, of each pair; see rotary.h
  Linear o;
  int64_t k_offset = 0;  // bytes, in the slot: [capacity, kv_heads, head_dim]
  int64_t v_offset = 0;
  int64_t capacity = 0;  // rows of keys and values
};

// Query heads that share a key head and are computed together.
struct HeadGroup {
  int64_t first = 0;
  int64_t count = 0;
  int64_t kv_head = 0;
};

class SoftmaxAttention : public Mixer {
 public:
  explicit SoftmaxAttention(Parts parts)
      : p_(std::move(parts)),
        d_(p_.description),
        q_head_width_(d_.output_gate ? 2 * d_.head_dim : d_.head_dim),
        k_column_(d_.heads * q_head_width_),
        v_column_(k_column_ + d_.kv_heads * d_.head_dim) {}

  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const override;

 private:
  void PrepareRow(int64_t position, float* row) const;
  void PrepareHead(const std::optional<Norm>& norm, const float* cos_sin,
                   float* head) const;
  int64_t HeadsTogether() const;
  HeadGroup GroupAt(int64_t index, int64_t heads_together) const;
  void AttendSegment(const Segment& segment, const HeadGroup& group,
                     MatrixView<const float> projected,
                     MatrixView<float> o) const;
  void Append(const Segment& segment, MatrixView<const float> projected) const;

  const Parts p_;
  const SoftmaxAttentionDescription& d_;
  const int64_t q_head_width_;
  const int64_t k_column_;  // of the projected rows
  const int64_t v_column_;
};

void SoftmaxAttention::Forward(MatrixView<const float> x,
                               std::span<const Segment> segments,
                               Scratch& scratch, MatrixView<float> y) const {
  const MatrixView<float> projected =
      scratch.Matrix(kProjected, x.rows, p_.projection.out());
  p_.projection.Apply(x, projected, scratch.linear());
  ForEach(x.rows, projected.cols, [&](int64_t row) {
    const Segment& segment = SegmentOf(segments, row);
    PrepareRow(segment.position + row - segment.first_row, projected.Row(row));
  });

  // Groups outermost, so that each thread gets some heads of every session: a
  // long one among short ones spreads over all threads.
  const MatrixView<float> o =
      scratch.Matrix(kOutput, x.rows, d_.heads * d_.head_dim);
  const int64_t sessions = std::ssize(segments);
  const int64_t together = HeadsTogether();
  const int64_t per_kv = d_.heads / d_.kv_heads;
  const int64_t groups = d_.kv_heads * ((per_kv + together - 1) / together);
  int64_t tokens = 0;  // that the rows' tiles look at, all sessions together
  for (const Segment& segment : segments) {
    const int64_t end = segment.position + segment.num_rows;
    const int64_t tiles = (segment.num_rows + kTileRows - 1) / kTileRows;
    tokens += tiles * std::min(end, p_.capacity + segment.num_rows);
  }
  ForEach(groups * sessions, tokens * together * d_.head_dim / sessions,
          [&](int64_t i) {
            AttendSegment(segments[static_cast<size_t>(i % sessions)],
                          GroupAt(i / sessions, together), projected, o);
          });
  // Only now, since in a ring they replace what the first rows still see.
  ForEach(
      sessions, 2 * x.rows * d_.kv_heads * d_.head_dim / sessions,
      [&](int64_t i) { Append(segments[static_cast<size_t>(i)], projected); });
  p_.o.Apply(o, y, scratch.linear());
}

// As many as share a key head, as long as that leaves a group for each thread:
// a head's result does not depend on its group.
int64_t SoftmaxAttention::HeadsTogether() const {
  const int64_t most = std::min(kMaxAttendHeads, d_.heads / d_.kv_heads);
  return std::clamp<int64_t>(d_.heads / NumThreads(), 1, most);
}

HeadGroup SoftmaxAttention::GroupAt(int64_t index, int64_t together) const {
  const int64_t per_kv = d_.heads / d_.kv_heads;
  const int64_t groups_per_kv = (per_kv + together - 1) / together;
  const int64_t kv_head = index / groups_per_kv;
  const int64_t first = index % groups_per_kv * together;
  return {.first = kv_head * per_kv + first,
          .count = std::min(together, per_kv - first),
          .kv_head = kv_head};
}

// Norms, rotary positions and the scale, in place.
void SoftmaxAttention::PrepareRow(int64_t position, float* row) const {
  std::array<float, kMaxHeadDim> cos_sin;
  if (d_.rotary_dim > 0) {
    RotaryAngles(p_.turns.data(), d_.rotary_dim / 2, position, cos_sin.data());
  }
  for (int64_t head = 0; head < d_.heads; ++head) {
    float* q = row + head * q_head_width_;
    PrepareHead(p_.q_norm, cos_sin.data(), q);
    Scale(d_.scale, d_.head_dim, q);
  }
  for (int64_t head = 0; head < d_.kv_heads; ++head) {
    PrepareHead(p_.k_norm, cos_sin.data(),
                row + k_column_ + head * d_.head_dim);
  }
}

void SoftmaxAttention::PrepareHead(const std::optional<Norm>& norm,
                                   const float* cos_sin, float* head) const {
  if (norm) norm->Apply(head, head);
  if (d_.rotary_dim > 0) Rotate(cos_sin, d_.rotary_dim / 2, head);
}

// Some heads of one session, tile by tile from the segment's first row.
void SoftmaxAttention::AttendSegment(const Segment& segment,
                                     const HeadGroup& group,
                                     MatrixView<const float> projected,
                                     MatrixView<float> o) const {
  const int64_t kv_width = d_.kv_heads * d_.head_dim;
  const int64_t kv_column = group.kv_head * d_.head_dim;
  const float* fresh = projected.Row(segment.first_row) + kv_column;
  AttentionArgs args;
  args.q_stride = projected.stride;
  args.o_stride = o.stride;
  args.q_head_stride = q_head_width_;
  args.o_head_stride = d_.head_dim;
  args.heads = group.count;
  args.head_dim = d_.head_dim;
  args.window = d_.window;
  args.past = {
      reinterpret_cast<const float*>(segment.slot + p_.k_offset) + kv_column,
      reinterpret_cast<const float*>(segment.slot + p_.v_offset) + kv_column,
      kv_width};
  args.past_rows = p_.capacity;
  args.fresh = {fresh + k_column_, fresh + v_column_, projected.stride};
  args.fresh_position = segment.position;
  for (int64_t row = 0; row < segment.num_rows; row += kTileRows) {
    const int64_t at = segment.first_row + row;
    args.q = projected.Row(at) + group.first * q_head_width_;
    args.o = o.Row(at) + group.first * d_.head_dim;
    args.rows = std::min(kTileRows, segment.num_rows - row);
    args.position = segment.position + row;
    Attend(args);
    for (int64_t r = 0; d_.output_gate && r < args.rows; ++r) {
      for (int64_t head = 0; head < group.count; ++head) {
        const float* q = args.q + r * args.q_stride + head * q_head_width_;
        GateBySigmoid(q + d_.head_dim, d_.head_dim,
                      args.o + r * args.o_stride + head * d_.head_dim);
      }
    }
  }
}

// The segment's keys and values join those of the session.
void SoftmaxAttention::Append(const Segment& segment,
                              MatrixView<const float> projected) const {
  const int64_t width = d_.kv_heads * d_.head_dim;
  const size_t bytes = static_cast<size_t>(width) * sizeof(float);
  float* keys = reinterpret_cast<float*>(segment.slot + p_.k_offset);
  float* values = reinterpret_cast<float*>(segment.slot + p_.v_offset);
  CHECK(d_.window > 0 || segment.position + segment.num_rows <= p_.capacity);
  const int64_t skip = std::max<int64_t>(segment.num_rows - p_.capacity, 0);
  for (int64_t row = skip; row < segment.num_rows; ++row) {
    const float* from = projected.Row(segment.first_row + row);
    const int64_t to = (segment.position + row) % p_.capacity * width;
    std::memcpy(keys + to, from + k_column_, bytes);
    std::memcpy(values + to, from + v_column_, bytes);
  }
}

std::vector<double> TurnsOf(const SoftmaxAttentionDescription& d) {
  std::vector<double> turns;
  for (int64_t i = 0; i < d.rotary_dim / 2; ++i) {
    const double exponent =
        2 * static_cast<double>(i) / static_cast<double>(d.rotary_dim);
    turns.push_back(ScaledTurns(
        d.rotary_scaling,
        std::pow(d.rotary_base, -exponent) / (2 * std::numbers::pi)));
  }
  return turns;
}

// Adds the state field "LAYER.name"; returns its offset.
int64_t AddField(const SoftmaxAttentionDescription& d, const char* name,
                 const MixerContext& context) {
  const std::string full = absl::StrCat(context.layer, ".", name);
  const std::vector<int64_t> row = {d.kv_heads, d.head_dim};
  if (d.window > 0) return context.layout.AddWindow(full, d.window, row);
  return context.layout.AddContext(full, row);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Mixer>> MakeSoftmaxAttention(
    const MixerDescription& description, const MixerContext& context) {
  const auto& d = description.As<SoftmaxAttentionDescription>();
  CHECK(d.head_dim >= 1 && d.head_dim <= kMaxHeadDim);
  CHECK(d.rotary_dim % 2 == 0 && d.rotary_dim <= d.head_dim);
  const int64_t width = d.heads * d.head_dim;
  const int64_t kv_width = d.kv_heads * d.head_dim;
  const LinearPart qkv[] = {{d.q, d.output_gate ? 2 * width : width},
                            {d.k, kv_width},
                            {d.v, kv_width}};
  const LinearPart out[] = {{d.o, context.d_model}};
  ASSIGN_OR_RETURN(Linear projection,
                   context.weights.MakeLinear(qkv, context.d_model));
  std::optional<Norm> q_norm;
  std::optional<Norm> k_norm;
  if (d.q_norm) {
    ASSIGN_OR_RETURN(q_norm,
                     Norm::Create(*d.q_norm, d.head_dim, context.weights));
  }
  if (d.k_norm) {
    ASSIGN_OR_RETURN(k_norm,
                     Norm::Create(*d.k_norm, d.head_dim, context.weights));
  }
  ASSIGN_OR_RETURN(Linear o, context.weights.MakeLinear(out, width));
  context.scratch.Reserve(kProjected, projection.out());
  context.scratch.Reserve(kOutput, width);
  Parts parts{.description = d,
              .projection = std::move(projection),
              .q_norm = std::move(q_norm),
              .k_norm = std::move(k_norm),
              .turns = TurnsOf(d),
              .o = std::move(o)};
  parts.k_offset = AddField(d, "attn_k", context);
  parts.v_offset = AddField(d, "attn_v", context);
  parts.capacity = d.window > 0 ? d.window : context.layout.context_rows();
  return std::make_unique<SoftmaxAttention>(std::move(parts));
}

}  // namespace reprise
