// What linear.h says of the CPU and of oneDNN.
#include <dnnl.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/kernels/linear.h"
#include "engine/kernels/matmul.h"

namespace reprise {

std::string_view WeightTypeName(WeightType type) {
  switch (type) {
    case WeightType::kAuto:
      return "auto";
    case WeightType::kF32:
      return "f32";
    case WeightType::kBf16:
      return "bf16";
    case WeightType::kInt8:
      return "int8";
  }
  return "unknown";
}

absl::StatusOr<WeightType> ResolveWeightType(WeightType type) {
  if (type == WeightType::kF32 || type == WeightType::kInt8) return type;
  std::string name;
  try {
    name = CommonImplementation(WeightType::kBf16);
  } catch (const dnnl::error& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
  if (type == WeightType::kAuto) {
    return IsExactImplementation(name) ? WeightType::kBf16 : WeightType::kF32;
  }
  if (name.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("weights: this CPU (", CpuIsaName(),
                     ") cannot multiply bf16; use f32 or int8"));
  }
  return type;
}

std::string CpuIsaName() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "sse41";
    case dnnl::cpu_isa::avx:
      return "avx";
    case dnnl::cpu_isa::avx2:
      return "avx2";
    case dnnl::cpu_isa::avx2_vnni:
      return "avx2_vnni";
    case dnnl::cpu_isa::avx512_core:
      return "avx512_core";
    case dnnl::cpu_isa::avx512_core_vnni:
      return "avx512_core_vnni";
    case dnnl::cpu_isa::avx512_core_bf16:
      return "avx512_core_bf16";
    case dnnl::cpu_isa::avx512_core_amx:
      return "avx512_core_amx";
    default:
      return "other";
  }
}

std::string LinearLibraryVersion() {
  const dnnl_version_t& version = *dnnl_version();
  return absl::StrCat("oneDNN ", version.major, ".", version.minor, ".",
                      version.patch, " ", version.hash);
}

}  // namespace reprise
