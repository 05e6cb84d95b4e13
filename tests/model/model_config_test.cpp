#include "src/model/model_config.h"

#include <gtest/gtest.h>

#include <cmath>

#include "src/model/family.h"
#include "src/model/gqa_kind.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::replaced;
using test::tiny_config;

using Ints = std::vector<std::int64_t>;

ModelConfig parse(const std::string& config, const std::string& generation = "") {
  std::optional<Json> second;
  if (!generation.empty()) second = Json::parse(generation, "generation_config.json");
  return parse_model_config(Json::parse(config, "config.json"), second);
}

std::string parse_error(const std::string& config) {
  return error_message([&] { (void)parse(config); });
}

std::string edit_error(std::string_view from, std::string_view to) {
  return parse_error(replaced(tiny_config(), from, to));
}

/// The tiny config with more fields.
std::string tiny_with(const std::string& fields) {
  return replaced(tiny_config(), "{", "{" + fields + ", ");
}

/// The smallest config of a family, without any field that has a default.
std::string bare(const std::string& family, const std::string& fields) {
  return R"({"vocab_size": 8, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 16,)"
         R"("num_experts_per_tok": 2, "model_type": ")" +
         family + "\", " + fields + "}";
}

const GqaConfig& gqa(const ModelConfig& config, std::size_t layer = 0) {
  return dynamic_cast<const GqaKind&>(*config.layers.at(layer).mixer).config();
}

const RouterOptions& router(const ModelConfig& config, std::size_t layer = 0) {
  return dynamic_cast<const MoeKind&>(*config.layers.at(layer).feed_forward).config().router;
}

FeedForwardSizes sizes(const ModelConfig& config, std::size_t layer = 0) {
  return config.layers.at(layer).feed_forward->sizes();
}

Ints windows(const ModelConfig& config) {
  Ints result;
  for (const LayerConfig& layer : config.layers) result.push_back(layer.mixer->window());
  return result;
}

std::vector<bool> is_moe(const ModelConfig& config) {
  std::vector<bool> result;
  for (const LayerConfig& layer : config.layers) {
    result.push_back(layer.feed_forward->sizes().experts > 0);
  }
  return result;
}

ModelConfig fixture(const std::string& name) {
  return read_model_config(std::string(MOESAIC_TEST_DATA) + "/models/" + name);
}

TEST(ModelConfig, reads_qwen3_moe) {
  const ModelConfig config = fixture("qwen3_moe-v4");
  EXPECT_EQ(config.family, "qwen3_moe");
  EXPECT_EQ(config.vocab_size, 150);
  EXPECT_EQ(config.hidden_size, 64);
  EXPECT_EQ(config.num_layers(), 3);
  EXPECT_EQ(gqa(config).num_heads, 6);
  EXPECT_EQ(gqa(config).num_kv_heads, 2);
  EXPECT_EQ(gqa(config).head_dim, 20);
  EXPECT_EQ(gqa(config).q_width(), 120);
  EXPECT_EQ(config.num_experts, 8);
  EXPECT_EQ(config.experts_per_token, 3);
  EXPECT_EQ(sizes(config).expert_width, 24);
  EXPECT_EQ(sizes(config).common_width, 0);
  EXPECT_EQ(config.num_moe_layers(), 3);
  EXPECT_TRUE(router(config).normalize);
  EXPECT_EQ(router(config).scores, ExpertScores::softmax);
  EXPECT_EQ(gqa(config).qk_norm, QkNorm::per_head);
  EXPECT_FALSE(gqa(config).qkv_bias || gqa(config).o_bias || config.tie_word_embeddings);
  EXPECT_DOUBLE_EQ(gqa(config).scale, 1.0 / std::sqrt(20.0));
  EXPECT_DOUBLE_EQ(config.rms_norm_eps, 1e-6);
  EXPECT_EQ(windows(config), (Ints{0, 0, 0}));
  EXPECT_DOUBLE_EQ(gqa(config).rope.theta, 1e6);
  EXPECT_EQ(config.dtype, "bfloat16");
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, Ints{2});
}

TEST(ModelConfig, reads_what_transformers_5_renamed) {
  const ModelConfig config = fixture("qwen3_moe-v5");
  EXPECT_EQ(config.num_experts, 7);
  EXPECT_EQ(gqa(config).rope.type, RopeType::llama3);
  EXPECT_DOUBLE_EQ(gqa(config).rope.theta, 500000.0);
  EXPECT_TRUE(gqa(config).qkv_bias && gqa(config).o_bias && config.tie_word_embeddings);
  EXPECT_EQ(gqa(fixture("mixtral-v5")).head_dim, 10);  // null: 60 / 6
}

TEST(ModelConfig, tells_dense_layers_from_moe_layers) {
  const ModelConfig sparse = fixture("qwen3_moe-v4-sparse-step");
  EXPECT_EQ(is_moe(sparse), (std::vector<bool>{false, true, false, false}));
  EXPECT_EQ(sizes(sparse).common_width, 70);
  EXPECT_EQ(is_moe(fixture("qwen3_moe-v5-fused")), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(is_moe(fixture("qwen2_moe-v4")), (std::vector<bool>{true, false, true}));
}

TEST(ModelConfig, reads_qwen2_moe) {
  const ModelConfig config = fixture("qwen2_moe-v4");
  EXPECT_EQ(sizes(config).common_width, 44);
  EXPECT_TRUE(gqa(config).qkv_bias);
  EXPECT_FALSE(gqa(config).o_bias || router(config).normalize);
  EXPECT_EQ(gqa(config).qk_norm, QkNorm::none);
  EXPECT_FALSE(gqa(fixture("qwen2_moe-v4-window")).qkv_bias);
}

TEST(ModelConfig, finds_the_window_of_each_layer) {
  EXPECT_EQ(windows(fixture("qwen3_moe-v4-yarn-window-sharded")), (Ints{13, 13}));
  EXPECT_EQ(windows(fixture("qwen2_moe-v4-window")), (Ints{9, 9}));
  EXPECT_EQ(windows(fixture("qwen2_moe-v5-window")), (Ints{7, 0, 0}));
  EXPECT_EQ(windows(fixture("qwen2_moe-v5-fused")), (Ints{0, 0}));
  EXPECT_EQ(windows(fixture("mixtral-v4-window-sharded")), (Ints{11, 11}));
  const std::string on = R"("use_sliding_window": true)";
  EXPECT_EQ(windows(parse(tiny_with(on))), Ints{4096});
  EXPECT_EQ(windows(parse(tiny_with(on + R"(, "sliding_window": null)"))), Ints{0});
  EXPECT_EQ(windows(parse(tiny_with(R"("sliding_window": 5)"))), Ints{0});
}

TEST(ModelConfig, reads_olmoe) {
  const ModelConfig config = fixture("olmoe-v4");
  EXPECT_EQ(sizes(config).expert_width, 28);
  EXPECT_EQ(gqa(config).qk_norm, QkNorm::whole);
  EXPECT_EQ(gqa(config).clip_qkv, 1.25);
  EXPECT_FALSE(router(config).normalize);
  const ModelConfig bias = fixture("olmoe-v4-bias");
  EXPECT_TRUE(gqa(bias).qkv_bias && gqa(bias).o_bias && router(bias).normalize);
  EXPECT_FALSE(gqa(bias).clip_qkv.has_value());
}

TEST(ModelConfig, reads_mixtral_and_granitemoe) {
  const ModelConfig mixtral = fixture("mixtral-v4-dynamic");
  EXPECT_EQ(mixtral.num_experts, 4);
  EXPECT_TRUE(router(mixtral).normalize);
  EXPECT_FALSE(gqa(mixtral).qkv_bias || gqa(mixtral).o_bias);
  const ModelConfig granite = fixture("granitemoe-v4");
  EXPECT_EQ(router(granite).scores, ExpertScores::logits);
  EXPECT_DOUBLE_EQ(gqa(granite).scale, 0.1875);
  EXPECT_DOUBLE_EQ(granite.embedding_multiplier, 3.5);
  EXPECT_DOUBLE_EQ(granite.residual_multiplier, 0.22);
  EXPECT_DOUBLE_EQ(granite.logits_scaling, 2.5);
}

TEST(ModelConfig, reads_glm4_moe) {
  const ModelConfig config = fixture("glm4_moe-v4");
  EXPECT_EQ(is_moe(config), (std::vector<bool>{false, true, true}));
  EXPECT_EQ(gqa(config).rope.rotary_dim, 10);
  EXPECT_EQ(gqa(config).qk_norm, QkNorm::per_head);
  EXPECT_TRUE(gqa(config).qkv_bias);
  EXPECT_FALSE(gqa(config).o_bias);
  EXPECT_EQ(config.num_experts, 12);
  EXPECT_EQ(router(config, 1).scores, ExpertScores::sigmoid);
  EXPECT_EQ(router(config, 1).num_groups, 3);
  EXPECT_EQ(router(config, 1).kept_groups, 2);
  EXPECT_EQ(router(config, 1).scale, 1.5F);
  EXPECT_TRUE(router(config, 1).normalize);
  EXPECT_EQ(gqa(fixture("glm4_moe-v5-fused")).qk_norm, QkNorm::none);
}

TEST(ModelConfig, reads_families_that_took_its_router_over) {
  EXPECT_EQ(windows(fixture("dots1-v4-window")), (Ints{0, 0, 9}));
  const ModelConfig minimax = fixture("minimax_m2-v5");
  EXPECT_EQ(gqa(minimax).rope.rotary_dim, 8);
  EXPECT_EQ(gqa(minimax).qk_norm, QkNorm::whole);
  EXPECT_TRUE(router(minimax).normalize);
  const ModelConfig hunyuan = fixture("hy_v3-v5");
  EXPECT_EQ(is_moe(hunyuan), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(router(hunyuan).scale, 2.826F);
}

TEST(ModelConfig, reads_ernie4_5_moe) {
  const ModelConfig config = fixture("ernie4_5_moe-v4");
  EXPECT_EQ(gqa(config).rope.form, RotaryForm::pairs);
  EXPECT_EQ(is_moe(config), (std::vector<bool>{false, true, false}));
  EXPECT_EQ(sizes(config, 1).common_width, 2 * 18);
  EXPECT_EQ(router(config, 1).scores, ExpertScores::softmax);
  EXPECT_EQ(router(config, 1).least_sum, 1e-12F);
  EXPECT_EQ(is_moe(fixture("ernie4_5_moe-v5-fused")), (std::vector<bool>{true, true, false}));
  EXPECT_FALSE(config.tie_word_embeddings);
  const std::string fields =
      R"("moe_k": 2, "moe_num_experts": 4, "moe_intermediate_size": 6, "intermediate_size": 6)";
  EXPECT_TRUE(parse(bare("ernie4_5_moe", fields)).tie_word_embeddings);
  EXPECT_EQ(parse_error(bare("ernie4_5_moe", fields + R"(, "use_bias": true)")),
            "config.json: use_bias: true is not supported: MLPs would have biases");
}

TEST(ModelConfig, refuses_groups_that_cannot_be) {
  const auto error = [](const std::string& fields) {
    const std::string sizes =
        R"("moe_intermediate_size": 6, "n_routed_experts": 12, "head_dim": 4, )";
    return parse_error(
        replaced(bare("glm4_moe", sizes + fields), R"(per_tok": 2)", R"(per_tok": 4)"));
  };
  EXPECT_EQ(error(R"("n_group": 5)"),
            "config.json: 12 experts cannot be in n_group 5 equal groups");
  EXPECT_EQ(error(R"("n_group": 3, "topk_group": 4)"),
            "config.json: topk_group 4 is more than n_group 3");
  EXPECT_EQ(error(R"("n_group": 12, "topk_group": 12)"),
            "config.json: n_group 12 leaves one expert a group; groups count by two of them");
  EXPECT_EQ(error(R"("n_group": 4)"),
            "config.json: num_experts_per_tok 4 cannot be chosen from topk_group 1 groups of 3 "
            "experts");
  EXPECT_EQ(error(R"("num_experts": 8)"),
            "config.json: num_experts is 8, but n_routed_experts is 12");
  EXPECT_EQ(error(R"("mlp_layer_types": ["moe", "dense"])"),
            "config.json: mlp_layer_types[0]: expected \"dense\" or \"sparse\", found \"moe\"");
}

TEST(ModelConfig, takes_the_defaults_of_each_family) {
  const std::string moe = R"("moe_intermediate_size": 6, "num_experts": 4)";
  const std::string plain = R"("intermediate_size": 6, "num_local_experts": 4)";
  const ModelConfig qwen3 = parse(bare("qwen3_moe", moe));
  EXPECT_EQ(gqa(qwen3).num_kv_heads, 4);
  EXPECT_EQ(qwen3.max_position_embeddings, 32768);
  EXPECT_DOUBLE_EQ(gqa(qwen3).rope.theta, 1e4);
  EXPECT_FALSE(router(qwen3).normalize || qwen3.tie_word_embeddings || gqa(qwen3).qkv_bias);
  EXPECT_TRUE(qwen3.eos_token_ids.empty());
  const ModelConfig qwen2 = parse(bare("qwen2_moe", moe));
  EXPECT_EQ(gqa(qwen2).num_kv_heads, 16);
  EXPECT_EQ(sizes(qwen2).common_width, 5632);
  EXPECT_TRUE(gqa(qwen2).qkv_bias);
  const ModelConfig olmoe = parse(bare("olmoe", R"("intermediate_size": 6, "num_experts": 4)"));
  EXPECT_EQ(gqa(olmoe).num_kv_heads, 16);
  EXPECT_DOUBLE_EQ(olmoe.rms_norm_eps, 1e-5);
  EXPECT_EQ(olmoe.eos_token_ids, Ints{50279});
  const ModelConfig mixtral = parse(bare("mixtral", plain));
  EXPECT_EQ(gqa(mixtral).num_kv_heads, 8);
  EXPECT_EQ(mixtral.max_position_embeddings, 131072);
  EXPECT_DOUBLE_EQ(gqa(mixtral).rope.theta, 1e6);
  EXPECT_EQ(mixtral.bos_token_id, 1);
  EXPECT_EQ(gqa(parse(bare("mixtral", plain + R"(, "num_key_value_heads": null)"))).num_kv_heads,
            16);
  const ModelConfig granite = parse(bare("granitemoe", plain));
  EXPECT_EQ(gqa(granite).num_kv_heads, 16);
  EXPECT_DOUBLE_EQ(gqa(granite).scale, 1.0);
  EXPECT_EQ(granite.eos_token_ids, Ints{2});
}

TEST(ModelConfig, generation_config_comes_before_config_and_default) {
  const std::string config = tiny_with(R"("eos_token_id": [5, 6], "bos_token_id": null)");
  EXPECT_EQ(parse(config).eos_token_ids, (Ints{5, 6}));
  EXPECT_FALSE(parse(config).bos_token_id.has_value());
  const ModelConfig both = parse(config, R"({"eos_token_id": 7, "bos_token_id": 3})");
  EXPECT_EQ(both.eos_token_ids, Ints{7});
  EXPECT_EQ(both.bos_token_id, 3);
  EXPECT_EQ(parse(config, R"({"eos_token_id": null})").eos_token_ids, (Ints{5, 6}));
  const std::string fields =
      R"("intermediate_size": 6, "num_local_experts": 4, "eos_token_id": null, "bos_token_id": -1)";
  EXPECT_TRUE(parse(bare("mixtral", fields)).eos_token_ids.empty());
  EXPECT_FALSE(parse(bare("mixtral", fields)).bos_token_id.has_value());
}

TEST(ModelConfig, reads_a_nested_text_config) {
  const ModelConfig config =
      parse(R"({"model_type": "some_vl", "text_config": )" + tiny_config() + "}");
  EXPECT_EQ(config.family, "qwen3_moe");
  EXPECT_EQ(config.num_experts, 2);
}

TEST(ModelConfig, names_unknown_families_and_what_is_supported) {
  EXPECT_EQ(edit_error("qwen3_moe", "llama"),
            "config.json: model_type: model family \"llama\" is not supported; these are: "
            "qwen3_moe, qwen2_moe, olmoe, mixtral, granitemoe, glm4_moe, dots1, minimax_m2, hy_v3, "
            "ernie4_5_moe, deepseek_v3, kimi_k2, deepseek_v2, glm4_moe_lite, gpt_oss, qwen3_next, "
            "qwen3_5_moe, qwen3_5_moe_text");
  EXPECT_EQ(edit_error(R"("model_type": "qwen3_moe", )", ""),
            "config.json: field \"model_type\" is missing");
  EXPECT_EQ(edit_error(R"("qwen3_moe")", "3"),
            "config.json: model_type: expected a string, found number 3");
}

TEST(ModelConfig, leaves_quantisation_to_the_checkpoint) {
  EXPECT_NO_THROW((void)parse(tiny_with(R"("quantization_config": {"quant_method": "fp8"})")));
}

TEST(ModelConfig, refuses_missing_and_mistyped_fields) {
  EXPECT_EQ(edit_error(R"("hidden_size": 4, )", ""),
            "config.json: field \"hidden_size\" is missing");
  EXPECT_EQ(edit_error(R"("hidden_size": 4)", R"("hidden_size": "4")"),
            "config.json: hidden_size: expected an integer, found string \"4\"");
  EXPECT_EQ(edit_error(R"("hidden_size": 4)", R"("hidden_size": 4.5)"),
            "config.json: hidden_size: expected an integer, found number 4.5");
  EXPECT_EQ(edit_error(R"("norm_topk_prob": true)", R"("norm_topk_prob": "yes")"),
            "config.json: norm_topk_prob: expected true or false, found string \"yes\"");
  EXPECT_EQ(edit_error(R"("num_experts": 2,)", ""),
            "config.json: field \"num_experts\" is missing, and \"num_local_experts\", "
            "\"n_routed_experts\" and \"moe_num_experts\" too");
  EXPECT_EQ(parse_error(tiny_with(R"("rms_norm_eps": 0)")),
            "config.json: rms_norm_eps: expected a number above 0, found 0");
  EXPECT_EQ(parse_error("[]"), "config.json: expected an object, found array []");
}

TEST(ModelConfig, refuses_sizes_out_of_bounds) {
  for (const std::string key : {"hidden_size", "moe_intermediate_size"}) {
    for (const std::string value : {"0", "-4", "1048577", "9223372036854775807"}) {
      const std::string old = key == "hidden_size" ? "4" : "3";
      EXPECT_EQ(edit_error("\"" + key + "\": " + old, "\"" + key + "\": " + value),
                "config.json: " + key + ": expected 1 to 1048576, found " + value);
    }
  }
  EXPECT_EQ(edit_error(R"("num_hidden_layers": 1)", R"("num_hidden_layers": 2000000000)"),
            "config.json: num_hidden_layers: expected 1 to 16384, found 2000000000");
  EXPECT_EQ(edit_error(R"("num_experts_per_tok": 1)", R"("num_experts_per_tok": 3)"),
            "config.json: num_experts_per_tok: expected 1 to 2, found 3");
  const std::string many = replaced(tiny_config(), R"("num_experts": 2)", R"("num_experts": 128)");
  EXPECT_EQ(
      parse_error(replaced(many, R"("num_experts_per_tok": 1)", R"("num_experts_per_tok": 65)")),
      "config.json: num_experts_per_tok: expected 1 to 64, found 65");
}

TEST(ModelConfig, refuses_more_experts_than_memory_has_room_for_their_names) {
  const std::string many =
      replaced(tiny_config(), R"("num_experts": 2)", R"("num_experts": 65536)");
  EXPECT_NO_THROW(
      (void)parse(replaced(many, R"("num_hidden_layers": 1)", R"("num_hidden_layers": 16)")));
  EXPECT_EQ(parse_error(replaced(many, R"("num_hidden_layers": 1)", R"("num_hidden_layers": 17)")),
            "config.json: 17 layers of num_experts 65536 are more than 1048576 experts in all");
}

TEST(ModelConfig, refuses_sizes_that_contradict_each_other) {
  EXPECT_EQ(edit_error(R"("num_attention_heads": 2, "num_key_value_heads": 1)",
                       R"("num_attention_heads": 3, "num_key_value_heads": 2)"),
            "config.json: num_attention_heads 3 is no multiple of num_key_value_heads 2");
  EXPECT_EQ(edit_error(R"("head_dim": 2)", R"("head_dim": 3)"),
            "config.json: head_dim (by default hidden_size 4 / num_attention_heads 2) is 3; rotary "
            "embedding needs an even number above 0");
  EXPECT_EQ(edit_error(R"("num_experts": 2)", R"("num_experts": 2, "num_local_experts": 3)"),
            "config.json: num_experts is 2, but num_local_experts is 3");
  const auto refuses = [](const std::string& field, const std::string& rest) {
    const std::string config =
        replaced(tiny_with("\"" + field + "\": " + rest), R"("head_dim": 2)", R"("head_dim": 8)");
    EXPECT_NE(parse_error(config).find(field), std::string::npos) << parse_error(config);
  };
  refuses("is_causal", "false");
  refuses("partial_rotary_factor", "0.5");
  refuses("sliding_window", R"(0, "use_sliding_window": true)");
  const std::string granite = R"("num_local_experts": 4, "intermediate_size": 32)";
  EXPECT_NO_THROW(
      (void)parse(bare("granitemoe", granite + R"(, "position_embedding_type": "rope")")));
  EXPECT_NE(parse_error(bare("granitemoe", granite + R"(, "position_embedding_type": "nope")"))
                .find("position_embedding_type"),
            std::string::npos);
  EXPECT_EQ(parse_error(tiny_with(R"("hidden_act": "gelu")")),
            "config.json: hidden_act: \"gelu\" is not supported, only \"silu\" is");
  EXPECT_EQ(parse_error(tiny_with(R"("decoder_sparse_step": 0)")),
            "config.json: decoder_sparse_step: expected 1 to 1099511627776, found 0");
  EXPECT_EQ(parse_error(tiny_with(R"("mlp_only_layers": {})")),
            "config.json: mlp_only_layers: expected an array");
  EXPECT_EQ(parse_error(tiny_with(R"("eos_token_id": [2, 4294967298])")),
            "config.json: eos_token_id[1]: 4294967298 is not from -9223372036854775808 to "
            "2147483647");
  EXPECT_NE(error_message([&] {
              (void)parse(tiny_with(R"("eos_token_id": "x")"), R"({"eos_token_id": 7})");
            }).find("config.json: eos_token_id: expected an integer"),
            std::string::npos);
  EXPECT_EQ(parse_error(tiny_with(R"("mlp_only_layers": ["x"])")),
            "config.json: mlp_only_layers[0]: expected an integer, found string \"x\"");
}

TEST(ModelConfig, refuses_layer_types_that_do_not_fit) {
  const std::string fields =
      R"("moe_intermediate_size": 6, "num_experts": 4, "layer_types": ["full_attention")";
  EXPECT_EQ(parse_error(bare("qwen2_moe", fields + "]")),
            "config.json: layer_types: expected 2 elements, one a layer, found 1");
  EXPECT_EQ(parse_error(bare("qwen2_moe", fields + ", \"linear_attention\"]")),
            "config.json: layer_types[1]: expected \"full_attention\" or \"sliding_attention\", "
            "found \"linear_attention\"");
}

TEST(ModelConfig, names_a_missing_file) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(error_message([&] { (void)read_model_config(directory.path()); }),
            directory.path_of("config.json") + ": no such file");
}

}  // namespace
}  // namespace moesaic
