#include "src/model/mla_kind.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/model/family.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;
using test::replaced;

/// DeepSeek-V2-Lite's, as it was released, but for its number of layers.
constexpr std::string_view kLite = R"({"vocab_size": 102400, "hidden_size": 2048,
  "num_hidden_layers": 3, "num_attention_heads": 16, "num_key_value_heads": 16,
  "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64,
  "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1,
  "n_group": 1, "topk_group": 1, "topk_method": "greedy", "norm_topk_prob": false,
  "scoring_func": "softmax", "routed_scaling_factor": 1.0, "q_lora_rank": null,
  "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
  "max_position_embeddings": 163840, "rope_theta": 10000, "attention_bias": false,
  "rope_scaling": {"type": "yarn", "factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale": 0.707,
  "mscale_all_dim": 0.707, "original_max_position_embeddings": 4096},
  "model_type": "deepseek_v2"})";

ModelConfig lite_config(const std::string& config) {
  return parse_model_config(Json::parse(config, "config.json"), std::nullopt);
}
std::string lite_refusal(std::string_view from, std::string_view to) {
  return error_message([&] { (void)lite_config(replaced(std::string(kLite), from, to)); });
}
const MlaConfig& mla(const ModelConfig& config) {
  return dynamic_cast<const MlaKind&>(*config.layers.at(0).mixer).config();
}
const MoeConfig& moe(const ModelConfig& config) {
  return dynamic_cast<const MoeKind&>(*config.layers.back().feed_forward).config();
}
ModelConfig model_of(const std::string& name) {
  return read_model_config(MOESAIC_TEST_DATA "/models/" + name);
}

TEST(MlaKind, reads_deepseek_v2) {
  const ModelConfig config = lite_config(std::string(kLite));
  EXPECT_EQ(mla(config).query_rank, 0) << "null: one product";
  EXPECT_EQ(mla(config).key_dim(), 576);
  EXPECT_EQ(mla(config).query_dim(), 192);
  EXPECT_EQ(mla(config).rope.form, RotaryForm::pairs);
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  EXPECT_DOUBLE_EQ(mla(config).scale, mscale * mscale / std::sqrt(192.0));
  EXPECT_DOUBLE_EQ(mla(config).rope.attention_factor, 1);
  EXPECT_EQ(moe(config).router.num_groups, 1);
  EXPECT_FALSE(moe(config).router.normalize);
  EXPECT_EQ(moe(config).shared_width, 2 * 1408);
  EXPECT_EQ(config.num_moe_layers(), 2);
  // It has no name for the size that the others' default stands for.
  EXPECT_EQ(
      mla(lite_config(replaced(std::string(kLite), R"("q_lora_rank": null,)", ""))).query_rank,
      1536);
  const RouterOptions groups = moe(model_of("deepseek_v2-v5")).router;
  EXPECT_EQ(groups.num_groups, 4);
  EXPECT_EQ(groups.kept_groups, 2);
  EXPECT_EQ(groups.group_score, GroupScore::largest);
  // Groups are not looked at by the greedy method, nor is a field that says to normalise.
  const std::string other =
      replaced(std::string(kLite), R"("n_group": 1, "topk_group": 1)", R"("n_group": 8)");
  EXPECT_EQ(
      moe(lite_config(replaced(other, R"(prob": false)", R"(prob": true)"))).router.num_groups, 1);
  EXPECT_FALSE(
      moe(lite_config(replaced(other, R"(prob": false)", R"(prob": true)"))).router.normalize);
}

TEST(MlaKind, reads_deepseek_v3_and_kimi_k2) {
  const ModelConfig config = model_of("deepseek_v3-v4");
  EXPECT_EQ(mla(config).query_rank, 28);
  const double mscale = 0.1 * 0.8 * std::log(4.0) + 1;
  EXPECT_DOUBLE_EQ(mla(config).scale, mscale * mscale / std::sqrt(28.0));
  EXPECT_FALSE(mla(config).bias);
  EXPECT_EQ(mla(model_of("deepseek_v3-v5-fused")).rope.form, RotaryForm::halves);
  EXPECT_TRUE(mla(model_of("deepseek_v3-v5-fused")).bias);
  // K2.5 has images, too: the config of its texts is within.
  std::string kimi = replaced(std::string(kLite), "deepseek_v2", "kimi_k2");
  kimi = replaced(kimi, R"("topk_method": "greedy")", R"("topk_method": "noaux_tc")");
  kimi = replaced(kimi, R"("scoring_func": "softmax")", R"("scoring_func": "sigmoid")");
  kimi = R"({"model_type": "kimi_k25", "tie_word_embeddings": true, "text_config": )" + kimi + "}";
  EXPECT_EQ(lite_config(kimi).family, "deepseek_v3");
  EXPECT_FALSE(lite_config(kimi).tie_word_embeddings);
  EXPECT_EQ(moe(lite_config(kimi)).router.scores, ExpertScores::sigmoid);
  const ModelConfig glm = model_of("glm4_moe_lite-v5");
  EXPECT_EQ(glm.rms_norm_eps, 1e-2);
  EXPECT_EQ(glm.layers[0].feed_forward->sizes().experts, 0);
}

TEST(MlaKind, refuses_what_it_cannot_compute) {
  EXPECT_EQ(lite_refusal(R"("qk_nope_head_dim": 128)", R"("qk_nope_head_dim": 100)"),
            "config.json: qk_nope_head_dim 100 is not supported: it is to be a multiple of 16");
  EXPECT_EQ(lite_refusal(R"("v_head_dim": 128)", R"("v_head_dim": 8)"),
            "config.json: v_head_dim 8 is not supported: it is to be a multiple of 16");
  EXPECT_EQ(lite_refusal(R"("qk_rope_head_dim": 64)", R"("qk_rope_head_dim": 63)"),
            "config.json: qk_rope_head_dim 63 is not supported: it is to be even");
  EXPECT_EQ(lite_refusal(R"("kv_lora_rank": 512)", R"("kv_lora_rank": 511)"),
            "config.json: kv_lora_rank 511 is not supported: it is to be even");
  EXPECT_EQ(lite_refusal(R"("num_key_value_heads": 16)", R"("num_key_value_heads": 8)"),
            "config.json: num_key_value_heads 8 is not num_attention_heads 16: in latent attention "
            "every head has keys and values of its own");
  EXPECT_EQ(lite_refusal(R"("num_hidden_layers": 3)", R"("num_hidden_layers": 16384)"), "no error");
  const std::string many =
      replaced(std::string(kLite), R"("num_hidden_layers": 3)", R"("num_hidden_layers": 16384)");
  EXPECT_EQ(error_message([&] {
              (void)lite_config(
                  replaced(many, R"(heads": 16, "num_key_value_heads": 16)", R"(heads": 128)"));
            }),
            "config.json: 16384 layers of num_attention_heads 128 are more than 1048576 heads in "
            "all");
  EXPECT_EQ(lite_refusal(R"("mscale_all_dim": 0.707)", R"("mscale_all_dim": 1e200)"),
            "config.json: mscale_all_dim 1e+200 with a factor of 40 gives scores a scale of inf");
  EXPECT_EQ(lite_refusal(R"("rope_theta": 10000)", R"("partial_rotary_factor": 0.5)"),
            "config.json: partial_rotary_factor 0.5 is not supported: qk_rope_head_dim says what "
            "is rotated");
  EXPECT_EQ(lite_refusal(R"("scoring_func": "softmax")", R"("scoring_func": "sigmoid")"),
            "config.json: scoring_func \"sigmoid\" is not supported in this family, only "
            "\"softmax\" is");
  EXPECT_EQ(lite_refusal(R"("topk_method": "greedy")", R"("topk_method": "noaux_tc")"),
            "config.json: topk_method \"noaux_tc\" is not supported in this family, only "
            "\"greedy\" and \"group_limited_greedy\" are");
  EXPECT_EQ(lite_refusal(R"("moe_layer_freq": 1)", R"("moe_layer_freq": 2)"),
            "config.json: moe_layer_freq 2 is not supported, only 1 is");
  EXPECT_EQ(lite_refusal("deepseek_v2", "deepseek_v3"),
            "config.json: scoring_func \"softmax\" is not supported in this family, only "
            "\"sigmoid\" is");
}

TEST(MlaKind, knows_what_a_token_takes) {
  const ModelConfig config = lite_config(std::string(kLite));
  const MixerKind& kind = *config.layers[0].mixer;
  EXPECT_EQ(kind.cache(Precision::bf16).page_bytes, 64 * 2 * (576 + 512));
  EXPECT_EQ(kind.cache(Precision::f32).page_bytes, 64 * 4 * (576 + 512));
  // The second token sees two keys.
  const MixerWork work = kind.work(Precision::bf16, 2);
  EXPECT_EQ(work.flops, 2 * 16 * (576 + 512) * 3);
  EXPECT_EQ(work.cache_bytes, 2 * (576 + 512) * 3);
  EXPECT_GT(kind.pass_bytes({.tokens = 1, .positions = 5000, .threads = 2}),
            kind.pass_bytes({.tokens = 1, .positions = 5000, .threads = 1}));
  EXPECT_EQ(kind.text().sizes, "16 of 128 + 64, values of 128; latent of 512");
}

TEST(MlaKind, finds_the_rows_of_heads_and_what_takes_adapters) {
  const ModelConfig config = model_of("deepseek_v3-v5-fused");
  const ModelNames names = find_model_names(config, [](std::string_view) { return false; });
  const std::vector<NamedWeight>& weights = names.layers[1].mixer;
  const std::string attention = "model.layers.1.self_attn.";
  ASSERT_EQ(weights[MlaWeight::kKeys].parts.size(), 4U);
  const TensorSlice& keys = weights[MlaWeight::kKeys].parts[3];
  const TensorSlice& values = weights[MlaWeight::kValues].parts[3];
  EXPECT_EQ(keys.tensor, attention + "kv_b_proj.weight");
  EXPECT_EQ(keys.shape, (std::vector<std::int64_t>{4 * 48, 20}));
  EXPECT_EQ(keys.first_row, 3 * 48);
  EXPECT_EQ(keys.rows, 32);
  EXPECT_EQ(values.first_row, 3 * 48 + 32);
  EXPECT_EQ(values.rows, 16);
  EXPECT_EQ(weights[MlaWeight::kQ].parts[0].tensor, attention + "q_proj.weight");
  EXPECT_TRUE(weights[MlaWeight::kQA].parts.empty());
  EXPECT_TRUE(weights[MlaWeight::kQABias].parts.empty());
  EXPECT_EQ(weights[MlaWeight::kKvABias].parts[0].tensor, attention + "kv_a_proj_with_mqa.bias");
  EXPECT_EQ(weights[MlaWeight::kOutBias].parts[0].tensor, attention + "o_proj.bias");
  std::vector<std::string> modules;
  for (const NamedWeight& weight : weights) {
    for (const AdapterSite& site : weight.sites) modules.push_back(site.module);
  }
  EXPECT_EQ(modules,
            (std::vector<std::string>{attention + "q_proj", attention + "kv_a_proj_with_mqa",
                                      attention + "kv_b_proj", attention + "o_proj"}));
  EXPECT_EQ(weights[MlaWeight::kKeys].sites.front().heads, 4);
}

}  // namespace
}  // namespace moesaic
