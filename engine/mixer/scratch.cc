#include "engine/mixer/scratch.h"

#include <algorithm>

#include "engine/base/log.h"

namespace reprise {

void Scratch::Reserve(int64_t index, int64_t cols) {
  CHECK(index >= 0 && cols >= 1);
  if (index >= std::ssize(widths_)) {
    widths_.resize(static_cast<size_t>(index) + 1);
  }
  int64_t& width = widths_[static_cast<size_t>(index)];
  width = std::max(width, cols);
}

void Scratch::ReserveKept(int64_t cols) {
  CHECK(cols >= 1);
  kept_width_ = std::max(kept_width_, cols);
}

void Scratch::Allocate(int64_t max_rows) {
  CHECK(max_rows >= 1);
  buffers_.resize(widths_.size());
  for (size_t i = 0; i < widths_.size(); ++i) {
    buffers_[i].assign(static_cast<size_t>(PaddedRows(max_rows) * widths_[i]),
                       0.0F);
  }
  kept_.assign(static_cast<size_t>(max_rows * kept_width_), 0.0F);
}

MatrixView<float> Scratch::Kept(int64_t rows, int64_t cols) {
  CHECK(rows * cols <= std::ssize(kept_));
  return {kept_.data(), rows, cols};
}

MatrixView<float> Scratch::Matrix(int64_t index, int64_t rows, int64_t cols) {
  CHECK(index >= 0 && index < std::ssize(buffers_));
  std::vector<float>& buffer = buffers_[static_cast<size_t>(index)];
  CHECK(PaddedRows(rows) * cols <= std::ssize(buffer));
  return {buffer.data(), rows, cols};
}

}  // namespace reprise
