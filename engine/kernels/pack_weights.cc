#include "engine/kernels/pack_weights.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/parallel.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/any_rows.h"
#include "engine/kernels/matmul.h"
#include "engine/kernels/quantize.h"
#include "engine/kernels/simd_ops.h"

namespace reprise {
namespace {

using dnnl::memory;

// Numbers read at a time: few beside a matrix, many beside what waking the
// team costs.
constexpr int64_t kNumbersAtATime = int64_t{1} << 20;

// The buffer, of at least `bytes` bytes. The old one goes before the new one
// comes.
template <typename T>
T* Grow(LargeBuffer& buffer, int64_t elements) {
  const size_t bytes = static_cast<size_t>(elements) * sizeof(T);
  if (buffer.size() < bytes) {
    buffer = LargeBuffer();
    buffer = LargeBuffer(std::max(bytes, LargeBuffer::kOwnBytes));
  }
  return reinterpret_cast<T*>(buffer.data());
}

// Calls use(row, numbers) for every row, several rows at once.
template <typename Use>
absl::Status ForEachRow(const LinearShape& shape, ReadRows rows,
                        PackBuffer& buffer, const Use& use) {
  const int64_t in = shape.in;
  const int64_t at_a_time = std::max<int64_t>(1, kNumbersAtATime / in);
  for (int64_t first = 0; first < shape.out; first += at_a_time) {
    const int64_t count = std::min(at_a_time, shape.out - first);
    auto* const numbers = Grow<float>(buffer.rows, count * in);
    RETURN_IF_ERROR(rows(first, count, numbers));
    ForEach(count, in,
            [&](int64_t row) { use(first + row, numbers + row * in); });
  }
  return absl::OkStatus();
}

// Copies W, [out, in] without gaps, into ColumnBlocks. Row by row of a block,
// so that all but the first of its stores find their line in the cache.
template <class T>
void CopyToBlocks(const T* weight, const LinearShape& shape, T* blocks) {
  constexpr int64_t kColumns = kAnyRowsColumns;
  const int64_t in = shape.in;
  const int64_t out = shape.out;
  const int64_t padded = PaddedNumbers(in);
  ForEach((out + kColumns - 1) / kColumns, in * kColumns, [&](int64_t number) {
    T* const block = blocks + number * padded * kColumns;
    const int64_t first = number * kColumns;
    const int64_t columns = std::min(kColumns, out - first);
    if (columns < kColumns || in < padded) {
      std::fill_n(block, padded * kColumns, T(0));
    }
    for (int64_t column = 0; column < columns; ++column) {
      const T* const row = weight + (first + column) * in;
      for (int64_t i = 0; i < in; ++i) block[i * kColumns + column] = row[i];
    }
  });
}

// Copies W, [out, in] of T without gaps, into the layout.
template <class T>
LargeBuffer Reorder(T* weight, const LinearShape& shape,
                    const ShapeKernels& kernels) {
  const memory::desc& layout = kernels.weights;
  LargeBuffer result(layout.get_size());
  if (kernels.own()) {
    CopyToBlocks(weight, shape, reinterpret_cast<T*>(result.data()));
    return result;
  }
  memory source({{shape.in, shape.out},
                 static_cast<memory::data_type>(layout.data.data_type),
                 memory::dims{1, shape.in}},
                CpuEngine(), weight);
  memory packed(layout, CpuEngine(), result.data());
  dnnl::stream stream(CpuEngine());
  dnnl::reorder(source, packed).execute(stream, source, packed);
  stream.wait();
  return result;
}

// Without a copy of its own: the rows are read to where oneDNN finds them.
absl::StatusOr<PackedWeights> PackF32(const LinearShape& shape,
                                      const ShapeKernels& kernels,
                                      ReadRows rows, PackBuffer& buffer) {
  auto* const plain = Grow<float>(buffer.plain, shape.in * shape.out);
  const int64_t at_a_time = std::max<int64_t>(1, kNumbersAtATime / shape.in);
  for (int64_t first = 0; first < shape.out; first += at_a_time) {
    RETURN_IF_ERROR(rows(first, std::min(at_a_time, shape.out - first),
                         plain + first * shape.in));
  }
  PackedWeights result;
  result.bytes = Reorder(plain, shape, kernels);
  return result;
}

// Rounded by our own code: oneDNN has a fast reorder for bf16 to bf16.
absl::StatusOr<PackedWeights> PackBf16(const LinearShape& shape,
                                       const ShapeKernels& kernels,
                                       ReadRows rows, PackBuffer& buffer) {
  auto* const plain = Grow<uint16_t>(buffer.plain, shape.in * shape.out);
  RETURN_IF_ERROR(
      ForEachRow(shape, rows, buffer, [&](int64_t row, const float* numbers) {
        F32ToBf16(numbers, shape.in, plain + row * shape.in);
      }));
  PackedWeights result;
  result.bytes = Reorder(plain, shape, kernels);
  return result;
}

absl::StatusOr<PackedWeights> PackInt8(const LinearShape& shape,
                                       const ShapeKernels& kernels,
                                       ReadRows rows, PackBuffer& buffer) {
  const int64_t in = shape.in;
  auto* const plain = Grow<int8_t>(buffer.plain, in * shape.out);
  PackedWeights result;
  result.scales.resize(static_cast<size_t>(shape.out));
  const bool offsets = !kernels.own();
  if (offsets) result.offsets.resize(static_cast<size_t>(shape.out));
  RETURN_IF_ERROR(
      ForEachRow(shape, rows, buffer, [&](int64_t row, const float* numbers) {
        int8_t* const q = plain + row * in;
        const auto at = static_cast<size_t>(row);
        result.scales[at] = QuantizeSigned(numbers, in, q);
        if (!offsets) return;
        result.offsets[at] = 128 * std::accumulate(q, q + in, 0);
      }));
  result.bytes = Reorder(plain, shape, kernels);
  return result;
}

std::string Numbers(const dnnl_dim_t* values, int count) {
  return absl::StrJoin(std::span(values, static_cast<size_t>(count)), ",");
}

}  // namespace

absl::StatusOr<PackedWeights> PackWeights(const LinearShape& shape,
                                          const ShapeKernels& kernels,
                                          WeightType type, ReadRows rows,
                                          PackBuffer& buffer) {
  switch (type) {
    case WeightType::kBf16:
      return PackBf16(shape, kernels, rows, buffer);
    case WeightType::kInt8:
      return PackInt8(shape, kernels, rows, buffer);
    default:
      return PackF32(shape, kernels, rows, buffer);
  }
}

std::string LayoutText(const memory::desc& layout) {
  const dnnl_memory_desc_t& d = layout.data;
  // Extras are sums that oneDNN keeps behind the numbers, by rules of its own.
  if (d.format_kind != dnnl_blocked || d.extra.flags != 0) return "";
  const dnnl_blocking_desc_t& blocks = d.format_desc.blocking;
  return absl::StrCat("type ", static_cast<int>(d.data_type), " dims ",
                      Numbers(d.dims, d.ndims), " padded ",
                      Numbers(d.padded_dims, d.ndims), " at ",
                      Numbers(d.padded_offsets, d.ndims), " from ", d.offset0,
                      " strides ", Numbers(blocks.strides, d.ndims), " blocks ",
                      Numbers(blocks.inner_blks, blocks.inner_nblks), " of ",
                      Numbers(blocks.inner_idxs, blocks.inner_nblks));
}

}  // namespace reprise
