// Attention with a decaying state: what retention and gated linear attention
// have in common.
#ifndef ENGINE_MIXER_DECAY_ATTENTION_H_
#define ENGINE_MIXER_DECAY_ATTENTION_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "engine/kernels/linear.h"
#include "engine/mixer/decay_state.h"
#include "engine/mixer/mixer.h"
#include "engine/mixer/registry.h"
#include "engine/mixer/row_ops.h"
#include "engine/model/decay_descriptions.h"

namespace reprise {

// A mixer whose subclass says how queries and keys are prepared and what
// decays.
class DecayAttention : public Mixer {
 public:
  void Forward(MatrixView<const float> x, std::span<const Segment> segments,
               Scratch& scratch, MatrixView<float> y) const final;

 protected:
  // The first buffer of the scratch that a subclass may use.
  static constexpr int64_t kFirstFreeBuffer = 2;

  struct Parts {
    DecayAttentionDescription description;
    Linear projection;  // [d_model] to [q | k | v | gate | extra]
    Norm output_norm;
    Linear o;
    int64_t s_offset = 0;  // bytes, in the slot
  };
  // Adds the state field "LAYER.recurrent" of [heads, key_dim, value_dim].
  // `extra` is what the subclass wants projected besides, if it names a tensor.
  // Fails as MakeMixer does.
  static absl::StatusOr<Parts> MakeParts(
      const DecayAttentionDescription& description, const LinearRef& extra,
      int64_t extra_width, const MixerContext& context);

  explicit DecayAttention(Parts parts);

  // Columns of the projection, one row for each of the step's.
  struct Rows {
    MatrixView<float> q;  // [rows, heads * key_dim], as projected
    MatrixView<float> k;  // [rows, kv_heads * key_dim]
    MatrixView<float> v;  // [rows, kv_heads * value_dim]
    MatrixView<float> gate;
    MatrixView<float> extra;
  };
  // Makes of q, k and v what the kernels take, in place, and sets the decay
  // in `args`.
  virtual void Prepare(const Rows& rows, std::span<const Segment> segments,
                       Scratch& scratch, DecayArgs& args) const = 0;

  const DecayAttentionDescription& description() const { return d_; }
  // The activation of queries and keys, if any.
  void Activate(const Rows& rows) const;

 private:
  void Finish(const DecayArgs& tile, int64_t first_row,
              MatrixView<float> gate) const;

  const Parts p_;
  const DecayAttentionDescription& d_;
};

}  // namespace reprise

#endif  // ENGINE_MIXER_DECAY_ATTENTION_H_
