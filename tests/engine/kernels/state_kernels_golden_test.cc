// The recurrences against operator data computed elsewhere, in float64. The
// small cases are in tests/testdata/ops; the others are read in place, from
// $REPRISE_GOLDEN or the folder beside the repository.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/kernels/simd_ops.h"
#include "engine/kernels/state_kernels.h"
#include "tests/engine/kernels/simd_targets.h"

namespace reprise {
namespace {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

// All tensors of a safetensors file of f32: the length of a JSON header, the
// header, the numbers.
std::map<std::string, Tensor> ReadTensors(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)),
                          std::istreambuf_iterator<char>());
  uint64_t length;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    Tensor tensor{entry["shape"], {}};
    const size_t begin = entry["data_offsets"][0];
    const size_t end = entry["data_offsets"][1];
    tensor.data.resize((end - begin) / sizeof(float));
    std::memcpy(tensor.data.data(), bytes.data() + 8 + length + begin,
                end - begin);
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

void CheckCase(std::map<std::string, Tensor> data, bool normalize,
               void (*kernel)(const LinearAttentionArgs&), int64_t tile) {
  Tensor q = data[normalize ? "q_raw" : "q"];
  Tensor k = data[normalize ? "k_raw" : "k"];
  if (normalize) {
    EluPlusOne(q.data.data(), std::ssize(q.data));
    EluPlusOne(k.data.data(), std::ssize(k.data));
  }
  const Tensor& v = data["v"];
  const int64_t batch = q.shape[0], rows = q.shape[1], heads = q.shape[2];
  const int64_t key_dim = q.shape[3], value_dim = v.shape[3];
  std::vector<float> s = data["h0"].data;
  std::vector<float> z = data["z0"].data;
  std::vector<float> o(v.data.size());
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t row = 0; row < rows; row += tile) {
      const int64_t at = (b * rows + row) * heads;
      kernel({.q = q.data.data() + at * key_dim,
              .k = k.data.data() + at * key_dim,
              .v = v.data.data() + at * value_dim,
              .o = o.data() + at * value_dim,
              .q_stride = heads * key_dim,
              .k_stride = heads * key_dim,
              .v_stride = heads * value_dim,
              .o_stride = heads * value_dim,
              .rows = std::min(tile, rows - row),
              .last_head = heads,
              .key_dim = key_dim,
              .value_dim = value_dim,
              .scale = 1 / std::sqrt(static_cast<float>(key_dim)),
              .normalize = normalize,
              .epsilon = 1e-10f,
              .s = s.data() + b * heads * key_dim * value_dim,
              .z = normalize ? z.data() + b * heads * key_dim : nullptr});
    }
  }
  ExpectNear(o, data["o"]);
  ExpectNear(s, data["ht"]);
  if (normalize) ExpectNear(z, data["zt"]);
}

namespace fs = std::filesystem;

fs::path CasePath(const std::string& name) {
  const std::string file = name + ".safetensors";
  const fs::path own = fs::path(REPRISE_TESTDATA) / "ops" / file;
  if (fs::exists(own)) return own;
  if (const char* golden = std::getenv("REPRISE_GOLDEN")) {
    return fs::path(golden) / "ops" / file;
  }
  return fs::path(REPRISE_SOURCE_DIR) / ".." / "shared" / "golden" / "ops" /
         file;
}

class StateKernelsGoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(StateKernelsGoldenTest, BothFormsGiveTheStoredOutputsAndState) {
  const fs::path path = CasePath(GetParam());
  if (!fs::exists(path)) GTEST_SKIP() << path << " is absent";
  const auto data = ReadTensors(path);
  const bool normalize = data.contains("z0");
  ForEveryTarget([&] {
    CheckCase(data, normalize, LinearAttentionChunk, kTileRows);
    CheckCase(data, normalize, LinearAttentionChunk, /*tile=*/13);
    CheckCase(data, normalize, LinearAttentionRecurrent, kTileRows);
    CheckCase(data, normalize, LinearAttentionRecurrent, /*tile=*/1);
  });
}

INSTANTIATE_TEST_SUITE_P(Ops, StateKernelsGoldenTest,
                         testing::Values("linear_attn", "linear_attn_small",
                                         "linear_attn_elu_norm",
                                         "linear_attn_elu_norm_small"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace reprise
