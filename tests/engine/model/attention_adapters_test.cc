// Softmax attention in models of fla: the transformer and the hybrids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "engine/model/softmax_attention_description.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;

SoftmaxAttentionDescription Attention(const ModelDescription& model,
                                      size_t layer) {
  return model.layers.at(layer).at(0).mixer.As<SoftmaxAttentionDescription>();
}

TEST(AttentionAdaptersTest, DescribesTheTransformer) {
  const ModelDescription model = Describe(GoldenConfig("transformer_fla"));
  ASSERT_EQ(model.layers.size(), 2u);
  const SoftmaxAttentionDescription d = Attention(model, 1);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.kv_heads, 2);
  EXPECT_EQ(d.head_dim, 16);
  EXPECT_EQ(d.rotary_dim, 16);
  EXPECT_EQ(d.rotary_base, 10000);
  EXPECT_EQ(d.window, 0);
  EXPECT_FLOAT_EQ(d.scale, 0.25F);
  EXPECT_FALSE(d.output_gate);
  EXPECT_FALSE(d.q.bias);
  EXPECT_FALSE(d.q_norm.has_value());
  EXPECT_EQ(d.o.weight.name, "model.layers.1.attn.o_proj.weight");
}

TEST(AttentionAdaptersTest, DescribesNormsBiasesAndTheWindow) {
  const ModelDescription model =
      Describe(GoldenConfig("transformer_fla_qknorm_window"));
  const SoftmaxAttentionDescription d = Attention(model, 0);
  EXPECT_EQ(d.kv_heads, 1);
  EXPECT_EQ(d.window, 24);
  EXPECT_EQ(d.rotary_base, 5e5);
  EXPECT_EQ(d.q.bias.name, "model.layers.0.attn.q_proj.bias");
  EXPECT_EQ(d.v.bias.name, "model.layers.0.attn.v_proj.bias");
  EXPECT_FALSE(d.o.bias);
  ASSERT_TRUE(d.q_norm && d.k_norm);
  EXPECT_EQ(d.q_norm->eps, 1e-5F) << "whatever norm_eps says";
  EXPECT_EQ(d.k_norm->weight.name, "model.layers.0.attn.k_norm.weight");
}

TEST(AttentionAdaptersTest, RefusesWhatTheTransformerCannotBe) {
  const json config = GoldenConfig("transformer_fla");
  ExpectRefused(config, "num_heads", nullptr, "is missing");
  ExpectRefused(config, "num_heads", 0, "must be a whole number");
  ExpectRefused(config, "num_heads", 64, "into heads of an even width");
  ExpectRefused(config, "num_kv_heads", 3, "does not divide num_heads = 4");
  ExpectRefused(config, "rope_theta", 0, "must be a number");
  ExpectRefused(config, "window_size", 0, "must be a whole number");
  ExpectRefused(config, "window_size", (1 << 24) + 1, "in 1..16777216");
  ExpectRefused(config, "qkv_bias", "yes", "must be true or false");
  ExpectRefused(config, "qk_norm", 1, "must be true or false");
  json ungrouped = config;
  ungrouped["num_kv_heads"] = nullptr;
  ExpectRefused(ungrouped, "num_heads", 3, "does not cut hidden_size = 64");
  json wide = config;
  wide["hidden_size"] = 1 << 20;
  ExpectRefused(wide, "num_heads", 2, "into heads of an even width up to");
}

TEST(AttentionAdaptersTest, HybridsHaveAttentionInTheLayersNamed) {
  const ModelDescription window = Describe(GoldenConfig("hybrid_gdn_window"));
  ASSERT_EQ(window.layers.size(), 4u);
  for (const size_t layer : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(window.layers[layer][0].mixer.kind(), "delta_net");
  }
  for (const size_t layer : {size_t{1}, size_t{3}}) {
    const SoftmaxAttentionDescription d = Attention(window, layer);
    EXPECT_EQ(d.heads, 2);
    EXPECT_EQ(d.kv_heads, 1);
    EXPECT_EQ(d.window, 20);
    EXPECT_TRUE(d.k.bias);
  }
  const ModelDescription full = Describe(GoldenConfig("hybrid_gla_fullattn"));
  EXPECT_EQ(Attention(full, 1).window, 0);
  EXPECT_EQ(full.layers[0][0].mixer.kind(), "gated_linear_attention");
}

TEST(AttentionAdaptersTest, EveryFlaFamilyCanBeAHybrid) {
  for (const char* name : {"linear_attn_elu", "retnet_small", "gla_small",
                           "delta_net_small", "gated_deltanet_small"}) {
    json config = GoldenConfig(name);
    config["attn"] = {{{"layers", {0}}, {"num_heads", 2}},
                      {{"layers", {1}}, {"num_heads", 4}, {"window_size", 9}}};
    const ModelDescription model = Describe(config);
    EXPECT_EQ(Attention(model, 0).heads, 2) << name;
    EXPECT_EQ(Attention(model, 1).window, 9) << name;
  }
}

TEST(AttentionAdaptersTest, RefusesWhatHybridsCannotBe) {
  const json config = GoldenConfig("hybrid_gdn_window");
  ExpectRefused(config, "attn.layers", nullptr, "names no layer");
  ExpectRefused(config, "attn.layers", {0, 4}, "in 0..3");
  ExpectRefused(config, "attn.layers", {1, 1}, "names 1 twice");
  ExpectRefused(config, "attn.num_heads", nullptr, "is missing");
  ExpectRefused(config, "attn.num_heads", 3, "does not cut hidden_size = 64");
  ExpectRefused(config, "attn.num_kv_heads", 3, "does not divide");
  ExpectRefused(config, "attn.window_size", -1, "must be a whole number");
  ExpectRefused(config, "attn.rope_theta", "x", "must be a number");
  ExpectRefused(config, "attn.qkv_bias", 0, "must be true or false");
  ExpectRefused(config, "attn.qk_norm", true, "hybrids have no norm there");
  ExpectRefused(config, "attn", {1}, "must be an object");
}

}  // namespace
}  // namespace reprise
