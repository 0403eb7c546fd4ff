// What linear.h says of the CPU and of oneDNN.
#include <dnnl.hpp>

#include "absl/strings/str_cat.h"
#include "engine/kernels/linear.h"

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

WeightType ResolveWeightType(WeightType type) {
  return type == WeightType::kAuto ? WeightType::kBf16 : type;
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
