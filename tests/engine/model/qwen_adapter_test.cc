// Qwen3-Next and Qwen3.5: what their configs mean, which rows of the fused
// tensors are whose, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/model/delta_description.h"
#include "engine/model/ffn_descriptions.h"
#include "engine/model/moe_description.h"
#include "engine/model/softmax_attention_description.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::Pair;

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges RowsOf(const LinearRef& ref) {
  Ranges ranges;
  for (const RowRange& range : ref.rows) {
    ranges.push_back({range.first, range.count});
  }
  return ranges;
}

// "linear_attention"s as L, the others as A; then experts as E, dense as D.
std::string Kinds(const ModelDescription& model) {
  std::string text;
  for (const auto& layer : model.layers) {
    const bool linear = layer[0].mixer.AsIf<DeltaNetDescription>() != nullptr;
    const bool experts = layer[1].mixer.AsIf<MoeFfnDescription>() != nullptr;
    text += linear ? "L" : "A";
    text += experts ? "E " : "D ";
  }
  return text;
}

TEST(QwenAdapterTest, DescribesTheLinearLayersOfQwen3Next) {
  const ModelDescription model = Describe(GoldenConfig("qwen3_next_moe"));
  const auto& d = MixerOf<DeltaNetDescription>(model, 1, 0);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.key_heads, 2);
  EXPECT_EQ(d.key_dim, 16);
  EXPECT_EQ(d.value_dim, 24);
  EXPECT_FLOAT_EQ(d.scale, 0.25F);
  // Per key head: 16 of q, 16 of k, 2 x 24 of v, 2 x 24 of z.
  const std::string attn = "model.layers.1.linear_attn.";
  EXPECT_EQ(d.q.weight.name, attn + "in_proj_qkvz.weight");
  EXPECT_THAT(d.q.stored_shape, ElementsAre(256, 64));
  EXPECT_THAT(RowsOf(d.q), ElementsAre(Pair(0, 16), Pair(128, 16)));
  EXPECT_THAT(RowsOf(d.k), ElementsAre(Pair(16, 16), Pair(144, 16)));
  EXPECT_THAT(RowsOf(d.v), ElementsAre(Pair(32, 48), Pair(160, 48)));
  EXPECT_THAT(RowsOf(d.gate), ElementsAre(Pair(80, 48), Pair(208, 48)));
  EXPECT_EQ(d.beta.weight.name, attn + "in_proj_ba.weight");
  EXPECT_THAT(d.beta.stored_shape, ElementsAre(8, 64));
  EXPECT_THAT(RowsOf(d.beta), ElementsAre(Pair(0, 2), Pair(4, 2)));
  EXPECT_THAT(RowsOf(d.decay), ElementsAre(Pair(2, 2), Pair(6, 2)));
  ASSERT_EQ(d.convolutions.size(), 1u);
  EXPECT_EQ(d.convolutions[0].field, "conv");
  EXPECT_EQ(d.convolutions[0].conv.channels, 160);
  EXPECT_EQ(d.convolutions[0].conv.taps, 4);
  EXPECT_TRUE(d.convolutions[0].conv.silu);
  EXPECT_FALSE(d.output_norm.weight_less_one) << "alone of all norms";
  EXPECT_TRUE(model.layers[1][0].norm.weight_less_one);
  EXPECT_TRUE(model.final_norm->weight_less_one);
}

TEST(QwenAdapterTest, DescribesTheAttentionOfQwen3Next) {
  json config = GoldenConfig("qwen3_next_moe");
  const ModelDescription model = Describe(config);
  const auto& d = MixerOf<SoftmaxAttentionDescription>(model, 3, 0);
  EXPECT_EQ(d.heads, 4);
  EXPECT_EQ(d.kv_heads, 2);
  EXPECT_EQ(d.head_dim, 32);
  EXPECT_TRUE(d.output_gate);
  EXPECT_EQ(d.rotary_dim, 8);
  EXPECT_EQ(d.rotary_base, 1e7);
  EXPECT_EQ(d.window, 0);
  ASSERT_TRUE(d.q_norm && d.k_norm);
  EXPECT_TRUE(d.q_norm->weight_less_one);
  EXPECT_EQ(d.k_norm->weight.name, "model.layers.3.self_attn.k_norm.weight");
  EXPECT_FALSE(d.q.bias);
  config["attention_bias"] = true;
  config["attn_output_gate"] = false;
  config.erase("partial_rotary_factor");
  config["head_dim"] = 64;
  const ModelDescription other = Describe(config);
  const auto& o = MixerOf<SoftmaxAttentionDescription>(other, 3, 0);
  EXPECT_TRUE(o.q.bias && o.k.bias && o.v.bias && o.o.bias);
  EXPECT_FALSE(o.output_gate);
  EXPECT_EQ(o.rotary_dim, 16) << "a quarter by default";
}

TEST(QwenAdapterTest, DescribesTheExpertsOfBothLayouts) {
  json config = GoldenConfig("qwen3_next_moe");
  const ModelDescription next = Describe(config);
  const auto& one = MixerOf<MoeFfnDescription>(next, 2, 1);
  ASSERT_EQ(one.experts.size(), 8u);
  EXPECT_EQ(one.per_row, 3);
  EXPECT_EQ(one.width, 24);
  EXPECT_EQ(one.shared_width, 32);
  EXPECT_TRUE(one.sum_to_one);
  EXPECT_EQ(one.experts[7].up.weight.name,
            "model.layers.2.mlp.experts.7.up_proj.weight");
  EXPECT_EQ(one.router.weight.name, "model.layers.2.mlp.gate.weight");
  EXPECT_EQ(one.shared_gate.weight.name,
            "model.layers.2.mlp.shared_expert_gate.weight");
  config["norm_topk_prob"] = false;
  const ModelDescription plain = Describe(config);
  EXPECT_FALSE(MixerOf<MoeFfnDescription>(plain, 2, 1).sum_to_one);

  const ModelDescription newer = Describe(GoldenConfig("qwen3_5_moe"));
  const auto& two = MixerOf<MoeFfnDescription>(newer, 0, 1);
  ASSERT_EQ(two.experts.size(), 8u);
  EXPECT_TRUE(two.sum_to_one);
  const ExpertDescription& expert = two.experts[2];
  EXPECT_EQ(expert.gate.weight.name, "model.layers.0.mlp.experts.gate_up_proj");
  EXPECT_THAT(expert.gate.stored_shape, ElementsAre(8, 48, 64));
  EXPECT_THAT(RowsOf(expert.gate), ElementsAre(Pair(96, 24)));
  EXPECT_THAT(RowsOf(expert.up), ElementsAre(Pair(120, 24)));
  EXPECT_EQ(expert.down.weight.name, "model.layers.0.mlp.experts.down_proj");
  EXPECT_THAT(expert.down.stored_shape, ElementsAre(8, 64, 24));
  EXPECT_THAT(RowsOf(expert.down), ElementsAre(Pair(128, 64)));
}

TEST(QwenAdapterTest, DescribesTheLinearLayersOfQwen35) {
  const ModelDescription model = Describe(GoldenConfig("qwen3_5_text_tied"));
  EXPECT_EQ(model.family, "qwen3_5_text");
  EXPECT_EQ(model.head.weight.name, model.embedding.name) << "tied";
  const auto& d = MixerOf<DeltaNetDescription>(model, 0, 0);
  const std::string attn = "model.layers.0.linear_attn.";
  EXPECT_EQ(d.v.weight.name, attn + "in_proj_qkv.weight");
  EXPECT_THAT(d.v.stored_shape, ElementsAre(192, 96));
  EXPECT_THAT(RowsOf(d.q), ElementsAre(Pair(0, 64)));
  EXPECT_THAT(RowsOf(d.k), ElementsAre(Pair(64, 64)));
  EXPECT_THAT(RowsOf(d.v), ElementsAre(Pair(128, 64)));
  EXPECT_EQ(d.gate.weight.name, attn + "in_proj_z.weight");
  EXPECT_EQ(d.beta.weight.name, attn + "in_proj_b.weight");
  EXPECT_EQ(d.decay.weight.name, attn + "in_proj_a.weight");
  const auto& a = MixerOf<SoftmaxAttentionDescription>(model, 1, 0);
  EXPECT_EQ(a.rotary_dim, 12) << "half, of rope_parameters";
}

TEST(QwenAdapterTest, LayersAreOfTheKindsThatTheConfigSays) {
  json config = GoldenConfig("qwen3_next_moe");
  EXPECT_EQ(Kinds(Describe(config)), "LE LE LE AE ");
  config["full_attention_interval"] = 2;
  EXPECT_EQ(Kinds(Describe(config)), "LE AE LE AE ");
  config["decoder_sparse_step"] = 2;
  EXPECT_EQ(Kinds(Describe(config)), "LD AE LD AE ");
  config["mlp_only_layers"] = {3};
  EXPECT_EQ(Kinds(Describe(config)), "LD AE LD AD ");
  config["layer_types"] = {"full_attention", "linear_attention",
                           "linear_attention", "full_attention"};
  EXPECT_EQ(Kinds(Describe(config)), "AD LE LD AD ");
  config["num_experts"] = 0;
  EXPECT_EQ(Kinds(Describe(config)), "AD LD LD AD ");
  const ModelDescription dense =
      Describe(GoldenConfig("qwen3_next_dense_mlp_only"));
  EXPECT_EQ(Kinds(dense), "LD AD LD ");
  EXPECT_EQ(MixerOf<GatedFfnDescription>(dense, 0, 1).width, 136);
}

TEST(QwenAdapterTest, AMultimodalConfigDescribesItsTextModel) {
  const json config = GoldenConfig("qwen3_5_moe");
  const std::string deeper = "model.language_model.";
  const ModelDescription model =
      Describe(config, {deeper + "embed_tokens.weight"});
  EXPECT_EQ(model.family, "qwen3_5_moe_text");
  EXPECT_EQ(Kinds(model), "LE AE LE ");
  EXPECT_EQ(model.embedding.name, deeper + "embed_tokens.weight");
  EXPECT_EQ(model.final_norm->weight.name, deeper + "norm.weight");
  EXPECT_EQ(model.layers[0][0].norm.weight.name,
            deeper + "layers.0.input_layernorm.weight");
  EXPECT_EQ(model.head.weight.name, "lm_head.weight");
  EXPECT_THAT(model.eos_tokens, ElementsAre(2)) << "of text_config";
  EXPECT_EQ(model.max_positions, 2048);
  EXPECT_THAT(model.ignored_prefixes, ElementsAre("mtp.", "model.visual."));
  // What is outside of text_config has no part in what a state means.
  json seeing = config;
  seeing["vision_config"]["depth"] = 7;
  EXPECT_EQ(Describe(seeing).config_text, Describe(config).config_text);
}

TEST(QwenAdapterTest, TheHeadIsTiedInsideOrOutsideOfTheTextConfig) {
  json config = GoldenConfig("qwen3_5_moe");
  ExpectRefused(config, "text_config.tie_word_embeddings", true, "differs");
  config["tie_word_embeddings"] = true;
  config["text_config"].erase("tie_word_embeddings");
  const ModelDescription tied = Describe(config);
  EXPECT_EQ(tied.head.weight.name, tied.embedding.name);
  config.erase("tie_word_embeddings");
  EXPECT_EQ(Describe(config).head.weight.name, "lm_head.weight");
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_EQ(Describe(config).head.weight.name, tied.embedding.name);
}

TEST(QwenAdapterTest, RefusesBadConfigsNamingTheField) {
  const json config = GoldenConfig("qwen3_next_moe");
  for (const char* field :
       {"vocab_size", "hidden_size", "num_hidden_layers", "num_experts",
        "num_attention_heads", "linear_num_key_heads", "linear_num_value_heads",
        "linear_key_head_dim", "linear_value_head_dim", "num_experts_per_tok",
        "moe_intermediate_size", "shared_expert_intermediate_size"}) {
    ExpectRefused(config, field, nullptr, "is missing");
    ExpectRefused(config, field, -1, "must be a whole number");
    ExpectRefused(config, field, int64_t{1} << 40, "must be a whole number");
  }
  ExpectRefused(config, "linear_num_value_heads", 5,
                "which linear_num_key_heads = 2 does not divide");
  ExpectRefused(config, "linear_key_head_dim", 512, "1..256");
  ExpectRefused(config, "linear_conv_kernel_dim", 17, "1..16");
  ExpectRefused(config, "num_experts_per_tok", 9, "1..8");
  ExpectRefused(config, "head_dim", 30, "turn 7 numbers");
  ExpectRefused(config, "full_attention_interval", 0, "whole number");
  ExpectRefused(config, "decoder_sparse_step", 0, "whole number");
  ExpectRefused(config, "mlp_only_layers", {4}, "in 0..3");
  ExpectRefused(config, "layer_types", {"linear_attention"}, "has 1 entries");
  ExpectRefused(config, "norm_topk_prob", "yes", "must be true or false");
  ExpectRefused(config, "hidden_act", "gelu", "supported is 'silu'");
  json deep = config;
  deep["num_hidden_layers"] = 1024;
  ExpectRefused(deep, "num_experts", 4096,
                "times num_hidden_layers is 4194304, the limit is 131072");
  json dense = GoldenConfig("qwen3_next_dense_mlp_only");
  ExpectRefused(dense, "intermediate_size", nullptr, "is missing");
}

TEST(QwenAdapterTest, RefusesBadConfigsOfQwen35NamingTheField) {
  const json config = GoldenConfig("qwen3_5_moe");
  ExpectRefused(config, "text_config", nullptr, "must be an object");
  ExpectRefused(config, "text_config.model_type", nullptr, "is missing");
  ExpectRefused(config, "text_config.num_experts", 0, "has experts");
  ExpectRefused(config, "text_config.norm_topk_prob", false, "it is true");
  ExpectRefused(config, "text_config.mlp_only_layers", {0}, "is not empty");
  ExpectRefused(config, "text_config.rope_parameters.rope_type", "yarn",
                "supported are");
  ExpectRefused(config, "text_config.eos_token_id", 256, "0..255");
  ExpectRefused(config, "tie_word_embeddings", 1, "must be true or false");
}

}  // namespace
}  // namespace reprise
