// Memory that a step works in, sized once at load.
#ifndef ENGINE_MIXER_SCRATCH_H_
#define ENGINE_MIXER_SCRATCH_H_

#include <cstdint>
#include <vector>

#include "engine/kernels/linear.h"
#include "engine/tensor.h"

namespace reprise {

// Named-by-index work matrices, [PaddedRows(max_rows), cols] each, shared by
// all layers of a model, since only one layer runs at a time. Used by one
// thread at a time.
class Scratch {
 public:
  // Makes buffer `index` at least `cols` wide. Called while a model loads.
  void Reserve(int64_t index, int64_t cols);
  // Makes the kept matrix at least `cols` wide.
  void ReserveKept(int64_t cols);
  // Allocates what was reserved, for steps of up to `max_rows` rows.
  void Allocate(int64_t max_rows);

  // The first `rows` rows of buffer `index`, `cols` wide, without gaps;
  // contents are what the last user left. CHECKs that it was reserved.
  MatrixView<float> Matrix(int64_t index, int64_t rows, int64_t cols);
  // A matrix that no mixer works in: what one layer of a step leaves in it, the
  // later ones find. CHECKs that it was reserved.
  MatrixView<float> Kept(int64_t rows, int64_t cols);
  LinearScratch& linear() { return linear_; }

 private:
  std::vector<int64_t> widths_;              // of each buffer
  std::vector<std::vector<float>> buffers_;  // [PaddedRows(max_rows) * width]
  int64_t kept_width_ = 0;                   // 0: not reserved
  std::vector<float> kept_;                  // [max_rows * kept_width_]
  LinearScratch linear_;
};

}  // namespace reprise

#endif  // ENGINE_MIXER_SCRATCH_H_
