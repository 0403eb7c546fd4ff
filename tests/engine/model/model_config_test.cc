#include "engine/model/model_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/model/ffn_descriptions.h"
#include "engine/model/linear_attention_description.h"
#include "tests/engine/model/model_folder.h"

namespace reprise {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const LinearAttentionDescription& Attention(const ModelDescription& model) {
  return model.layers[0][0].mixer.As<LinearAttentionDescription>();
}

TEST(ModelConfigTest, DescribesFlaLinearAttention) {
  const auto model =
      ModelFolder().Load(GoldenConfig("linear_attn_elu_gqa_tied"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->family, "linear_attn");
  EXPECT_EQ(model->vocab_size, 320);
  EXPECT_EQ(model->d_model, 96);
  EXPECT_EQ(model->layers.size(), 3u);
  EXPECT_EQ(model->head.weight.name, model->embedding.name) << "tied";
  EXPECT_EQ(model->final_norm->weight.name, "model.norm.weight");
  EXPECT_THAT(model->eos_tokens, ElementsAre(2));
  EXPECT_EQ(model->bos_token, 1);

  const LinearAttentionDescription& attention = Attention(*model);
  EXPECT_EQ(attention.heads, 4);
  EXPECT_EQ(attention.kv_heads, 2);
  EXPECT_EQ(attention.key_dim, 12);
  EXPECT_EQ(attention.value_dim, 24);
  EXPECT_EQ(attention.feature_map, FeatureMap::kEluPlusOne);
  EXPECT_TRUE(attention.normalize);
  EXPECT_EQ(attention.epsilon, 1e-10F);
  EXPECT_FLOAT_EQ(attention.scale, 1 / std::sqrt(12.0F));
  EXPECT_EQ(attention.k.weight.name, "model.layers.0.attn.k_proj.weight");
  EXPECT_EQ(attention.output_norm->eps, 1e-5F);

  // 96 * 2 * 2 / 3 = 128, rounded up to 256.
  const auto& ffn = model->layers[2][1].mixer.As<GatedFfnDescription>();
  EXPECT_EQ(ffn.width, 256);
  EXPECT_EQ(ffn.down.weight.name, "model.layers.2.mlp.down_proj.weight");
  EXPECT_EQ(model->layers[2][1].norm_placement, NormPlacement::kBefore);
}

TEST(ModelConfigTest, DescribesFastTransformers) {
  const auto model = ModelFolder().Load(GoldenConfig("fast_transformers_elu"));
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->d_model, 64);
  EXPECT_EQ(model->head.bias.name, "predictor.bias");
  const LinearAttentionDescription& attention = Attention(*model);
  EXPECT_EQ(attention.key_dim, 24);
  EXPECT_EQ(attention.value_dim, 32);
  EXPECT_EQ(attention.scale, 1);
  EXPECT_EQ(attention.epsilon, 1e-6F);
  EXPECT_FALSE(attention.output_norm.has_value());
  EXPECT_EQ(model->layers[0][0].norm_placement, NormPlacement::kAfter);
  EXPECT_EQ(model->layers[0][0].norm.kind, NormKind::kLayer);
  EXPECT_EQ(model->layers[1][1].mixer.As<PlainFfnDescription>().width, 96);
}

TEST(ModelConfigTest, KnowsEveryFeatureMapOfFla) {
  const struct {
    const char* name;
    FeatureMap map;
    int64_t features;  // of 32 numbers
  } kMaps[] = {{"elu", FeatureMap::kEluPlusOne, 32},
               {"relu", FeatureMap::kRelu, 32},
               {"identity", FeatureMap::kIdentity, 32},
               {"elementwise_product", FeatureMap::kElementwiseProduct, 32},
               {"hedgehog", FeatureMap::kHedgehog, 64},
               {"t2r", FeatureMap::kT2r, 32},
               {"dpfp", FeatureMap::kDpfp, 256}};
  json config = GoldenConfig("linear_attn_elu");
  for (const auto& row : kMaps) {
    config["feature_map"] = row.name;
    const auto model = ModelFolder().Load(config);
    ASSERT_TRUE(model.ok()) << row.name << ": " << model.status();
    const LinearAttentionDescription& attention = Attention(*model);
    EXPECT_EQ(attention.feature_map, row.map);
    EXPECT_EQ(FeatureDim(attention.feature_map, attention.key_dim,
                         attention.q_layers),
              row.features);
    EXPECT_FLOAT_EQ(attention.scale,
                    1 / std::sqrt(static_cast<float>(row.features)));
  }
}

TEST(ModelConfigTest, TiedFeatureMapsUseTheTensorThatIsThere) {
  json config = GoldenConfig("linear_attn_hedgehog");
  config["tie_feature_map_qk"] = true;
  const std::string attn = "model.layers.0.attn.";
  for (const char* map : {"feature_map_q", "feature_map_k"}) {
    const std::string name = attn + map + ".layer.weight";
    const auto model = ModelFolder({name}).Load(config);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(Attention(*model).q_layers.layer1.weight.name, name);
    EXPECT_EQ(Attention(*model).k_layers.layer1.weight.name, name);
  }
}

TEST(ModelConfigTest, ReadsSpecialTokensFromBothFiles) {
  json config = GoldenConfig("linear_attn_elu");
  config["eos_token_id"] = {5, 6};
  config["bos_token_id"] = nullptr;
  ModelFolder folder;
  auto model = folder.Load(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->eos_tokens, ElementsAre(5, 6));
  EXPECT_FALSE(model->bos_token.has_value());

  folder.dir().Write("generation_config.json",
                     R"({"eos_token_id":7,"bos_token_id":8})");
  model = folder.Load(config);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(model->eos_tokens, ElementsAre(7));
  EXPECT_EQ(model->bos_token, 8);

  folder.dir().Write("generation_config.json", R"({"eos_token_id":256})");
  EXPECT_THAT(std::string(folder.Load(config).status().message()),
              HasSubstr("generation_config.json: field 'eos_token_id' must be "
                        "a whole number in 0..255, not 256"));
}

TEST(ModelConfigTest, ConfigTextHoldsWhatShapesTheModelOnly) {
  json config = GoldenConfig("linear_attn_elu");
  const std::string text = ModelFolder().Load(config)->config_text;
  config["transformers_version"] = "9";
  config["eos_token_id"] = 3;
  EXPECT_EQ(ModelFolder().Load(config)->config_text, text);
  config["norm_eps"] = 1e-5;
  EXPECT_THAT(ModelFolder().Load(config)->config_text, Not(text));
}

struct BadField {
  const char* field;
  json value;  // null: the field is missing
  const char* message;
};

void ExpectRefusals(const json& good, std::span<const BadField> cases) {
  ASSERT_TRUE(ModelFolder().Load(good).ok());
  for (const BadField& bad : cases) {
    ExpectRefused(good, bad.field, bad.value, bad.message);
  }
}

TEST(ModelConfigTest, RefusesBadFlaConfigsNamingTheField) {
  const BadField kCases[] = {
      {"model_type", nullptr, "is missing"},
      {"model_type", "gpt2", "is 'gpt2'; known are delta_net, "},
      {"model_type", 3, "must be a string"},
      {"vocab_size", nullptr, "is missing"},
      {"vocab_size", 0, "must be a whole number"},
      {"vocab_size", 4294967296, "must be a whole number"},
      {"hidden_size", nullptr, "is missing"},
      {"hidden_size", "64", "must be a whole number"},
      {"hidden_size", -64, "must be a whole number"},
      {"num_hidden_layers", 100000, "must be a whole number in 1..1024"},
      {"num_heads", nullptr, "is missing"},
      {"num_heads", 0, "must be a whole number"},
      {"num_kv_heads", 3, "does not divide num_heads = 2"},
      {"expand_k", 0.52, "times hidden_size is 33"},
      {"expand_v", -1, "must be a number"},
      {"feature_map", nullptr, "is missing"},
      {"feature_map", "softmax",
       "is 'softmax'; supported are elu, relu, identity, "
       "elementwise_product, hedgehog, t2r, dpfp"},
      {"norm_eps", 2, "must be a number in 0..1"},
      {"norm_feature_map", 1, "must be true or false"},
      {"hidden_act", "gelu", "is 'gelu'"},
      {"intermediate_size", 0, "must be a whole number"},
      {"tie_word_embeddings", "yes", "must be true or false"},
      {"attn", 3, "must be an object or an array of objects"},
      {"attnres_block_size", 2, "is not supported"},
      {"eos_token_id", 256, "must be a whole number in 0..255"},
      {"eos_token_id", {1, -1}, "must be a whole number in 0..255"},
      {"bos_token_id", "x", "must be a whole number"},
  };
  json good = GoldenConfig("linear_attn_elu");
  ExpectRefusals(good, kCases);
  good["num_heads"] = 32;
  const BadField kExpand[] = {
      {"expand_k", 0.76,
       "times hidden_size is 48, which num_heads = 32 does not divide"},
      {"expand_v", 0.001, "times hidden_size is 0"},
  };
  ExpectRefusals(good, kExpand);
}

TEST(ModelConfigTest, FamiliesThatAreNotSupportedYetAreRefusedByName) {
  const struct {
    const char* model_type;
    const char* family;
  } kFamilies[] = {{"granitemoehybrid", "Granite 4"},
                   {"falcon_h1", "Falcon-H1"},
                   {"lfm2", "LFM2"},
                   {"jamba", "Jamba"},
                   {"bamba", "Bamba"},
                   {"recurrent_gemma", "RecurrentGemma"},
                   {"kimi_linear", "Kimi Linear"},
                   {"xlstm", "xLSTM"}};
  for (const auto& [model_type, family] : kFamilies) {
    EXPECT_EQ(
        ModelFolder().Load({{"model_type", model_type}}).status().message(),
        std::string("config.json: field 'model_type' is '") + model_type +
            "'; models of the " + family + " family are not supported yet");
  }
}

TEST(ModelConfigTest, RefusesFeaturesThatTheKernelsCannotHold) {
  json config = GoldenConfig("linear_attn_elu");
  config["hidden_size"] = 512;
  config["feature_map"] = "dpfp";
  EXPECT_THAT(std::string(ModelFolder().Load(config).status().message()),
              HasSubstr("field 'feature_map' makes 2048 features per head, "
                        "the limit is 1024"));
}

TEST(ModelConfigTest, RefusesBadFastTransformersConfigsNamingTheField) {
  const BadField kCases[] = {
      {"attention_type", "full", "is 'full'; supported is 'causal-linear'"},
      {"attention_type", nullptr, "is missing"},
      {"feature_map", "relu", "is 'relu'; supported are 'elu' and 'favor'"},
      {"activation", "tanh", "is 'tanh'; supported are 'relu' and 'gelu'"},
      {"n_layers", nullptr, "is missing"},
      {"n_heads", 0, "must be a whole number"},
      {"query_dimensions", 4096, "must be a whole number in 1..1024"},
      {"value_dimensions", 1.5, "must be a whole number"},
      {"feed_forward_dimensions", nullptr, "is missing"},
      {"layer_norm_eps", "x", "must be a number"},
  };
  ExpectRefusals(GoldenConfig("fast_transformers_elu"), kCases);
}

TEST(ModelConfigTest, RefusesRandomFeaturesOfNoStatedNumber) {
  json config = GoldenConfig("fast_transformers_elu");
  config["feature_map"] = "favor";
  EXPECT_THAT(std::string(ModelFolder().Load(config).status().message()),
              HasSubstr("config.json: field 'favor_n_dims' is missing"));
}

TEST(ModelConfigTest, RefusesFilesThatAreNoConfig) {
  ModelFolder folder;
  EXPECT_THAT(std::string(folder.LoadText("[").status().message()),
              HasSubstr("config.json is not JSON"));
  EXPECT_THAT(std::string(folder.LoadText("[]").status().message()),
              HasSubstr("config.json does not hold a JSON object"));
  EXPECT_THAT(
      std::string(folder.LoadText(R"({"model_type":"a","model_type":"b"})")
                      .status()
                      .message()),
      HasSubstr("config.json has the key 'model_type' twice"));
  EXPECT_THAT(std::string(folder.LoadText(R"({"x":)" + std::string(1000, '['))
                              .status()
                              .message()),
              HasSubstr("config.json is nested deeper than 32 levels"));
  EXPECT_THAT(
      std::string(
          folder.LoadText(std::string(5'000'000, ' ')).status().message()),
      HasSubstr("config.json has 5000000 bytes"));
  std::filesystem::remove(folder.dir().path() + "/config.json");
  const auto checkpoint = Checkpoint::Open(folder.dir().path());
  EXPECT_EQ(
      LoadModelDescription(folder.dir().path(), *checkpoint).status().code(),
      absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace reprise
