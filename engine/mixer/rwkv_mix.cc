#include "engine/mixer/rwkv_mix.h"

#include "engine/base/log.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/gate_ops.h"
#include "engine/mixer/row_ops.h"

namespace reprise {

absl::StatusOr<std::vector<float>> ReadShares(const RwkvMix& mix, int64_t width,
                                              Weights& weights) {
  if (!mix.share.tensor) return std::vector<float>();
  ASSIGN_OR_RETURN(const std::vector<float> all,
                   weights.Tensor(mix.share.tensor, mix.share.shape));
  CHECK(mix.first + width <= std::ssize(all));
  std::vector<float> shares(all.begin() + mix.first,
                            all.begin() + mix.first + width);
  if (mix.of_now) {
    for (float& share : shares) share = 1 - share;
  }
  return shares;
}

void MixRows(MatrixView<const float> x, MatrixView<const float> difference,
             const std::vector<float>& share, MatrixView<float> out) {
  ForEach(x.rows, 3 * x.cols, [&](int64_t row) {
    MultiplyAdd(share.data(), difference.Row(row), x.Row(row), x.cols,
                out.Row(row));
  });
}

}  // namespace reprise
