#include "src/model/delta_kind.h"

#include <gtest/gtest.h>

#include "src/model/gqa_kind.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using test::error_message;
using test::replaced;

/// Qwen3.5-35B-A3B's, as it was released, but for its number of layers.
constexpr std::string_view kReleased =
    R"({"model_type": "qwen3_5_moe", "tie_word_embeddings": false,
  "image_token_id": 248056, "vision_config": {"model_type": "qwen3_5_moe", "hidden_size": 1152},
  "text_config": {"model_type": "qwen3_5_moe_text", "vocab_size": 248320, "hidden_size": 2048,
  "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 2, "head_dim": 256,
  "attention_bias": false, "attn_output_gate": true, "full_attention_interval": 4,
  "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
  "linear_num_value_heads": 32, "linear_value_head_dim": 128, "num_experts": 256,
  "num_experts_per_tok": 8, "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
  "max_position_embeddings": 262144, "rms_norm_eps": 1e-06, "hidden_act": "silu",
  "rope_parameters": {"rope_type": "default", "rope_theta": 10000000, "mrope_interleaved": true,
  "mrope_section": [11, 11, 10], "partial_rotary_factor": 0.25}}})";

ModelConfig released_config(const std::string& text) {
  return parse_model_config(Json::parse(text, "config.json"), std::nullopt);
}
std::string released_refusal(std::string_view from, std::string_view to) {
  return error_message([&] { (void)released_config(replaced(std::string(kReleased), from, to)); });
}
ModelConfig delta_model(const std::string& name) {
  return read_model_config(MOESAIC_TEST_DATA "/models/" + name);
}
const DeltaConfig& delta_of(const ModelConfig& config, std::size_t layer) {
  return dynamic_cast<const DeltaKind&>(*config.layers.at(layer).mixer).config();
}
const GqaConfig& attention_of(const ModelConfig& config, std::size_t layer) {
  return dynamic_cast<const GqaKind&>(*config.layers.at(layer).mixer).config();
}

TEST(DeltaKind, reads_a_released_config) {
  const ModelConfig config = released_config(std::string(kReleased));
  EXPECT_EQ(config.family, "qwen3_5_moe");
  EXPECT_EQ(config.norm_offset, 1);
  for (const std::size_t layer : {0U, 1U, 2U, 4U, 5U, 6U}) {
    EXPECT_EQ(delta_of(config, layer).value_heads, 32) << layer;
  }
  EXPECT_EQ(delta_of(config, 0).form, DeltaForm::separate);
  EXPECT_EQ(delta_of(config, 0).projected_width(), 8192 + 4096);
  EXPECT_EQ(delta_of(config, 0).taps, 4);
  EXPECT_TRUE(attention_of(config, 3).gated);
  EXPECT_EQ(attention_of(config, 7).rope.rotary_dim, 64);
  EXPECT_EQ(attention_of(config, 7).projected_width(), 2 * 4096 + 2 * 512);
  const auto& experts = dynamic_cast<const MoeKind&>(*config.layers[0].feed_forward).config();
  EXPECT_TRUE(experts.router.normalize);
  EXPECT_TRUE(experts.gates_shared);
  // A page has the keys and values of two layers; a state stands beside it.
  EXPECT_EQ(KvPool::sequence_bytes(config, Precision::bf16, 64),
            6 * 4 * (3 * 8192 + 32 * 128 * 128) + 2 * 64 * 2 * 2 * 512);
  EXPECT_EQ(released_config(replaced(std::string(kReleased), R"("full_attention_interval": 4)",
                                     R"("full_attention_interval": 2)"))
                .layers[1]
                .mixer->text()
                .label,
            "heads");
}

TEST(DeltaKind, reads_qwen3_next) {
  const ModelConfig config = delta_model("qwen3_next-v4");
  EXPECT_EQ(delta_of(config, 0).form, DeltaForm::by_key_head);
  EXPECT_EQ(delta_of(config, 0).group(), 2);
  EXPECT_EQ(config.layers[1].feed_forward->sizes().experts, 0);
  EXPECT_TRUE(
      dynamic_cast<const MoeKind&>(*config.layers[0].feed_forward).config().router.normalize);
  const ModelConfig other = delta_model("qwen3_next-v5-fused");
  EXPECT_TRUE(attention_of(other, 0).qkv_bias);
  EXPECT_EQ(delta_of(other, 1).taps, 2);
}

TEST(DeltaKind, refuses_what_it_cannot_compute) {
  EXPECT_EQ(released_refusal(R"("linear_num_value_heads": 32)", R"("linear_num_value_heads": 24)"),
            "config.json: text_config: linear_num_value_heads 24 is no multiple of "
            "linear_num_key_heads 16");
  EXPECT_EQ(released_refusal(R"("linear_conv_kernel_dim": 4)", R"("linear_conv_kernel_dim": 0)"),
            "config.json: text_config.linear_conv_kernel_dim: expected 1 to 1024, found 0");
  EXPECT_EQ(released_refusal(R"("full_attention_interval": 4)", R"("layer_types": ["mamba"])"),
            "config.json: text_config.layer_types: expected 8 elements, one a layer, found 1");
}

/// The columns of a projected row that each head has, in the order of the model.
std::vector<std::int64_t> head_columns(const DeltaConfig& config) {
  std::vector<std::int64_t> all;
  const auto add = [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) all.push_back(first + i);
  };
  for (std::int64_t h = 0; h < config.key_heads; ++h) add(config.query_column(h), config.key_dim);
  for (std::int64_t h = 0; h < config.key_heads; ++h) add(config.key_column(h), config.key_dim);
  for (std::int64_t h = 0; h < config.value_heads; ++h) {
    add(config.value_column(h), config.value_dim);
  }
  for (std::int64_t h = 0; h < config.value_heads; ++h) {
    add(config.gate_column(h), config.value_dim);
  }
  return all;
}

TEST(DeltaKind, finds_heads_in_projected_rows) {
  DeltaConfig config{
      .hidden = 8, .key_heads = 2, .value_heads = 4, .key_dim = 1, .value_dim = 2, .taps = 4};
  // Of a key head: query, key, two values of two, two gates of two.
  EXPECT_EQ(head_columns(config), (std::vector<std::int64_t>{0,  10, 1, 11, 2, 3, 4,  5,  12, 13,
                                                             14, 15, 6, 7,  8, 9, 16, 17, 18, 19}));
  EXPECT_EQ(config.rate_column(3), 5);
  EXPECT_EQ(config.step_distance(), 2);
  config.form = DeltaForm::separate;
  const std::vector<std::int64_t> in_order = head_columns(config);
  for (std::size_t i = 0; i < in_order.size(); ++i) {
    EXPECT_EQ(in_order[i], static_cast<std::int64_t>(i));
  }
  EXPECT_EQ(config.rate_column(3), 3);
  EXPECT_EQ(config.step_distance(), 4);
}

TEST(DeltaKind, knows_what_a_token_takes) {
  const ModelConfig config = released_config(std::string(kReleased));
  const MixerKind& kind = *config.layers[0].mixer;
  EXPECT_EQ(kind.cache(Precision::bf16).page_bytes, 0);
  EXPECT_EQ(kind.cache(Precision::bf16).state_bytes, 4 * (3 * 8192 + 32 * 128 * 128));
  const MixerWork work = kind.work(Precision::bf16, 10);
  EXPECT_EQ(work.flops, 10.0 * (7 * 128 * 128 * 32 + 2 * 4 * 8192)) << "grows with the text alone";
  EXPECT_EQ(work.cache_bytes, 10.0 * 4 * (3 * 8192 + 32 * 128 * 128));
  EXPECT_EQ(kind.kept_bytes(), 4 * (12288 + 64 + 4096));
  const auto scratch = [&](std::int64_t positions, int threads) {
    return kind.backward_pass_bytes({.tokens = 1000, .positions = positions, .threads = threads});
  };
  EXPECT_EQ(scratch(64, 3), 3 * scratch(64, 1));
  EXPECT_EQ(scratch(128, 1) - scratch(64, 1), 4 * (128 * 128 + 64 * 128 + 2 * 64))
      << "a state, and the errors and units of a head's rows";
  EXPECT_EQ(config.layers[3].mixer->text().sizes, "16 of 256, 2 for keys and values; gated");
}

TEST(DeltaKind, finds_its_tensors_and_what_takes_adapters) {
  const ModelConfig config = delta_model("qwen3_5_moe-v5");
  const ModelNames names = find_model_names(config, [](std::string_view name) {
    return name.starts_with("model.language_model.embed_tokens");
  });
  const std::string layer = "model.language_model.layers.2.";
  EXPECT_EQ(names.layers[2].input_norm.offset, 1);
  EXPECT_EQ(names.final_norm.offset, 1);
  const std::vector<NamedWeight>& weights = names.layers[2].mixer;
  EXPECT_EQ(weights[DeltaWeight::kNorm].parts[0].offset, 0) << "that of results is whole";
  EXPECT_EQ(weights[DeltaWeight::kIn].parts[1].tensor, layer + "linear_attn.in_proj_z.weight");
  EXPECT_EQ(weights[DeltaWeight::kRates].form, WeightForm::f32_matrix);
  EXPECT_EQ(weights[DeltaWeight::kConvolution].parts[0].shape,
            (std::vector<std::int64_t>{144, 1, 4}));
  std::vector<std::string> modules;
  for (const NamedWeight& weight : weights) {
    for (const AdapterSite& site : weight.sites) modules.push_back(site.module);
  }
  const std::string module = "model.layers.2.linear_attn.";
  EXPECT_EQ(modules, (std::vector<std::string>{module + "in_proj_qkv", module + "in_proj_z",
                                               module + "in_proj_b", module + "in_proj_a",
                                               module + "out_proj"}));
  EXPECT_EQ(weights[DeltaWeight::kIn].sites[1].first_row, 144);
  EXPECT_EQ(weights[DeltaWeight::kIn].sites[1].stacked_rows, 252);
  EXPECT_EQ(names.layers[1].mixer[kQNorm].parts[0].offset, 1);
  EXPECT_EQ(names.layers[1].mixer[kQkv].sites[0].out, 128) << "queries and gates";
  EXPECT_EQ(names.layers[1].mixer[kQkv].sites[1].first_row, 128);
}

}  // namespace
}  // namespace moesaic
