// The delta-rule recurrences against operator data computed elsewhere, in
// float64, read in place.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "engine/kernels/delta_kernels.h"
#include "engine/model/safetensors.h"
#include "tests/engine/kernels/simd_targets.h"
#include "tests/support/golden_folder.h"

namespace reprise::delta_kernels_golden_test {
namespace {

namespace fs = std::filesystem;
using Floats = std::vector<float>;
using Kernel = void (*)(const DeltaArgs&);

// Of the largest number: the roots of some 300 roundings of 2^-24 (measured: a
// third of it at most).
constexpr float kTolerance = 1e-6f;

fs::path CasePath(const std::string& name) {
  return GoldenFolder() / "ops" / (name + ".safetensors");
}

Floats Read(const Checkpoint& file, std::string_view name) {
  const TensorInfo* tensor = file.Find(name);
  if (tensor == nullptr) return {};
  Floats values(static_cast<size_t>(tensor->elements));
  EXPECT_TRUE(file.ReadF32(name, values).ok());
  return values;
}

struct OperatorCase {
  explicit OperatorCase(const Checkpoint& file)
      : shape(file.Find("v")->shape),
        low_rank(file.Find("kk") != nullptr),
        q(Read(file, low_rank ? "r" : "q")),
        k(Read(file, "k")),
        v(Read(file, "v")),
        beta(Read(file, "beta")),
        decay(Read(file, low_rank ? "w" : "g")),
        a(Read(file, "kk")),
        b(Read(file, "a")),
        h0(Read(file, "h0")),
        o(Read(file, "o")),
        ht(Read(file, "ht")) {
    key_dim = file.Find("k")->shape[3];
    for (float& x : decay) x = std::exp(x);
    for (size_t i = 0; i < b.size(); ++i) b[i] *= -a[i];
  }

  // Both batch rows, `tile` rows at a time.
  void Check(Kernel kernel, int64_t tile) const {
    const int64_t rows = shape[1], heads = shape[2], value_dim = shape[3];
    Floats s = h0;
    Floats out(o.size());
    for (int64_t at = 0; at < shape[0] * rows; at += tile) {
      // A tile never goes past the end of its batch row.
      const int64_t count = std::min(tile, rows - at % rows);
      const auto from = [&](const Floats& x, int64_t per_head) {
        const int64_t stride = heads * per_head;
        return x.empty() ? HeadRows{}
                         : HeadRows{x.data() + at * stride, stride};
      };
      DeltaArgs args;
      args.q = from(q, key_dim);
      args.k = from(k, key_dim);
      args.v = from(v, value_dim);
      args.beta = from(beta, 1);
      args.decay = from(decay, low_rank ? key_dim : 1);
      args.a = from(a, key_dim);
      args.b = from(b, key_dim);
      args.o = out.data() + at * heads * value_dim;
      args.o_stride = heads * value_dim;
      args.rows = count;
      args.last_head = heads;
      args.key_dim = key_dim;
      args.value_dim = value_dim;
      args.scale = low_rank ? 1 : 1 / std::sqrt(static_cast<float>(key_dim));
      args.s = s.data() + at / rows * heads * key_dim * value_dim;
      kernel(args);
      at -= tile - count;
    }
    ExpectNear(out, o);
    ExpectNear(s, ht);
  }

  static void ExpectNear(const Floats& actual, const Floats& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    float largest = 1;
    for (const float x : expected) largest = std::max(largest, std::abs(x));
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], kTolerance * largest) << i;
    }
  }

  std::vector<int64_t> shape;  // of v: [batch, rows, heads, value_dim]
  bool low_rank;
  int64_t key_dim = 0;
  Floats q, k, v, beta, decay, a, b, h0, o, ht;
};

class DeltaKernelsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(DeltaKernelsGoldenTest, BothFormsGiveTheStoredOutputsAndState) {
  const fs::path path = CasePath(GetParam());
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto file = Checkpoint::OpenFile(path);
  ASSERT_TRUE(file.ok()) << file.status();
  const OperatorCase data(*file);
  ForEveryTarget([&] {
    data.Check(DeltaChunk, kTileRows);
    data.Check(DeltaChunk, /*tile=*/13);
    data.Check(DeltaRecurrent, kTileRows);
    data.Check(DeltaRecurrent, /*tile=*/1);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, DeltaKernelsGoldenTest,
                         testing::Values("delta_rule", "delta_rule_small",
                                         "gated_delta_rule",
                                         "gated_delta_rule_small", "rwkv7",
                                         "rwkv7_small"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::delta_kernels_golden_test
