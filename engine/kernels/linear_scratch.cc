#include "engine/kernels/linear_scratch.h"

#include <array>
#include <memory>

#include "engine/base/log.h"

namespace reprise {
namespace {

using dnnl::memory;

// oneDNN's errors of Apply leave no way to go on: arguments were checked when
// the primitive was made.
void CheckOk(dnnl_status_t status) { CHECK(status == dnnl_success); }

}  // namespace

// The C interface: the C++ one builds a map at every call.
void LinearScratch::Impl::Run(const Kernel& kernel, const memory& weights,
                              const memory& bias, const void* source,
                              void* result) {
  Bound& memories = Bind(kernel);
  CheckOk(dnnl_memory_set_data_handle(memories.source.get(),
                                      const_cast<void*>(source)));
  CheckOk(dnnl_memory_set_data_handle(memories.result.get(), result));
  CheckOk(dnnl_memory_set_data_handle(memories.scratchpad.get(),
                                      scratchpad.data()));
  std::array<dnnl_exec_arg_t, 5> args = {{
      {DNNL_ARG_SRC, memories.source.get()},
      {DNNL_ARG_WEIGHTS, weights.get()},
      {DNNL_ARG_DST, memories.result.get()},
      {DNNL_ARG_SCRATCHPAD, memories.scratchpad.get()},
  }};
  int num_args = 4;
  if (bias) args[num_args++] = {DNNL_ARG_BIAS, bias.get()};
  CheckOk(dnnl_primitive_execute(kernel.primitive.get(), stream.get(), num_args,
                                 args.data()));
}

void LinearScratch::Impl::Reserve(const Room& room) {
  Grow(sources, room.lines);
  Grow(row_scales, room.rows);
}

LinearScratch::LinearScratch() : impl_(std::make_unique<Impl>()) {}
LinearScratch::~LinearScratch() = default;
LinearScratch::LinearScratch(LinearScratch&&) noexcept = default;
LinearScratch& LinearScratch::operator=(LinearScratch&&) noexcept = default;

}  // namespace reprise
