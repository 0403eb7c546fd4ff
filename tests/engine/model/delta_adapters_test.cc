// The adapters of the delta-rule families: what they read, and what they
// refuse.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/model/delta_description.h"
#include "engine/model/rwkv7_description.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;

const DeltaNetDescription& Delta(const ModelDescription& model) {
  return model.layers[0][0].mixer.As<DeltaNetDescription>();
}

TEST(DeltaAdaptersTest, DescribesDeltaNet) {
  const auto model = ModelFolder().Load(GoldenConfig("delta_net_gate_sum_elu"));
  ASSERT_TRUE(model.ok()) << model.status();
  const DeltaNetDescription& d = Delta(*model);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.key_dim, 24);
  EXPECT_EQ(d.value_dim, 12);
  EXPECT_EQ(d.qk_norm, HeadNorm::kSumToOne);
  EXPECT_EQ(d.qk_activation, HeadActivation::kEluPlusOne);
  EXPECT_EQ(d.convolutions.size(), 3u);
  EXPECT_FALSE(d.convolutions[0].conv.silu);
  EXPECT_TRUE(d.convolutions[2].conv.silu);
  EXPECT_EQ(d.gate.weight.name, "model.layers.0.attn.g_proj.weight");
  EXPECT_FALSE(d.decay.weight);
}

TEST(DeltaAdaptersTest, DescribesDeltaNetWithoutConvolutionAndBeta) {
  json config = GoldenConfig("delta_net_small");
  config["use_short_conv"] = false;
  config["use_beta"] = false;
  config["allow_neg_eigval"] = true;
  const auto model = ModelFolder().Load(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const DeltaNetDescription& d = Delta(*model);
  EXPECT_TRUE(d.convolutions.empty());
  EXPECT_EQ(d.qk_activation, HeadActivation::kSilu);
  EXPECT_EQ(d.v_activation, HeadActivation::kSilu);
  EXPECT_FALSE(d.beta.weight);
  EXPECT_EQ(d.beta_scale, 2);
}

TEST(DeltaAdaptersTest, RefusesWhatDeltaNetCannotBe) {
  const json config = GoldenConfig("delta_net_small");
  ExpectRefused(config, "qk_activation", "gelu", "silu, relu, elu, identity");
  ExpectRefused(config, "qk_norm", "l1", "l2, sum");
  ExpectRefused(config, "num_heads", 0, "whole number");
  ExpectRefused(config, "expand_v", 0.52, "does not divide");
  ExpectRefused(config, "expand_k", 64, "the limit is 256");
  ExpectRefused(config, "conv_size", 1000, "1..16");
}

TEST(DeltaAdaptersTest, DescribesGatedDeltaNet) {
  const auto model = ModelFolder().Load(GoldenConfig("gated_deltanet_gva_neg"));
  ASSERT_TRUE(model.ok()) << model.status();
  const DeltaNetDescription& d = Delta(*model);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.key_heads, 2);
  EXPECT_EQ(d.key_dim, 32);
  EXPECT_EQ(d.value_dim, 32);
  EXPECT_EQ(d.beta_scale, 2);
  EXPECT_EQ(d.a_log.name, "model.layers.0.attn.A_log");
  EXPECT_FALSE(d.gate.weight);
}

TEST(DeltaAdaptersTest, RefusesWhatGatedDeltaNetCannotBe) {
  const json config = GoldenConfig("gated_deltanet_small");
  ExpectRefused(config, "num_v_heads", 3, "which num_heads = 2");
  ExpectRefused(config, "expand_v", 1.01, "no whole number");
  ExpectRefused(config, "head_dim", 512, "1..256");
}

const Rwkv7Description& TimeMix(const ModelDescription& model, size_t layer) {
  return model.layers[layer][0].mixer.As<Rwkv7Description>();
}

TEST(DeltaAdaptersTest, DescribesRwkv7OfBothFlaLayouts) {
  const json config = GoldenConfig("rwkv7_rand_fla");
  const auto newer = ModelFolder().Load(config);
  ASSERT_TRUE(newer.ok()) << newer.status();
  EXPECT_EQ(newer->embedding_norm->weight.name,
            "model.layers.0.pre_norm.weight");
  const Rwkv7Description& d = TimeMix(*newer, 1);
  EXPECT_EQ(d.heads, 2);
  EXPECT_EQ(d.head_dim, 32);
  EXPECT_EQ(d.mixes.size(), 6u);
  EXPECT_FLOAT_EQ(d.output_epsilon, 32e-5F);
  EXPECT_EQ(d.key_epsilon, 1e-6F);
  EXPECT_TRUE(d.first_value.has_value());
  EXPECT_FALSE(TimeMix(*newer, 0).first_value.has_value());

  const auto older = ModelFolder({"model.layers.0.attn.x_x"}).Load(config);
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ(TimeMix(*older, 0).mixes.size(), 1u);
}

TEST(DeltaAdaptersTest, DescribesRwkv7OfTheOriginalLayout) {
  const json config = {{"model_type", "rwkv7"},
                       {"vocab_size", 256},
                       {"hidden_size", 64},
                       {"num_hidden_layers", 2},
                       {"intermediate_size", 256}};
  const auto model = ModelFolder({"emb.weight"}).Load(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->embedding_norm->weight.name, "blocks.0.ln0.weight");
  EXPECT_EQ(model->head.weight.name, "head.weight");
  const Rwkv7Description& d = TimeMix(*model, 1);
  EXPECT_EQ(d.head_dim, 64);
  EXPECT_EQ(d.output_epsilon, 64e-5F);
  EXPECT_TRUE(d.w.down.transposed);
  EXPECT_EQ(d.w.up.bias.name, "blocks.1.att.w0");
  EXPECT_EQ(d.first_value->down.weight.name, "blocks.1.att.v1");
}

TEST(DeltaAdaptersTest, RefusesWhatRwkv7CannotBe) {
  const json config = GoldenConfig("rwkv7_rand_fla");
  ExpectRefused(config, "head_dim", 48, "does not divide");
  ExpectRefused(config, "num_heads", 3, "hidden_size / head_dim is 2");
  ExpectRefused(config, "num_heads", 1000, "hidden_size / head_dim is 2");
  ExpectRefused(config, "hidden_act", "relu", "sqrelu");
  ExpectRefused(config, "value_dim", {64, 128, 64}, "is 128");
  ExpectRefused(config, "attn", {{"layers", {1}}}, "softmax");
  ExpectRefused(config, "intermediate_size", nullptr, "is missing");
}

}  // namespace
}  // namespace reprise
