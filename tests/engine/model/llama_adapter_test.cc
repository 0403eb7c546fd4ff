// Llama and its relatives under transformers' names: what their configs mean,
// and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "engine/model/ffn_descriptions.h"
#include "engine/model/softmax_attention_description.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

json Llama() { return GoldenConfig("llama_hf"); }

// Llama's config under another model type, without the fields that only Llama
// has.
json Relative(const char* model_type) {
  json config = Llama();
  config["model_type"] = model_type;
  for (const char* field : {"attention_bias", "mlp_bias", "head_dim"}) {
    config.erase(field);
  }
  return config;
}

SoftmaxAttentionDescription AttentionOf(const ModelDescription& model,
                                        size_t layer = 0) {
  return model.layers[layer][0].mixer.As<SoftmaxAttentionDescription>();
}

// Of the model that `config` describes, which must be one.
SoftmaxAttentionDescription Attention(const json& config) {
  const auto model = ModelFolder().Load(config);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? AttentionOf(*model) : SoftmaxAttentionDescription{};
}

std::vector<int64_t> Windows(const json& config) {
  const auto model = ModelFolder().Load(config);
  EXPECT_TRUE(model.ok()) << model.status();
  std::vector<int64_t> windows;
  if (!model.ok()) return windows;
  for (size_t i = 0; i < model->layers.size(); ++i) {
    windows.push_back(AttentionOf(*model, i).window);
  }
  return windows;
}

TEST(LlamaAdapterTest, DescribesLlama) {
  const auto model = ModelFolder().Load(Llama());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, "llama");
  EXPECT_EQ(model->layers.size(), 3u);
  EXPECT_EQ(model->head.weight.name, "lm_head.weight");
  EXPECT_EQ(model->max_positions, 512);
  const SoftmaxAttentionDescription d = AttentionOf(*model, 2);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.kv_heads, 2);
  EXPECT_EQ(d.head_dim, 16);
  EXPECT_EQ(d.rotary_dim, 16);
  EXPECT_EQ(d.rotary_scaling.kind, RotaryScalingKind::kNone);
  EXPECT_EQ(d.window, 0);
  EXPECT_FLOAT_EQ(d.scale, 0.25F);
  EXPECT_EQ(d.q.weight.name, "model.layers.2.self_attn.q_proj.weight");
  EXPECT_FALSE(d.q.bias);
  EXPECT_FALSE(d.q_norm.has_value());
  const auto& ffn = model->layers[2][1].mixer.As<GatedFfnDescription>();
  EXPECT_EQ(ffn.width, 172);
  EXPECT_EQ(ffn.down.weight.name, "model.layers.2.mlp.down_proj.weight");
  EXPECT_FALSE(ffn.down.bias);
}

TEST(LlamaAdapterTest, HeadsAreOfHeadDimOrCutFromTheWidth) {
  json config = Llama();
  config["head_dim"] = 24;
  EXPECT_EQ(Attention(config).head_dim, 24);
  EXPECT_FLOAT_EQ(Attention(config).scale, 1 / std::sqrt(24.0F));
  config["head_dim"] = nullptr;
  config["num_attention_heads"] = 2;
  EXPECT_EQ(Attention(config).head_dim, 32);
  config["num_key_value_heads"] = nullptr;
  EXPECT_EQ(Attention(config).kv_heads, 2);
}

TEST(LlamaAdapterTest, BiasesAndTiedHeads) {
  json config = Llama();
  config["attention_bias"] = true;
  config["mlp_bias"] = true;
  config["tie_word_embeddings"] = true;
  const auto model = ModelFolder().Load(config);
  ASSERT_TRUE(model.ok()) << model.status();
  const SoftmaxAttentionDescription d = AttentionOf(*model, 1);
  EXPECT_EQ(d.q.bias.name, "model.layers.1.self_attn.q_proj.bias");
  EXPECT_EQ(d.k.bias.name, "model.layers.1.self_attn.k_proj.bias");
  EXPECT_EQ(d.v.bias.name, "model.layers.1.self_attn.v_proj.bias");
  EXPECT_EQ(d.o.bias.name, "model.layers.1.self_attn.o_proj.bias");
  const auto& ffn = model->layers[1][1].mixer.As<GatedFfnDescription>();
  EXPECT_EQ(ffn.gate.bias.name, "model.layers.1.mlp.gate_proj.bias");
  EXPECT_EQ(ffn.up.bias.name, "model.layers.1.mlp.up_proj.bias");
  EXPECT_EQ(ffn.down.bias.name, "model.layers.1.mlp.down_proj.bias");
  EXPECT_EQ(model->head.weight.name, "model.embed_tokens.weight");
}

TEST(LlamaAdapterTest, RotaryFieldsOfOlderAndNewerFiles) {
  json config = Llama();
  config["rope_theta"] = 5e5;
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(Attention(config).rotary_base, 5e5);
  EXPECT_EQ(Attention(config).rotary_dim, 8);
  config.erase("rope_theta");
  config.erase("partial_rotary_factor");
  EXPECT_EQ(Attention(config).rotary_base, 10000);
  config["rope_parameters"] = {{"rope_type", "linear"},
                               {"factor", 4},
                               {"rope_theta", 1e6},
                               {"partial_rotary_factor", 0.25}};
  const SoftmaxAttentionDescription d = Attention(config);
  EXPECT_EQ(d.rotary_base, 1e6);
  EXPECT_EQ(d.rotary_dim, 4);
  EXPECT_EQ(d.rotary_scaling.kind, RotaryScalingKind::kLinear);
  EXPECT_EQ(d.rotary_scaling.factor, 4);
}

TEST(LlamaAdapterTest, RotaryScalingOfBothNames) {
  json config = Llama();
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.5}};
  EXPECT_EQ(Attention(config).rotary_scaling.kind, RotaryScalingKind::kLinear);
  EXPECT_EQ(Attention(config).rotary_scaling.factor, 2.5);
  config["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(Attention(config).rotary_scaling.kind, RotaryScalingKind::kNone);
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 8192}};
  const RotaryScaling scaling = Attention(config).rotary_scaling;
  EXPECT_EQ(scaling.kind, RotaryScalingKind::kLlama3);
  EXPECT_EQ(scaling.factor, 8);
  EXPECT_EQ(scaling.low_frequency_factor, 1);
  EXPECT_EQ(scaling.high_frequency_factor, 4);
  EXPECT_EQ(scaling.original_positions, 8192);
}

TEST(LlamaAdapterTest, RefusesScalingsThatItDoesNotHave) {
  json config = Llama();
  for (const char* type : {"yarn", "dynamic", "longrope", "su", "mrope"}) {
    config["rope_scaling"] = {{"factor", 4}};
    ExpectRefused(config, "rope_scaling.rope_type", type,
                  "is '" + std::string(type) +
                      "'; supported are 'default', 'linear' and 'llama3'");
    ExpectRefused(config, "rope_scaling.type", type, "supported are");
  }
  ExpectRefused(config, "rope_scaling", "yarn", "must be an object");
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2}};
  ExpectRefused(config, "rope_scaling.factor", nullptr, "is missing");
  ExpectRefused(config, "rope_scaling.factor", 0, "must be a number");
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8},
                            {"low_freq_factor", 1},
                            {"high_freq_factor", 4},
                            {"original_max_position_embeddings", 8192}};
  for (const char* field : {"factor", "low_freq_factor", "high_freq_factor",
                            "original_max_position_embeddings"}) {
    ExpectRefused(config, std::string("rope_scaling.") + field, nullptr,
                  "is missing");
  }
  ExpectRefused(config, "rope_scaling.high_freq_factor", 1,
                "not above low_freq_factor = 1");
  ExpectRefused(config, "rope_scaling.original_max_position_embeddings", 0.5,
                "must be a whole number");
}

TEST(LlamaAdapterTest, RefusesBadConfigsNamingTheField) {
  const json config = Llama();
  ExpectRefused(config, "vocab_size", nullptr, "is missing");
  ExpectRefused(config, "hidden_size", 0, "must be a whole number");
  ExpectRefused(config, "num_hidden_layers", 1025, "in 1..1024");
  ExpectRefused(config, "intermediate_size", nullptr, "is missing");
  ExpectRefused(config, "rms_norm_eps", 2, "must be a number in 0..1");
  ExpectRefused(config, "hidden_act", "gelu", "supported is 'silu'");
  ExpectRefused(config, "num_attention_heads", nullptr, "is missing");
  ExpectRefused(config, "num_key_value_heads", 3,
                "does not divide num_attention_heads = 4");
  ExpectRefused(config, "head_dim", 100000, "must be a whole number in 1..");
  ExpectRefused(config, "head_dim", 15, "turn 15 numbers of a head");
  ExpectRefused(config, "rope_theta", 0.5, "must be a number");
  ExpectRefused(config, "partial_rotary_factor", 1.5, "must be a number");
  ExpectRefused(config, "attention_bias", 1, "must be true or false");
  ExpectRefused(config, "mlp_bias", "no", "must be true or false");
  ExpectRefused(config, "sliding_window", 8, "attends to all tokens");
  json cut = config;
  cut.erase("head_dim");
  ExpectRefused(cut, "num_attention_heads", 12,
                "does not cut hidden_size = 64 into heads");
}

TEST(LlamaAdapterTest, MistralHasOneWindowForAllLayers) {
  json config = Relative("mistral");
  config["sliding_window"] = nullptr;
  EXPECT_THAT(Windows(config), ElementsAre(0, 0, 0));
  config["sliding_window"] = 24;
  EXPECT_THAT(Windows(config), ElementsAre(24, 24, 24));
  EXPECT_FALSE(Attention(config).q.bias);
  ExpectRefused(config, "sliding_window", 0, "must be a whole number");
  config.erase("sliding_window");
  EXPECT_THAT(std::string(ModelFolder().Load(config).status().message()),
              testing::HasSubstr("field 'sliding_window' is missing"));
}

TEST(LlamaAdapterTest, Qwen2HasBiasesOnQueriesKeysAndValues) {
  const SoftmaxAttentionDescription d = Attention(Relative("qwen2"));
  EXPECT_EQ(d.q.bias.name, "model.layers.0.self_attn.q_proj.bias");
  EXPECT_EQ(d.v.bias.name, "model.layers.0.self_attn.v_proj.bias");
  EXPECT_FALSE(d.o.bias);
  EXPECT_FALSE(d.q_norm.has_value());
  EXPECT_EQ(d.head_dim, 16);
}

TEST(LlamaAdapterTest, Qwen3HasNormsOnQueriesAndKeys) {
  json config = Relative("qwen3");
  SoftmaxAttentionDescription d = Attention(config);
  EXPECT_EQ(d.head_dim, 128) << "transformers' default";
  EXPECT_FALSE(d.q.bias);
  ASSERT_TRUE(d.q_norm && d.k_norm);
  EXPECT_EQ(d.q_norm->weight.name, "model.layers.0.self_attn.q_norm.weight");
  EXPECT_EQ(d.k_norm->eps, 1e-5F) << "the config's rms_norm_eps";
  EXPECT_FALSE(d.k_norm->weight_less_one);
  config["attention_bias"] = true;
  EXPECT_TRUE(Attention(config).o.bias);
}

TEST(LlamaAdapterTest, QwenHasWindowsInUpperLayersOrWhereLayerTypesSay) {
  for (const char* family : {"qwen2", "qwen3"}) {
    json config = Relative(family);
    config["sliding_window"] = 24;
    config["max_window_layers"] = 1;
    EXPECT_THAT(Windows(config), ElementsAre(0, 0, 0)) << "not in use";
    config["use_sliding_window"] = true;
    EXPECT_THAT(Windows(config), ElementsAre(0, 24, 24));
    config["layer_types"] = {"sliding_attention", "full_attention",
                             "sliding_attention"};
    EXPECT_THAT(Windows(config), ElementsAre(24, 0, 24));
    ExpectRefused(config, "use_sliding_window", false,
                  "layer_types has 'sliding_attention'");
    ExpectRefused(config, "layer_types", {"full_attention"},
                  "has 1 entries, num_hidden_layers is 3");
    ExpectRefused(config, "layer_types",
                  {"full_attention", "mamba", "full_attention"},
                  "has 'mamba'; supported are 'sliding_attention' and "
                  "'full_attention'");
    ExpectRefused(config, "layer_types", {1, 2, 3}, "an array of strings");
  }
}

}  // namespace
}  // namespace reprise
