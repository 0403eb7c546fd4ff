// The adapters of families whose state decays, and of random features: what
// they read, and what they refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/decay_descriptions.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/linear_attention_description.h"
#include "engine/model/mixer_description.h"
#include "engine/model/rwkv_descriptions.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DecayAdaptersTest, DescribesRetention) {
  const ModelDescription model = Describe(GoldenConfig("retnet_small"));
  const auto& d = MixerOf<RetentionDescription>(model, 1);
  EXPECT_EQ(d.attention.heads, 2);
  EXPECT_EQ(d.attention.kv_heads, 2);
  EXPECT_EQ(d.attention.key_dim, 32);
  EXPECT_EQ(d.attention.value_dim, 64);
  EXPECT_FLOAT_EQ(d.attention.scale, 1 / std::sqrt(32.0F));
  EXPECT_FALSE(d.attention.activation.has_value());
  EXPECT_EQ(d.rotary_base, 10000);
  EXPECT_THAT(d.decay, ElementsAre(1 - 1.0F / 32, 1 - 1.0F / 64));
  EXPECT_EQ(d.attention.gate.weight.name, "model.layers.1.attn.g_proj.weight");
  EXPECT_EQ(d.attention.output_norm.weight.name,
            "model.layers.1.attn.g_norm_swish_gate.weight");
}

TEST(DecayAdaptersTest, TheOutputNormIsCalledAsTheConfigSays) {
  for (const char* name : {"retnet_small", "gla_small"}) {
    json config = GoldenConfig(name);
    const auto norm = [&config] {
      const ModelDescription model = Describe(config);
      const MixerDescription& mixer = model.layers.at(0).at(0).mixer;
      const auto* retention = mixer.AsIf<RetentionDescription>();
      return (retention != nullptr
                  ? retention->attention
                  : mixer.As<GatedLinearAttentionDescription>().attention)
          .output_norm.weight.name;
    };
    EXPECT_EQ(norm(), "model.layers.0.attn.g_norm_swish_gate.weight");
    config["fuse_norm"] = false;
    EXPECT_EQ(norm(), "model.layers.0.attn.g_norm.weight");
    config["fuse_norm"] = true;
    config["use_output_gate"] = false;
    EXPECT_EQ(norm(), "model.layers.0.attn.g_norm.weight");
    config["elementwise_affine"] = false;
    EXPECT_EQ(norm(), "");
  }
}

TEST(DecayAdaptersTest, RefusesWhatRetentionCannotBe) {
  const json config = GoldenConfig("retnet_small");
  ExpectRefused(config, "num_heads", nullptr, "is missing");
  // A description has a number for every head of every layer.
  ExpectRefused(config, "num_heads", 1025, "must be a whole number in 1..1024");
  ExpectRefused(config, "num_heads", 0, "must be a whole number");
  ExpectRefused(config, "num_kv_heads", 3, "does not divide num_heads = 2");
  ExpectRefused(config, "expand_k", 0.52,
                "which num_heads = 2 does not divide");
  ExpectRefused(config, "expand_k", 0.46875, "an odd number of keys per head");
  ExpectRefused(config, "expand_k", 64, "makes 2048 keys per head, the limit");
  ExpectRefused(config, "expand_v", 0, "must be a number");
  ExpectRefused(config, "feature_map", "elu",
                "is 'elu'; supported are 'relu', 'gelu' and 'silu'");
  ExpectRefused(config, "use_output_gate", 1, "must be true or false");
  ExpectRefused(config, "fuse_norm", "x", "must be true or false");
  ExpectRefused(config, "elementwise_affine", 0, "must be true or false");
}

TEST(DecayAdaptersTest, DescribesGatedLinearAttention) {
  const ModelDescription model = Describe(GoldenConfig("gla_conv_gqa_clamp"));
  const json config = GoldenConfig("gla_conv_gqa_clamp");
  const auto& d = MixerOf<GatedLinearAttentionDescription>(model, 0);
  EXPECT_EQ(d.attention.heads, config["num_heads"].get<int64_t>());
  EXPECT_EQ(d.attention.kv_heads, config["num_kv_heads"].get<int64_t>());
  EXPECT_EQ(d.attention.activation, Activation::kRelu);
  EXPECT_EQ(d.decay_rank, 16);
  EXPECT_EQ(d.decay_normalizer, 16);
  EXPECT_EQ(d.min_log_decay, config["clamp_min"].get<float>());
  ASSERT_EQ(d.convs.size(), 3u);
  EXPECT_EQ(d.convs[0].channels, d.attention.heads * d.attention.key_dim);
  EXPECT_EQ(d.convs[1].channels, d.attention.kv_heads * d.attention.key_dim);
  EXPECT_EQ(d.convs[2].channels, d.attention.kv_heads * d.attention.value_dim);
  EXPECT_EQ(d.convs[2].weight.name, "model.layers.0.attn.v_conv1d.weight");
  EXPECT_EQ(d.decay_down.weight.name, "model.layers.0.attn.gk_proj.0.weight");
  EXPECT_FALSE(d.decay_down.bias);
  EXPECT_EQ(d.decay_up.bias.name, "model.layers.0.attn.gk_proj.1.bias");
  const ModelDescription plain = Describe(GoldenConfig("gla_small"));
  EXPECT_TRUE(MixerOf<GatedLinearAttentionDescription>(plain, 0).convs.empty());
}

TEST(DecayAdaptersTest, RefusesWhatGatedLinearAttentionCannotBe) {
  const json config = GoldenConfig("gla_conv_gqa_clamp");
  ExpectRefused(config, "num_heads", nullptr, "is missing");
  ExpectRefused(config, "num_kv_heads", 3, "does not divide");
  ExpectRefused(config, "expand_k", "x", "must be a number");
  ExpectRefused(config, "expand_v", 65, "must be a number");
  ExpectRefused(config, "clamp_min", 1, "must be a number");
  ExpectRefused(config, "conv_size", 17, "1..16");
  ExpectRefused(config, "use_short_conv", 1, "must be true or false");
  ExpectRefused(config, "feature_map", 1, "must be a string");
  ExpectRefused(config, "hidden_act", "gelu", "supported are 'swish'");
  ExpectRefused(config, "intermediate_size", 0, "must be a whole number");
}

TEST(DecayAdaptersTest, RefusesDerivedWidthsOfNothingAndOfTooMuch) {
  json gla = GoldenConfig("gla_small");
  gla.erase("intermediate_size");
  ExpectRefused(gla, "hidden_ratio", 0.001,
                "makes feed-forward parts 0 numbers wide, the limits are "
                "1..1048576");
  gla["hidden_size"] = 1 << 20;
  ExpectRefused(gla, "hidden_ratio", 2, "1398272 numbers wide");
  json mamba = GoldenConfig("mamba_hf");
  mamba.erase("intermediate_size");
  mamba["hidden_size"] = 4;
  ExpectRefused(mamba, "expand", 0.1,
                "makes the inner part 0 numbers wide, the limits are "
                "1..1048576");
  json mamba2 = GoldenConfig("mamba2_statespaces_groups");
  mamba2["d_model"] = 1 << 20;
  ExpectRefused(mamba2, "ssm_cfg.expand", 2,
                "makes the inner part 2097152 numbers wide");
}

TEST(DecayAdaptersTest, DescribesRandomFeatures) {
  json config = GoldenConfig("performer_favor");
  const ModelDescription model = Describe(config);
  const auto& d = MixerOf<LinearAttentionDescription>(model, 1);
  EXPECT_EQ(d.feature_map, FeatureMap::kFavor);
  EXPECT_EQ(d.q_layers.random_features, 32);
  EXPECT_EQ(d.q_layers.temperature, 0.25F);
  EXPECT_TRUE(d.q_layers.layer1.transposed);
  EXPECT_EQ(d.q_layers.layer1.weight.name,
            "transformer.layers.1.attention.inner_attention.feature_map.omega");
  EXPECT_EQ(d.k_layers.layer1.weight.name, d.q_layers.layer1.weight.name);
  EXPECT_TRUE(d.normalize);
  const auto& ffn = MixerOf<PlainFfnDescription>(model, 1, 1);
  EXPECT_EQ(ffn.activation, Activation::kGelu);
  config.erase("favor_softmax_temp");
  config["query_dimensions"] = 25;
  const ModelDescription fallback = Describe(config);
  EXPECT_FLOAT_EQ(
      MixerOf<LinearAttentionDescription>(fallback, 0).q_layers.temperature,
      0.2F)
      << "1 / sqrt(query_dimensions)";
}

TEST(DecayAdaptersTest, RefusesWhatRandomFeaturesCannotBe) {
  const json config = GoldenConfig("performer_favor");
  ExpectRefused(config, "favor_n_dims", nullptr, "is missing");
  ExpectRefused(config, "favor_n_dims", 31, "is 31, which is odd");
  ExpectRefused(config, "favor_n_dims", 1 << 20, "must be a whole number");
  ExpectRefused(config, "favor_softmax_temp", -1, "must be a number");
}

TEST(DecayAdaptersTest, DescribesRwkv4OfTransformers) {
  json config = GoldenConfig("rwkv4_hf");
  const ModelDescription model =
      Describe(config, {"rwkv.blocks.0.feed_forward.key.weight"});
  ASSERT_EQ(model.layers.size(), 3u);
  EXPECT_EQ(model.embedding_norm->weight.name, "rwkv.blocks.0.pre_ln.weight");
  EXPECT_EQ(model.head.weight.name, "head.weight");
  EXPECT_EQ(model.final_norm->eps, 1e-5F);
  const auto& d = MixerOf<Rwkv4TimeMixDescription>(model, 2);
  EXPECT_EQ(d.width, 64);
  EXPECT_EQ(d.decay.name, "rwkv.blocks.2.attention.time_decay");
  EXPECT_EQ(d.bonus.name, "rwkv.blocks.2.attention.time_first");
  EXPECT_EQ(d.mix_k.share.tensor.name, "rwkv.blocks.2.attention.time_mix_key");
  EXPECT_TRUE(d.mix_k.of_now);
  config["layer_norm_epsilon"] = 1e-3;
  config["tie_word_embeddings"] = true;
  const ModelDescription other = Describe(config);
  EXPECT_EQ(other.layers[0][0].norm.eps, 1e-3F);
  EXPECT_EQ(other.final_norm->eps, 1e-5F) << "always";
  EXPECT_EQ(other.head.weight.name, "rwkv.embeddings.weight");
}

TEST(DecayAdaptersTest, DescribesRwkv4OfTheOriginalLayout) {
  const json config = {{"model_type", "rwkv4"},
                       {"vocab_size", 256},
                       {"hidden_size", 64},
                       {"num_hidden_layers", 2}};
  const ModelDescription model = Describe(config);
  EXPECT_EQ(model.embedding.name, "emb.weight");
  const auto& d = MixerOf<Rwkv4TimeMixDescription>(model, 1);
  EXPECT_EQ(d.mix_r.share.tensor.name, "blocks.1.att.time_mix_r");
  EXPECT_EQ(d.k.weight.name, "blocks.1.att.key.weight");
}

TEST(DecayAdaptersTest, RefusesWhatRwkv4CannotBe) {
  const json config = GoldenConfig("rwkv4_hf");
  ExpectRefused(config, "vocab_size", nullptr, "is missing");
  ExpectRefused(config, "hidden_size", 0, "must be a whole number");
  ExpectRefused(config, "num_hidden_layers", 2000, "in 1..1024");
  ExpectRefused(config, "attention_hidden_size", -1, "must be a whole number");
  ExpectRefused(config, "layer_norm_epsilon", 2, "must be a number");
  ExpectRefused(config, "tie_word_embeddings", 1, "must be true or false");
}

TEST(DecayAdaptersTest, DescribesRwkv6OfFla) {
  json config = GoldenConfig("rwkv6_rand_fla");
  const ModelDescription model = Describe(config);
  const auto& d = MixerOf<RwkvTimeMixDescription>(model, 1);
  EXPECT_EQ(d.heads, 2);
  EXPECT_EQ(d.key_dim, 16);
  EXPECT_EQ(d.value_dim, 32);
  EXPECT_EQ(d.output_epsilon, 1e-5F) << "not times the head's width";
  ASSERT_TRUE(d.dynamic_mix && d.decay_lora);
  EXPECT_EQ(d.dynamic_mix->rank, 8);
  EXPECT_TRUE(d.dynamic_mix->by_output);
  EXPECT_EQ(d.decay_lora->rank, 16);
  EXPECT_EQ(d.decay_lora->up.bias.name,
            "model.layers.1.attn.w_proj.linear.lora.2.bias");
  EXPECT_EQ(MixerOf<RwkvChannelMixDescription>(model, 1, 1).width, 128);
  config.erase("intermediate_size");
  const ModelDescription derived = Describe(config);
  EXPECT_EQ(MixerOf<RwkvChannelMixDescription>(derived, 0, 1).width, 224)
      << "64 x 3.5";
}

TEST(DecayAdaptersTest, RefusesWhatRwkv6CannotBe) {
  json config = GoldenConfig("rwkv6_rand_fla");
  ExpectRefused(config, "num_heads", 0, "must be a whole number");
  ExpectRefused(config, "expand_k", 0.52,
                "which num_heads = 2 does not divide");
  ExpectRefused(config, "expand_k", 64, "keys per head, the limit is");
  ExpectRefused(config, "expand_v", "x", "must be a number");
  ExpectRefused(config, "proj_low_rank_dim", 0, "must be a whole number");
  ExpectRefused(config, "gate_low_rank_dim", 0, "must be a whole number");
  ExpectRefused(config, "norm_eps", -1, "must be a number");
  ExpectRefused(config, "norm_first", false, "is not supported");
  ExpectRefused(config, "norm_bias", false, "is not supported");
  ExpectRefused(config, "hidden_act", "relu", "supported is 'sqrelu'");
  ExpectRefused(config, "attn", {{"layers", {1}}}, "softmax");
  config.erase("intermediate_size");
  ExpectRefused(config, "hidden_ratio", 0.001,
                "makes feed-forward parts 0 numbers wide, the limits are "
                "1..1048576");
}

TEST(DecayAdaptersTest, RwkvOfTheOriginalLayoutTakesHeadsFromTheFile) {
  const json config = {{"model_type", "rwkv5"},
                       {"vocab_size", 256},
                       {"hidden_size", 64},
                       {"num_hidden_layers", 1}};
  // A file whose time_decay is [3].
  SafetensorsWriter writer;
  writer.AddF32("blocks.0.att.time_decay", {3}, {1, 1, 1});
  ModelFolder folder;
  folder.dir().Write("model.safetensors", writer.File());
  EXPECT_THAT(std::string(folder.Load(config).status().message()),
              HasSubstr("tensor 'blocks.0.att.time_decay' is for 3 heads, "
                        "which config.json's hidden_size = 64 does not"));
  ExpectRefused(config, "group_norm_epsilon", 2, "must be a number");
}

}  // namespace
}  // namespace reprise
