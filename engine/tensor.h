// Views of row-major matrices. They own nothing.
#ifndef ENGINE_TENSOR_H_
#define ENGINE_TENSOR_H_

#include <cstdint>
#include <span>
#include <type_traits>

namespace reprise {

// `rows` x `cols` elements; row r starts at data + r * stride.
template <typename T>
struct MatrixView {
  T* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  // elements from one row to the next, >= cols

  MatrixView() = default;
  MatrixView(T* data, int64_t rows, int64_t cols)
      : MatrixView(data, rows, cols, cols) {}
  MatrixView(T* data, int64_t rows, int64_t cols, int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  // A view of const elements from one of mutable ones.
  template <typename U>
  requires std::is_same_v<const U, T> MatrixView(const MatrixView<U>& other)
      : MatrixView(other.data, other.rows, other.cols, other.stride) {}

  T* Row(int64_t row) const { return data + row * stride; }
  std::span<T> RowSpan(int64_t row) const {
    return {Row(row), static_cast<size_t>(cols)};
  }
  MatrixView Rows(int64_t first, int64_t count) const {
    return {Row(first), count, cols, stride};
  }
};

}  // namespace reprise

#endif  // ENGINE_TENSOR_H_
