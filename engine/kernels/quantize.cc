#include "engine/kernels/quantize.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>

// clang-format off
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/kernels/quantize.cc"
#include "hwy/foreach_target.h"  // must come first
// clang-format on
#include "hwy/highway.h"

// Compiled once per target. Tails go through buffers of one vector.
HWY_BEFORE_NAMESPACE();
namespace reprise {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

// The largest magnitude. As integers, the bits of magnitudes are ordered as
// the numbers are, with infinity above them and every NaN above that; the
// floating-point maximum of x86 would lose a NaN.
HWY_INLINE float LargestMagnitude(const float* x, size_t n) {
  const DF df;
  const DI di;
  const VI mask = hn::Set(di, 0x7fffffff);
  VI largest = hn::Zero(di);
  size_t i = 0;
  for (; i + hn::Lanes(df) <= n; i += hn::Lanes(df)) {
    const VI bits = hn::BitCast(di, hn::LoadU(df, x + i));
    largest = hn::Max(largest, hn::And(bits, mask));
  }
  HWY_ALIGN int32_t lanes[hn::MaxLanes(di)];
  hn::Store(largest, di, lanes);
  int32_t result = *std::max_element(lanes, lanes + hn::Lanes(di));
  for (; i < n; ++i) {
    result = std::max(result, std::bit_cast<int32_t>(x[i]) & 0x7fffffff);
  }
  return std::bit_cast<float>(result);
}

// What a row is multiplied with, or NaN. The limit keeps it finite for rows of
// zeros and of subnormal numbers, and its inverse a normal number.
HWY_INLINE float InverseScale(const float* x, size_t n) {
  const float largest = LargestMagnitude(x, n);
  if (!(largest <= std::numeric_limits<float>::max())) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  return std::min(127 / largest, 0x1p126F);
}

// Calls store(q, first, count) for the quantised numbers, a vector at a time;
// of the last one only `count` lanes count.
template <class Store>
HWY_INLINE float QuantizeRow(const float* x, int64_t size, Store store) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  const size_t n = static_cast<size_t>(size);
  const float inverse = InverseScale(x, n);
  if (inverse != inverse) {
    for (size_t i = 0; i < n; i += lanes) {
      store(hn::Zero(DI()), i, std::min(lanes, n - i));
    }
    return inverse;
  }
  const VF factor = hn::Set(df, inverse);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    store(hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), factor)), i, lanes);
  }
  if (i < n) {
    HWY_ALIGN float tail[hn::MaxLanes(df)] = {};
    std::memcpy(tail, x + i, (n - i) * sizeof(float));
    store(hn::NearestInt(hn::Mul(hn::Load(df, tail), factor)), i, n - i);
  }
  return 1 / inverse;
}

// The first `count` lanes of v, narrowed, to `to`.
template <class T>
HWY_INLINE void StoreNarrow(VI v, size_t count, T* to) {
  const hn::Rebind<T, DI> d;
  const auto narrow = hn::DemoteTo(d, v);
  if (count == hn::Lanes(DI())) {
    hn::StoreU(narrow, d, to);
    return;
  }
  HWY_ALIGN T buffer[hn::MaxLanes(d)];
  hn::Store(narrow, d, buffer);
  // `count` is smaller already, which not every compiler sees.
  std::memcpy(to, buffer, std::min(count, hn::MaxLanes(d)) * sizeof(T));
}

float QuantizeSigned(const float* x, int64_t n, int8_t* q) {
  return QuantizeRow(x, n, [q](VI v, size_t i, size_t count) HWY_ATTR {
    StoreNarrow(v, count, q + i);
  });
}

float QuantizeShifted(const float* x, int64_t n, uint8_t* q) {
  return QuantizeRow(x, n, [q](VI v, size_t i, size_t count) HWY_ATTR {
    StoreNarrow(hn::Add(v, hn::Set(DI(), 128)), count, q + i);
  });
}

void Dequantize(const Dequantizer& scales, const int32_t* sums, int64_t size,
                float* y) {
  const DF df;
  const DI di;
  const VF row_scale = hn::Set(df, scales.row_scale);
  const auto convert = [&](VI sum, VF column_scale, VF bias) HWY_ATTR {
    const VF scaled = hn::Mul(hn::ConvertTo(df, sum), column_scale);
    return hn::MulAdd(scaled, row_scale, bias);
  };
  const size_t n = static_cast<size_t>(size);
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VI offset = scales.offsets == nullptr
                          ? hn::Zero(di)
                          : hn::LoadU(di, scales.offsets + i);
    const VI sum = hn::Sub(hn::LoadU(di, sums + i), offset);
    const VF bias =
        scales.bias == nullptr ? hn::Zero(df) : hn::LoadU(df, scales.bias + i);
    hn::StoreU(convert(sum, hn::LoadU(df, scales.column_scales + i), bias), df,
               y + i);
  }
  if (i == n) return;
  const size_t bytes = (n - i) * sizeof(float);
  HWY_ALIGN int32_t sum[hn::MaxLanes(di)] = {};
  HWY_ALIGN int32_t offset[hn::MaxLanes(di)] = {};
  HWY_ALIGN float column_scale[hn::MaxLanes(df)] = {};
  HWY_ALIGN float bias[hn::MaxLanes(df)] = {};
  std::memcpy(sum, sums + i, bytes);
  if (scales.offsets != nullptr) {
    std::memcpy(offset, scales.offsets + i, bytes);
  }
  std::memcpy(column_scale, scales.column_scales + i, bytes);
  if (scales.bias != nullptr) std::memcpy(bias, scales.bias + i, bytes);
  HWY_ALIGN float result[hn::MaxLanes(df)];
  hn::Store(convert(hn::Sub(hn::Load(di, sum), hn::Load(di, offset)),
                    hn::Load(df, column_scale), hn::Load(df, bias)),
            df, result);
  std::memcpy(y + i, result, bytes);
}

}  // namespace HWY_NAMESPACE
}  // namespace reprise
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace reprise {

HWY_EXPORT(QuantizeSigned);
HWY_EXPORT(QuantizeShifted);
HWY_EXPORT(Dequantize);

float QuantizeSigned(const float* x, int64_t n, int8_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantizeSigned)(x, n, q);
}

float QuantizeShifted(const float* x, int64_t n, uint8_t* q) {
  return HWY_DYNAMIC_DISPATCH(QuantizeShifted)(x, n, q);
}

void Dequantize(const Dequantizer& scales, const int32_t* sums, int64_t n,
                float* y) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(scales, sums, n, y);
}

}  // namespace reprise
#endif  // HWY_ONCE
