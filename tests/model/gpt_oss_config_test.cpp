#include <gtest/gtest.h>

#include "src/model/gqa_kind.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::gpt_oss {
namespace {

using Ints = std::vector<std::int64_t>;

ModelConfig parse(const std::string& config) {
  return parse_model_config(Json::parse(config, "config.json"), std::nullopt);
}

std::string config_error(const std::string& config) {
  return test::error_message([&] { (void)parse(config); });
}

/// The smallest config, without any field that has a default but for `more`.
std::string with(const std::string& more) {
  return R"({"model_type": "gpt_oss", "vocab_size": 8, "hidden_size": 32, "num_hidden_layers": 2, )"
         R"("num_attention_heads": 16, "num_experts_per_tok": 2, "num_local_experts": 4, )"
         R"("intermediate_size": 6)" +
         more + "}";
}

ModelConfig fixture(const std::string& name) {
  return read_model_config(std::string(MOESAIC_TEST_DATA) + "/models/" + name);
}

const GqaConfig& gqa(const ModelConfig& config) {
  return dynamic_cast<const GqaKind&>(*config.layers.at(0).mixer).config();
}

const MoeConfig& moe(const ModelConfig& config) {
  return dynamic_cast<const MoeKind&>(*config.layers.at(0).feed_forward).config();
}

Ints windows(const ModelConfig& config) {
  Ints result;
  for (const LayerConfig& layer : config.layers) result.push_back(layer.mixer->window());
  return result;
}

TEST(GptOssConfig, reads_gpt_oss) {
  const ModelConfig config = fixture("gpt_oss-v4");
  EXPECT_EQ(windows(config), (Ints{9, 0, 9}));
  EXPECT_TRUE(gqa(config).sinks && gqa(config).qkv_bias && gqa(config).o_bias);
  EXPECT_EQ(gqa(config).qk_norm, QkNorm::none);
  EXPECT_FALSE(gqa(config).rope.truncate);
  EXPECT_EQ(moe(config).router.scores, ExpertScores::logits);
  EXPECT_TRUE(moe(config).router_bias && moe(config).expert_bias);
  EXPECT_EQ(moe(config).expert_width, 22);
  const ModelConfig named = fixture("gpt_oss-v5");
  EXPECT_EQ(windows(named), (Ints{0, 7, 7}));
  EXPECT_FALSE(gqa(named).qkv_bias || gqa(named).o_bias);
  EXPECT_EQ(moe(named).gating.limit, 2.5F);
  EXPECT_EQ(moe(named).gating.alpha, 1.3F);
  EXPECT_EQ(moe(named).gating.offset, 1.0F);
}

TEST(GptOssConfig, takes_the_defaults_of_gpt_oss) {
  const ModelConfig config = parse(with(""));
  EXPECT_EQ(gqa(config).num_kv_heads, 8);
  EXPECT_EQ(gqa(config).head_dim, 64);
  EXPECT_EQ(windows(config), (Ints{128, 0}));
  EXPECT_TRUE(gqa(config).qkv_bias && gqa(config).o_bias);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(moe(config).gating.limit, 7.0F);
  EXPECT_EQ(moe(config).gating.alpha, 1.702F);
  const RopeConfig& rope = gqa(config).rope;
  EXPECT_EQ(rope.type, RopeType::yarn);
  EXPECT_DOUBLE_EQ(rope.theta, 150000);
  EXPECT_DOUBLE_EQ(rope.factor, 32);
  EXPECT_EQ(rope.original_max_position, 4096);
  EXPECT_FALSE(rope.truncate);
  EXPECT_EQ(gqa(parse(with(R"(, "rope_parameters": {"rope_theta": 2e4})"))).rope.type,
            RopeType::plain);
  EXPECT_EQ(config_error(with(R"(, "rope_theta": 150000, "rope_scaling": null)")),
            "config.json: rope_scaling: null is no scaling to transformers 4 and the family's "
            "usual one to 5: leave it out, or give it a rope_type");
  EXPECT_EQ(config_error(with(R"(, "swiglu_limit": 1e7)")),
            "config.json: swiglu_limit: expected 0.001 to 1000000, found 10000000");
  EXPECT_EQ(config_error(with(R"(, "swiglu_alpha": -1)")),
            "config.json: swiglu_alpha: expected a number above 0, found -1");
}

}  // namespace
}  // namespace moesaic::gpt_oss
