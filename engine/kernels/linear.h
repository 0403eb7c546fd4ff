// y = x W^T + b, with W packed once at load: the only part of the engine that
// knows oneDNN.
//
// Exactness: a row of y has the same bits whatever the number of rows and of
// threads. oneDNN picks an implementation per row count; on some CPUs (AMX)
// that choice changes the last bit. So a Linear uses one for all, that for 4
// rows, and 1 to 3 rows that cannot have it run as 2, 3 or 4. Up to 64 rows go
// through few_rows.h, with AMX any number through tile_rows.h, if that is seen
// to give this matrix oneDNN's bits. Where oneDNN has no such implementation
// (before AVX-512; of int8 before its VNNI, of bf16 before its BF16), all rows
// go through any_rows.h.
//
// bf16: weights, and x at every call, are rounded; sums are f32.
// int8: weights become 8-bit integers with a scale for each output, inputs with
// a scale for each row at every call (quantize.h). Sums of their products are
// exact integers, so that int8 has the same bits on every CPU, for any number
// of rows and threads. A row of x that has NaN or infinity gives one of NaN.
#ifndef ENGINE_KERNELS_LINEAR_H_
#define ENGINE_KERNELS_LINEAR_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/kernels/linear_types.h"
#include "engine/tensor.h"

namespace reprise {

// The type that weights are packed and multiplied in. kAuto is resolved by
// ResolveWeightType and never reaches a Linear.
enum class WeightType { kAuto, kF32, kBf16, kInt8 };
inline constexpr WeightType kWeightTypes[] = {
    WeightType::kAuto, WeightType::kF32, WeightType::kBf16, WeightType::kInt8};

std::string_view WeightTypeName(WeightType type);

// kAuto becomes bf16, which every CPU reads twice as fast as f32; never int8,
// which costs accuracy.
WeightType ResolveWeightType(WeightType type);

// Most inputs of an int8 Linear: 255 * 127 times as many fit 32 bits.
inline constexpr int64_t kMaxInt8Inputs = 65536;

// What oneDNN may use on this CPU ("avx512_core_amx", "avx2", ...), for logs.
std::string CpuIsaName();
// oneDNN's version and the commit it was built from.
std::string LinearLibraryVersion();

// Row counts are rounded up to a few sizes so that a primitive for each can be
// made at load. Buffers given to Linear::Apply need room for PaddedRows(rows)
// rows; what lies beyond `rows` is read, ignored, and overwritten.
int64_t PaddedRows(int64_t rows);

// Memory that Apply needs, shared by all Linears of an engine. One per thread
// that calls Apply.
class LinearScratch {
 public:
  LinearScratch();
  ~LinearScratch();
  LinearScratch(LinearScratch&&) noexcept;
  LinearScratch& operator=(LinearScratch&&) noexcept;

 private:
  friend class Linear;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Immutable after construction; Apply may run on several threads at once, each
// with its own scratch.
class Linear {
 public:
  struct Options {
    WeightType type = WeightType::kF32;
    int64_t max_rows = 1;  // Apply takes 1..max_rows rows
  };

  // `weight` is [out, in], row-major f32; `bias` has `out` elements or none.
  // Both are copied. Internal if oneDNN fails.
  static absl::StatusOr<Linear> Create(MatrixView<const float> weight,
                                       std::span<const float> bias,
                                       const Options& options);
  // The same of rows that are read one after the other. Fails as `rows` does.
  static absl::StatusOr<Linear> Pack(const LinearShape& shape, ReadRows rows,
                                     std::span<const float> bias,
                                     const Options& options,
                                     PackBuffer& buffer);
  // The same bits without packing: from what Store told of a Linear that had a
  // bias or not, on this kind of CPU, whose weights `read` writes to where they
  // belong. FailedPrecondition, without reading, if their layout, or the size
  // of anything, is not what Pack would make here; else fails as `read` does.
  using ReadWeights = absl::FunctionRef<absl::Status(std::span<std::byte>)>;
  static absl::StatusOr<Linear> Restore(const LinearShape& shape, bool has_bias,
                                        const Options& options,
                                        const StoredLinear& stored,
                                        ReadWeights read);
  StoredLinear Store() const;
  // The weights as Apply reads them, in the layout that Store names.
  std::span<const std::byte> weights() const;
  // One that has no weights and only tells in() and out(): for looking at a
  // model without loading it. Whatever else is called is a bug.
  static Linear OfShape(int64_t in, int64_t out);
  ~Linear();
  Linear(Linear&&) noexcept;
  Linear& operator=(Linear&&) noexcept;

  // x is [rows, in], y is [rows, out], both without gaps between rows and with
  // room for PaddedRows(rows) rows; they must not overlap. Allocates nothing
  // of its own after Reserve; oneDNN does its bookkeeping of a call (some
  // hundred bytes) on the heap.
  void Apply(MatrixView<const float> x, MatrixView<float> y,
             LinearScratch& scratch) const;

  // The same for up to 8, none of which reads what another one writes. Up to 64
  // rows the threads wait for each other once, not after every one.
  struct Call {
    const Linear* linear;
    MatrixView<const float> x;
    MatrixView<float> y;
  };
  static void ApplyAll(std::span<const Call> calls, LinearScratch& scratch);

  // Gives `scratch` all that Apply needs, for any number of rows.
  void Reserve(LinearScratch& scratch) const;

  int64_t in() const;
  int64_t out() const;
  int64_t packed_bytes() const;
  // Up to so many rows are not oneDNN's; 0 if all are.
  int64_t own_rows() const;

 private:
  struct Impl;
  explicit Linear(std::unique_ptr<Impl> impl);
  static absl::StatusOr<std::unique_ptr<Impl>> MakeImpl(
      const LinearShape& shape, bool has_bias, const Options& options);
  static void ApplyOwn(std::span<const Call> calls, LinearScratch& scratch);
  void UseFewRowsIfExact();
  std::unique_ptr<Impl> impl_;
};

}  // namespace reprise

#endif  // ENGINE_KERNELS_LINEAR_H_
