// What the calls of Linear work in. A part of linear.cc.
#ifndef ENGINE_KERNELS_LINEAR_SCRATCH_H_
#define ENGINE_KERNELS_LINEAR_SCRATCH_H_

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/kernels/linear.h"
#include "engine/kernels/matmul.h"

namespace reprise {

template <class T>
void Grow(std::vector<T>& values, int64_t size) {
  if (std::ssize(values) < size) values.resize(static_cast<size_t>(size));
}

struct LinearScratch::Impl {
  // Memory objects of one kernel; their handles are set at every call.
  struct Bound {
    explicit Bound(const Kernel& kernel)
        : source(kernel.source, CpuEngine(), nullptr),
          result(kernel.result, CpuEngine(), nullptr),
          scratchpad(kernel.scratchpad, CpuEngine(), nullptr) {}
    dnnl::memory source;
    dnnl::memory result;
    dnnl::memory scratchpad;
  };
  struct alignas(64) Line {
    std::byte bytes[64];
  };

  // What is in use of the vectors below.
  struct Room {
    int64_t lines = 0;
    int64_t rows = 0;
  };
  void Reserve(const Room& room);

  Bound& Bind(const Kernel& kernel) {
    const auto found = bound.find(kernel.id);
    if (found != bound.end()) return found->second;
    const size_t lines = (kernel.scratchpad.get_size() + 63) / 64;
    if (scratchpad.size() < lines) scratchpad.resize(lines);
    return bound.emplace(kernel.id, kernel).first->second;
  }

  // Executes `kernel` on kernel.rows rows.
  void Run(const Kernel& kernel, const dnnl::memory& weights,
           const dnnl::memory& bias, const void* source, void* result);

  dnnl::stream stream{CpuEngine()};
  std::unordered_map<uint64_t, Bound> bound;  // by Kernel::id
  std::vector<Line> scratchpad;               // of the most demanding kernel
  // Of a kernel's rows or of those of all calls:
  std::vector<Line> sources;      // of bf16 or 8 bits, signed for any_rows.h
  std::vector<float> row_scales;  // [rows], of 8-bit matmuls
};

}  // namespace reprise

#endif  // ENGINE_KERNELS_LINEAR_SCRATCH_H_
