// What the mixers of RWKV-4, 5 and 6 read: shares of a token and its
// predecessor.
#ifndef ENGINE_MIXER_RWKV_MIX_H_
#define ENGINE_MIXER_RWKV_MIX_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/rwkv_descriptions.h"
#include "engine/model/weights.h"
#include "engine/tensor.h"

namespace reprise {

// The predecessor's shares, `width` of them; empty if `mix` names no tensor.
absl::StatusOr<std::vector<float>> ReadShares(const RwkvMix& mix, int64_t width,
                                              Weights& weights);

// out = x + difference * share for every row, where difference is the
// predecessor less x (TokenShift).
void MixRows(MatrixView<const float> x, MatrixView<const float> difference,
             const std::vector<float>& share, MatrixView<float> out);

}  // namespace reprise

#endif  // ENGINE_MIXER_RWKV_MIX_H_
