#include "engine/kernels/few_rows.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/base/log.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace reprise {

int64_t NumbersPerStep(WeightType type) {
  if (type == WeightType::kBf16) return 2;
  return type == WeightType::kInt8 ? 4 : 1;
}

int64_t RowBytes(WeightType type, int64_t in) {
  return in * 4 / NumbersPerStep(type);
}

#if defined(__x86_64__)

namespace {

// What any type needs. The compiler makes the instructions of VNNI and BF16 of
// nothing but their intrinsics, so each type asks a CPU for its own ones only.
#define REPRISE_AVX512                                        \
  __attribute__((                                             \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni," \
             "avx512bf16")))

// Of loops over registers: what is not unrolled lies in memory.
#if defined(__clang__)
#define REPRISE_UNROLL _Pragma("clang loop unroll(full)")
#else
#define REPRISE_UNROLL _Pragma("GCC unroll 8")
#endif

constexpr int64_t kBlockVectors = kBlockColumns / kVectorColumns;
constexpr int64_t kVectorBytes = 64;
constexpr int64_t kStepBytes = kBlockVectors * kVectorBytes;

struct F32 {
  using Number = float;
  using Sum = float;
  using Sums = __m512;

  REPRISE_AVX512 static Sums Zero() { return _mm512_setzero_ps(); }
  REPRISE_AVX512 static Sums Step(const Number* x, __m512i w, Sums sums) {
    return _mm512_fmadd_ps(_mm512_set1_ps(*x), _mm512_castsi512_ps(w), sums);
  }
  REPRISE_AVX512 static Sums Add(Sums sums, __mmask16 mask, const Sum* y) {
    return _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, y));
  }
  REPRISE_AVX512 static void Store(Sums sums, __mmask16 mask, Sum* y) {
    _mm512_mask_storeu_ps(y, mask, sums);
  }
};

template <class T>
REPRISE_AVX512 __m512i Broadcast(const T* numbers) {
  int32_t bits;
  std::memcpy(&bits, numbers, sizeof(bits));
  return _mm512_set1_epi32(bits);
}

struct Bf16 : F32 {
  using Number = uint16_t;

  REPRISE_AVX512 static Sums Step(const Number* x, __m512i w, Sums sums) {
    return _mm512_dpbf16_ps(sums, __m512bh(Broadcast(x)), __m512bh(w));
  }
};

struct Int8 {
  using Number = uint8_t;
  using Sum = int32_t;
  using Sums = __m512i;

  REPRISE_AVX512 static Sums Zero() { return _mm512_setzero_si512(); }
  REPRISE_AVX512 static Sums Step(const Number* x, __m512i w, Sums sums) {
    return _mm512_dpbusd_epi32(sums, Broadcast(x), w);
  }
  REPRISE_AVX512 static Sums Add(Sums sums, __mmask16 mask, const Sum* y) {
    return _mm512_add_epi32(sums, _mm512_maskz_loadu_epi32(mask, y));
  }
  REPRISE_AVX512 static void Store(Sums sums, __mmask16 mask, Sum* y) {
    _mm512_mask_storeu_epi32(y, mask, sums);
  }
};

// As NumbersPerStep of its weight type.
template <class T>
constexpr int64_t kPerStep = 4 / sizeof(typename T::Number);

// A chunk of the sums of a few rows and of a few vectors of one block.
template <class T>
struct Chunk {
  const typename T::Number* x;
  int64_t in;  // from row to row of x
  const std::byte* w;
  int64_t steps;
  bool first;  // else y has the sums of those before
  typename T::Sum* y;
  int64_t out;             // from row to row of y
  __mmask16 last;          // which columns the last vector has
  const std::byte* ahead;  // is fetched meanwhile,
  int64_t ahead_bytes;     // so much every step: all of one, or half at most,
  const std::byte* end;    // up to here
};

template <_mm_hint kCache, int64_t kBytes>
REPRISE_AVX512 void Fetch(const std::byte* w) {
  REPRISE_UNROLL
  for (int64_t i = 0; i < kBytes; i += kVectorBytes) {
    _mm_prefetch(w + i, kCache);
  }
}

template <class T, int kRows, int kVectors>
REPRISE_AVX512 void AddChunk(const Chunk<T>& chunk) {
  typename T::Sums sums[kRows][kVectors];
  REPRISE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    REPRISE_UNROLL
    for (int v = 0; v < kVectors; ++v) sums[r][v] = T::Zero();
  }
  const typename T::Number* x = chunk.x;
  const std::byte* w = chunk.w;
  const std::byte* ahead = chunk.ahead;
  const bool alone = chunk.ahead_bytes == kStepBytes;
  for (int64_t i = 0; i < chunk.steps; ++i, x += kPerStep<T>, w += kStepBytes) {
    if (alone) {
      Fetch<_MM_HINT_T0, kStepBytes>(ahead);
    } else {
      Fetch<_MM_HINT_T1, kStepBytes / 2>(ahead);
    }
    ahead = std::min(ahead + chunk.ahead_bytes, chunk.end);
    __m512i weights[kVectors];
    REPRISE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      weights[v] = _mm512_loadu_si512(w + v * kVectorBytes);
    }
    REPRISE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      REPRISE_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = T::Step(x + r * chunk.in, weights[v], sums[r][v]);
      }
    }
  }
  REPRISE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    REPRISE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      typename T::Sum* const y = chunk.y + r * chunk.out + v * kVectorColumns;
      const __mmask16 mask = v == kVectors - 1 ? chunk.last : 0xffff;
      T::Store(chunk.first ? sums[r][v] : T::Add(sums[r][v], mask, y), mask, y);
    }
  }
}

// By rows - 1.
template <class T, int kVectors>
constexpr std::array<void (*)(const Chunk<T>&), kRowsTogether> kOfVectors = {
    AddChunk<T, 1, kVectors>, AddChunk<T, 2, kVectors>,
    AddChunk<T, 3, kVectors>, AddChunk<T, 4, kVectors>,
    AddChunk<T, 5, kVectors>, AddChunk<T, 6, kVectors>};

// By vectors - 1 and rows - 1.
template <class T>
constexpr std::array kAddChunk = {kOfVectors<T, 1>, kOfVectors<T, 2>,
                                  kOfVectors<T, 3>, kOfVectors<T, 4>};

// Where oneDNN begins with a new sum.
int64_t ChunkNumbers(int64_t in) { return in > 1024 ? 1024 : 512; }

// How far ahead of its use W is fetched for one group: a few times what memory
// delivers while it answers. 2 KiB are too few on a Xeon of 2023, 32 too many.
constexpr int64_t kAheadBytes = 8 << 10;

template <class T>
int64_t BlockBytes(const PackedColumns& w) {
  const int64_t steps = w.in / kPerStep<T>;
  return (steps + kPaddedSteps - 1) / kPaddedSteps * kPaddedSteps * kStepBytes;
}

// Columns of one block. All rows go over a chunk before the next one, group by
// group, so that all but the first group find its weights in the cache. With
// several groups there is time to fetch the next chunk meanwhile, each a share
// of it; one fetches what it needs soon. `end` is the last step of the columns
// to come.
template <class T>
void MultiplyBlock(const PackedColumns& w, const FewRows& rows, int64_t first,
                   int64_t last, const std::byte* end) {
  const int64_t steps = w.in / kPerStep<T>;
  const int64_t chunk_steps = ChunkNumbers(w.in) / kPerStep<T>;
  const std::byte* const block =
      w.weights + first / kBlockColumns * BlockBytes<T>(w) +
      first % kBlockColumns / kVectorColumns * kVectorBytes;
  const int64_t vectors = (last - first + kVectorColumns - 1) / kVectorColumns;
  const int64_t beyond = vectors * kVectorColumns - (last - first);
  const auto& add = kAddChunk<T>[static_cast<size_t>(vectors - 1)];
  const int64_t groups = (rows.count + kRowsTogether - 1) / kRowsTogether;
  for (int64_t step = 0; step < steps; step += chunk_steps) {
    const int64_t count = std::min(chunk_steps, steps - step);
    const std::byte* const weights = block + step * kStepBytes;
    const int64_t ahead_bytes = kStepBytes / groups;
    const std::byte* ahead =
        weights + (groups > 1 ? count * kStepBytes : kAheadBytes);
    int64_t group = 0;
    for (int64_t row = 0, left = groups; left > 0; row += group, --left) {
      group = (rows.count - row + left - 1) / left;  // all nearly alike
      add[static_cast<size_t>(group - 1)](
          {.x = static_cast<const typename T::Number*>(rows.x) + row * w.in +
                step * kPerStep<T>,
           .in = w.in,
           .w = weights,
           .steps = count,
           .first = step == 0,
           .y = static_cast<typename T::Sum*>(rows.sums) + row * w.out + first,
           .out = w.out,
           .last = static_cast<__mmask16>(0xffff >> beyond),
           .ahead = std::min(ahead, end),
           .ahead_bytes = ahead_bytes,
           .end = end});
      ahead += count * ahead_bytes;
    }
  }
}

template <class T>
void MultiplyBlocks(const PackedColumns& w, const FewRows& rows, int64_t first,
                    int64_t last) {
  CHECK(first % kVectorColumns == 0 && last <= w.out);
  const int64_t blocks = (last + kBlockColumns - 1) / kBlockColumns;
  const std::byte* const end =
      w.weights + blocks * BlockBytes<T>(w) - kStepBytes;
  while (first < last) {
    const int64_t next = (first / kBlockColumns + 1) * kBlockColumns;
    MultiplyBlock<T>(w, rows, first, std::min(next, last), end);
    first = next;
  }
}

}  // namespace

int64_t MostFewRows(WeightType type) {
  if (!__builtin_cpu_supports("avx512f") ||
      !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vl")) {
    return 0;
  }
  switch (type) {
    case WeightType::kF32:
      return kMostFewRows;
    case WeightType::kBf16:
      return __builtin_cpu_supports("avx512bf16") ? kMostFewRows : 0;
    case WeightType::kInt8:
      return __builtin_cpu_supports("avx512vnni") ? kMostFewRows : 0;
    default:
      return 0;
  }
}

void MultiplyFewRows(const PackedColumns& w, const FewRows& rows, int64_t first,
                     int64_t last) {
  auto* multiply = MultiplyBlocks<F32>;
  if (w.type == WeightType::kBf16) multiply = MultiplyBlocks<Bf16>;
  if (w.type == WeightType::kInt8) multiply = MultiplyBlocks<Int8>;
  multiply(w, rows, first, last);
}

#else

int64_t MostFewRows(WeightType) { return 0; }

void MultiplyFewRows(const PackedColumns&, const FewRows&, int64_t, int64_t) {
  CHECK(false);
}

#endif

}  // namespace reprise
