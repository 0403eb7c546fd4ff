// The recurrences against operator data computed elsewhere, in float64. The
// small cases are in tests/testdata/ops; the others are read in place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "engine/kernels/decay_kernels.h"
#include "engine/kernels/simd_ops.h"
#include "engine/model/safetensors.h"
#include "tests/engine/kernels/simd_targets.h"
#include "tests/support/golden_folder.h"

namespace reprise::decay_kernels_golden_test {
namespace {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

// All tensors of a safetensors file of f32.
std::map<std::string, Tensor> ReadTensors(const std::filesystem::path& path) {
  const auto file = Checkpoint::OpenFile(path);
  EXPECT_TRUE(file.ok()) << file.status();
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, info] : file->tensors()) {
    Tensor tensor{info.shape, {}};
    tensor.data.resize(static_cast<size_t>(info.elements));
    EXPECT_TRUE(file->ReadF32(name, tensor.data).ok()) << name;
    tensors[name] = std::move(tensor);
  }
  return tensors;
}

// The data are rounded to f32 and a few units wide at most; 70 rows and 16
// keys make about 90 roundings of half an epsilon of what adds up to about 10.
constexpr float kTolerance = 90 * 0.5f * 1.2e-7f * 10;

void ExpectNear(const std::vector<float>& actual, const Tensor& expected) {
  ASSERT_EQ(actual.size(), expected.data.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected.data[i],
                kTolerance * (1 + std::abs(expected.data[i])))
        << i;
  }
}

// One operator: its inputs as the kernels take them, [B, T, ...] in order, and
// what is to come out.
struct Operator {
  Tensor q, k, v;
  Tensor w;  // empty: no decay
  Decay decay = Decay::kNone;
  float scale = 1;
  bool normalize = false;
  std::vector<float> s, z;
  Tensor o, s_end, z_end;
};

// exp, in double, of logarithms of decays.
Tensor Exponentials(Tensor x) {
  for (float& value : x.data) {
    value = static_cast<float>(std::exp(static_cast<double>(value)));
  }
  return x;
}

// [B, H, P, N] to [B, H, N, P].
Tensor Transposed(const Tensor& x) {
  const int64_t p = x.shape[2], n = x.shape[3];
  Tensor y{{x.shape[0], x.shape[1], n, p}, x.data};
  for (int64_t i = 0; i < std::ssize(x.data); ++i) {
    const int64_t head = i / (p * n), row = i / n % p, column = i % n;
    y.data[(head * n + column) * p + row] = x.data[i];
  }
  return y;
}

Operator ReadOperator(std::map<std::string, Tensor> data) {
  Operator op;
  if (data.contains("log_decay")) {  // Mamba-2's names
    op.q = data["C"];
    op.k = data["B"];
    op.v = data["x"];
    op.w = Exponentials(data["log_decay"]);
    op.decay = Decay::kPerHead;
    op.s = Transposed(data["h0"]).data;
    op.o = data["y"];
    op.s_end = Transposed(data["ht"]);
    return op;
  }
  op.normalize = data.contains("z0");
  op.q = data[op.normalize ? "q_raw" : "q"];
  op.k = data[op.normalize ? "k_raw" : "k"];
  if (op.normalize) {
    EluPlusOne(op.q.data.data(), std::ssize(op.q.data));
    EluPlusOne(op.k.data.data(), std::ssize(op.k.data));
  }
  op.v = data["v"];
  op.scale = 1 / std::sqrt(static_cast<float>(op.q.shape[3]));
  if (data.contains("g")) {
    op.w = Exponentials(data["g"]);
    op.decay = Decay::kPerChannel;
  } else if (data.contains("log_gamma")) {
    op.w = Exponentials(data["log_gamma"]);
    op.decay = Decay::kPerHead;
  }
  op.s = data["h0"].data;
  op.z = data["z0"].data;
  op.o = data["o"];
  op.s_end = data["ht"];
  op.z_end = data["zt"];
  return op;
}

void CheckCase(const Operator& op, void (*kernel)(const DecayArgs&),
               int64_t tile) {
  const int64_t batch = op.q.shape[0], rows = op.q.shape[1];
  const int64_t heads = op.q.shape[2];
  const int64_t key_dim = op.q.shape[3], value_dim = op.v.shape[3];
  // Of retention there is one decay for all rows.
  const int64_t w_size = op.decay == Decay::kPerChannel ? key_dim : 1;
  const bool constant = op.w.shape.size() == 1;
  std::vector<float> s = op.s;
  std::vector<float> z = op.z;
  std::vector<float> o(op.v.data.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t row = 0; row < rows; row += tile) {
      const int64_t at = (b * rows + row) * heads;
      kernel({.q = op.q.data.data() + at * key_dim,
              .k = op.k.data.data() + at * key_dim,
              .v = op.v.data.data() + at * value_dim,
              .o = o.data() + at * value_dim,
              .q_stride = heads * key_dim,
              .k_stride = heads * key_dim,
              .v_stride = heads * value_dim,
              .o_stride = heads * value_dim,
              .rows = std::min(tile, rows - row),
              .last_head = heads,
              .key_dim = key_dim,
              .value_dim = value_dim,
              .scale = op.scale,
              .decay = op.decay,
              .w = op.w.data.data() + (constant ? 0 : at * w_size),
              .w_stride = constant ? 0 : heads * w_size,
              .normalize = op.normalize,
              .epsilon = 1e-10f,
              .s = s.data() + b * heads * key_dim * value_dim,
              .z = op.normalize ? z.data() + b * heads * key_dim : nullptr});
    }
  }
  ExpectNear(o, op.o);
  ExpectNear(s, op.s_end);
  if (op.normalize) ExpectNear(z, op.z_end);
}

namespace fs = std::filesystem;

fs::path CasePath(const std::string& name) {
  const std::string file = name + ".safetensors";
  const fs::path own = fs::path(REPRISE_TESTDATA) / "ops" / file;
  if (fs::exists(own)) return own;
  return GoldenFolder() / "ops" / file;
}

class DecayKernelsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(DecayKernelsGoldenTest, BothFormsGiveTheStoredOutputsAndState) {
  const fs::path path = CasePath(GetParam());
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  const Operator op = ReadOperator(ReadTensors(path));
  ForEveryTarget([&] {
    CheckCase(op, DecayChunk, kTileRows);
    CheckCase(op, DecayChunk, /*tile=*/13);
    CheckCase(op, DecayRecurrent, kTileRows);
    CheckCase(op, DecayRecurrent, /*tile=*/1);
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ops, DecayKernelsGoldenTest,
    testing::Values("gla", "gla_small", "linear_attn", "linear_attn_small",
                    "linear_attn_elu_norm", "linear_attn_elu_norm_small",
                    "retention", "retention_small", "ssd", "ssd_small"),
    [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise::decay_kernels_golden_test
