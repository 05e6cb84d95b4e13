#include "src/model/model_names.h"

#include <gtest/gtest.h>

#include <set>

#include "src/model/expert_names.h"
#include "src/model/model_config.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic {
namespace {

using Shape = std::vector<std::int64_t>;

ModelConfig config_of(const std::string& family, const std::string& fields = "") {
  const std::string config = test::replaced(test::tiny_config(), "qwen3_moe", family);
  return parse_model_config(Json::parse(test::replaced(config, "{", "{" + fields), "config.json"),
                            std::nullopt);
}

ModelNames names_among(const ModelConfig& config, const std::set<std::string, std::less<>>& there) {
  return find_model_names(config, [&](std::string_view name) { return there.contains(name); });
}

/// The weight of this name; without parts if there is none.
NamedWeight weight_of(const std::vector<NamedWeight>& weights, const std::string& name) {
  for (const NamedWeight& weight : weights) {
    if (weight.name == name && !weight.parts.empty()) return weight;
  }
  return {};
}

TensorSlice slice_of(const std::vector<NamedWeight>& weights, const std::string& name,
                     std::size_t part = 0) {
  return weight_of(weights, name).parts.at(part);
}

/// An expert, or another MLP, of the first layer.
MlpNames mlp_of(const ModelNames& names, const std::string& name) {
  const std::vector<NamedWeight>& weights = names.layers.at(0).feed_forward;
  EXPECT_TRUE(weight_of(weights, name + ".up").joins_previous);
  return {slice_of(weights, name + ".gate"), slice_of(weights, name + ".up"),
          slice_of(weights, name + ".down")};
}

void expect_slice(const TensorSlice& slice, const std::string& tensor, const Shape& shape,
                  std::int64_t first_row, std::int64_t rows, std::int64_t cols) {
  EXPECT_EQ(slice.tensor, tensor);
  EXPECT_EQ(slice.shape, shape) << tensor;
  EXPECT_EQ(slice.first_row, first_row) << tensor;
  EXPECT_EQ(slice.rows, rows) << tensor;
  EXPECT_EQ(slice.cols, cols) << tensor;
}

// The tiny model has hidden 4, experts of width 3, 2 experts.
void expect_fused(const MlpNames& second, const std::string& gate_up, const std::string& down) {
  expect_slice(second.gate, gate_up, {2, 6, 4}, 6, 3, 4);
  expect_slice(second.up, gate_up, {2, 6, 4}, 9, 3, 4);
  expect_slice(second.down, down, {2, 4, 3}, 4, 4, 3);
}

TEST(TensorNames, finds_single_experts_under_any_name) {
  const ModelConfig config = config_of("qwen3_moe");
  const struct {
    std::string block, gate, up, down;
  } patterns[] = {{"mlp", "gate_proj", "up_proj", "down_proj"},
                  {"block_sparse_moe", "w1", "w3", "w2"},
                  {"block_sparse_moe", "gate_proj", "up_proj", "down_proj"},
                  {"mlp", "w1", "w3", "w2"}};
  for (const auto& pattern : patterns) {
    const std::string block = "model.layers.0." + pattern.block + ".experts.";
    // Plain, GPTQ or AWQ, compressed-tensors.
    for (const std::string end : {"weight", "qweight", "weight_packed"}) {
      const ModelNames names = names_among(
          config, {"model.embed_tokens.weight", block + "0." + pattern.gate + "." + end});
      const MlpNames second = mlp_of(names, "experts.1");
      expect_slice(second.gate, block + "1." + pattern.gate + ".weight", {3, 4}, 0, 3, 4);
      expect_slice(second.up, block + "1." + pattern.up + ".weight", {3, 4}, 0, 3, 4);
      expect_slice(second.down, block + "1." + pattern.down + ".weight", {4, 3}, 0, 4, 3);
    }
  }
}

TEST(TensorNames, finds_experts_whose_number_comes_last) {
  const std::string block = "model.layers.0.mlp.experts.";
  const ModelNames names = names_among(config_of("qwen3_moe"), {block + "gate_proj.0.weight"});
  EXPECT_EQ(mlp_of(names, "experts.1").up.tensor, block + "up_proj.1.weight");
}

TEST(TensorNames, rows_of_gate_and_up_take_turns_in_blocks) {
  const std::string block = "model.layers.0.mlp.experts.";
  const ModelNames names = names_among(config_of("qwen3_moe"), {block + "gate_up_proj_blocks"});
  const MlpNames second = mlp_of(names, "experts.1");
  expect_slice(second.gate, block + "gate_up_proj", {2, 6, 4}, 6, 3, 4);
  expect_slice(second.up, block + "gate_up_proj", {2, 6, 4}, 7, 3, 4);
  EXPECT_EQ(second.gate.row_step, 2);
  EXPECT_EQ(second.up.row_step, 2);
  EXPECT_EQ(second.down.row_step, 1);
}

void expect_transposed(const TensorSlice& slice, std::int64_t first_column, std::int64_t step) {
  EXPECT_TRUE(slice.is_transposed) << slice.tensor;
  EXPECT_EQ(slice.first_column, first_column) << slice.tensor;
  EXPECT_EQ(slice.row_step, step) << slice.tensor;
}

/// Its experts are as wide as the tiny model's.
ModelConfig gpt_oss_config() {
  std::string config = test::replaced(test::tiny_config(), "qwen3_moe", "gpt_oss");
  config = test::replaced(config, "\"moe_intermediate_size\"", "\"unused\"");
  config = test::replaced(config, "\"intermediate_size\": 6", "\"intermediate_size\": 3");
  return parse_model_config(Json::parse(config, "config.json"), std::nullopt);
}

TEST(TensorNames, plain_experts_of_gpt_oss_lie_across) {
  const std::string block = "model.layers.0.mlp.";
  const std::string gate_up = block + "experts.gate_up_proj";
  const std::string down = block + "experts.down_proj";
  const ModelNames names = names_among(gpt_oss_config(), {});
  const std::vector<NamedWeight>& weights = names.layers[0].feed_forward;
  const MlpNames second = mlp_of(names, "experts.1");
  expect_slice(second.gate, gate_up, {2, 4, 6}, 4, 3, 4);
  expect_slice(second.up, gate_up, {2, 4, 6}, 4, 3, 4);
  expect_slice(second.down, down, {2, 3, 4}, 3, 4, 3);
  expect_transposed(second.gate, 0, 2);
  expect_transposed(second.up, 1, 2);
  expect_transposed(second.down, 0, 1);
  expect_slice(slice_of(weights, "experts.1.gate_bias"), gate_up + "_bias", {2, 6}, 6, 3, 1);
  expect_slice(slice_of(weights, "experts.1.up_bias"), gate_up + "_bias", {2, 6}, 7, 3, 1);
  EXPECT_EQ(slice_of(weights, "experts.1.up_bias").row_step, 2);
  expect_slice(slice_of(weights, "experts.1.down_bias"), down + "_bias", {2, 4}, 4, 4, 1);
  EXPECT_EQ(slice_of(weights, "experts.1.down_bias").row_step, 1);
  expect_slice(slice_of(weights, "router"), block + "router.weight", {2, 4}, 0, 2, 4);
  expect_slice(slice_of(weights, "router_bias"), block + "router.bias", {2}, 0, 1, 2);
  const AdapterSite site = weight_of(weights, "experts.1.up").sites.at(0);
  EXPECT_EQ(site.module, block + "experts.1.up_proj");
  EXPECT_EQ(site.fused4, "");
  EXPECT_EQ(site.fused5, block + "experts");
  EXPECT_TRUE(site.takes_turns && site.lies_across);
}

TEST(TensorNames, blocks_and_single_experts_of_gpt_oss_do_not_lie_across) {
  const std::string block = "model.layers.0.mlp.experts.";
  const ModelConfig config = gpt_oss_config();
  const ModelNames blocks = names_among(config, {block + "gate_up_proj_blocks"});
  expect_slice(mlp_of(blocks, "experts.1").up, block + "gate_up_proj", {2, 6, 4}, 7, 3, 4);
  EXPECT_FALSE(mlp_of(blocks, "experts.1").up.is_transposed);
  EXPECT_FALSE(mlp_of(blocks, "experts.1").down.is_transposed);
  EXPECT_TRUE(mlp_of(blocks, "experts.1").down.is_across_if_plain);
  expect_slice(slice_of(blocks.layers[0].feed_forward, "experts.0.up_bias"),
               block + "gate_up_proj_bias", {2, 6}, 1, 3, 1);
  const ModelNames single = names_among(config, {block + "0.gate_proj.weight"});
  expect_slice(slice_of(single.layers[0].feed_forward, "experts.1.down_bias"),
               block + "1.down_proj.bias", {4}, 0, 1, 4);
}

TEST(TensorNames, finds_fused_experts) {
  const ModelConfig config = config_of("qwen3_moe");
  for (const std::string block : {"mlp.experts.", "block_sparse_moe.experts."}) {
    const std::string prefix = "model.layers.0." + block;
    const ModelNames names = names_among(config, {prefix + "gate_up_proj", prefix + "down_proj"});
    EXPECT_TRUE(weight_of(names.layers[0].feed_forward, "experts.2.gate").parts.empty());
    expect_fused(mlp_of(names, "experts.1"), prefix + "gate_up_proj", prefix + "down_proj");
  }
  const std::string moe = "model.layers.0.block_sparse_moe.";
  const ModelNames granite = names_among(config, {moe + "input_linear.weight"});
  expect_fused(mlp_of(granite, "experts.1"), moe + "input_linear.weight",
               moe + "output_linear.weight");
}

TEST(TensorNames, finds_the_router) {
  const ModelConfig config = config_of("mixtral");
  for (const std::string name :
       {"mlp.gate.weight", "block_sparse_moe.gate.weight", "block_sparse_moe.router.layer.weight",
        "mlp.router.weight", "block_sparse_moe.router.weight"}) {
    const std::string tensor = "model.layers.0." + name;
    expect_slice(slice_of(names_among(config, {tensor}).layers[0].feed_forward, "router"), tensor,
                 {2, 4}, 0, 2, 4);
  }
}

TEST(TensorNames, gives_the_usual_names_where_none_is_there) {
  const auto first_up = [](const std::string& family) {
    return mlp_of(names_among(config_of(family), {}), "experts.0").up.tensor;
  };
  EXPECT_EQ(first_up("olmoe"), "model.layers.0.mlp.experts.0.up_proj.weight");
  EXPECT_EQ(first_up("mixtral"), "model.layers.0.block_sparse_moe.experts.0.w3.weight");
  EXPECT_EQ(first_up("granitemoe"), "model.layers.0.block_sparse_moe.input_linear.weight");
  EXPECT_EQ(
      slice_of(names_among(config_of("granitemoe"), {}).layers[0].feed_forward, "router").tensor,
      "model.layers.0.block_sparse_moe.router.layer.weight");
}

TEST(TensorNames, finds_the_prefix) {
  const ModelConfig config = config_of("qwen3_moe");
  for (const std::string root : {"model.", "model.language_model.", "language_model.model.", ""}) {
    const ModelNames names = names_among(config, {root + "embed_tokens.weight"});
    EXPECT_EQ(names.embedding.tensor, root + "embed_tokens.weight");
    EXPECT_EQ(names.final_norm.tensor, root + "norm.weight");
    EXPECT_EQ(slice_of(names.layers[0].mixer, "qkv").tensor,
              root + "layers.0.self_attn.q_proj.weight");
    EXPECT_EQ(names.lm_head.tensor, "lm_head.weight");
  }
  EXPECT_EQ(names_among(config, {"language_model.lm_head.weight"}).lm_head.tensor,
            "language_model.lm_head.weight");
}

TEST(TensorNames, a_tied_head_is_the_embedding) {
  ModelConfig config = config_of("qwen3_moe");
  config.tie_word_embeddings = true;
  const ModelNames names = names_among(config, {"lm_head.weight", "model.embed_tokens.weight"});
  EXPECT_EQ(names.lm_head.tensor, "model.embed_tokens.weight");
  expect_slice(names.lm_head, "model.embed_tokens.weight", {8, 4}, 0, 8, 4);
}

TEST(TensorNames, follows_the_config_in_attention_and_layers_without_experts) {
  const ModelConfig config = config_of("qwen3_moe", R"("mlp_only_layers": [0],)");
  const LayerNames layer = names_among(config, {}).layers[0];
  const TensorSlice v = slice_of(layer.mixer, "qkv", 2);
  expect_slice(v, "model.layers.0.self_attn.v_proj.weight", {2, 4}, 0, 2, 4);
  EXPECT_TRUE(weight_of(layer.mixer, "qkv_bias").parts.empty());
  expect_slice(slice_of(layer.mixer, "q_norm"), "model.layers.0.self_attn.q_norm.weight", {2}, 0, 1,
               2);
  EXPECT_TRUE(weight_of(layer.feed_forward, "router").parts.empty());
  EXPECT_EQ(layer.feed_forward.size(), 3U);
  expect_slice(slice_of(layer.feed_forward, "dense.down"), "model.layers.0.mlp.down_proj.weight",
               {4, 6}, 0, 4, 6);
}

TEST(TensorNames, norms_over_all_heads_and_biases) {
  const ModelConfig config = config_of("olmoe", R"("attention_bias": true,)");
  const LayerNames layer = names_among(config, {}).layers[0];
  expect_slice(slice_of(layer.mixer, "qkv_bias", 1), "model.layers.0.self_attn.k_proj.bias", {2}, 0,
               1, 2);
  expect_slice(slice_of(layer.mixer, "o_bias"), "model.layers.0.self_attn.o_proj.bias", {4}, 0, 1,
               4);
  expect_slice(slice_of(layer.mixer, "q_norm"), "model.layers.0.self_attn.q_norm.weight", {4}, 0, 1,
               4);
  expect_slice(slice_of(layer.mixer, "k_norm"), "model.layers.0.self_attn.k_norm.weight", {2}, 0, 1,
               2);
}

TEST(TensorNames, finds_the_shared_expert) {
  const ModelConfig config = config_of("qwen2_moe", R"("shared_expert_intermediate_size": 5,)");
  const ModelNames names = names_among(config, {});
  expect_slice(mlp_of(names, "shared").up, "model.layers.0.mlp.shared_expert.up_proj.weight",
               {5, 4}, 0, 5, 4);
  expect_slice(slice_of(names.layers[0].feed_forward, "shared_gate"),
               "model.layers.0.mlp.shared_expert_gate.weight", {1, 4}, 0, 1, 4);
}

TEST(TensorNames, finds_what_families_with_sigmoid_routers_have) {
  const std::string layer = "model.layers.0.mlp.";
  const ModelNames glm = names_among(
      config_of(
          "glm4_moe",
          R"("first_k_dense_replace": 0, "n_shared_experts": 2, "partial_rotary_factor": 1,)"),
      {});
  const std::vector<NamedWeight>& weights = glm.layers[0].feed_forward;
  expect_slice(mlp_of(glm, "shared").down, layer + "shared_experts.down_proj.weight", {4, 6}, 0, 4,
               6);
  EXPECT_EQ(weight_of(weights, "shared.down").sites.at(0).module,
            "model.layers.0.mlp.shared_experts.down_proj");
  EXPECT_TRUE(weight_of(weights, "shared_gate").parts.empty());
  expect_slice(slice_of(weights, "choice_bias"), layer + "gate.e_score_correction_bias", {2}, 0, 1,
               2);
  const ModelConfig hunyuan = config_of("hy_v3", R"("mlp_layer_types": ["sparse"],)");
  const ModelNames released = names_among(hunyuan, {});
  EXPECT_EQ(mlp_of(released, "shared").up.tensor, layer + "shared_mlp.up_proj.weight");
  EXPECT_EQ(slice_of(released.layers[0].feed_forward, "router").tensor,
            layer + "router.gate.weight");
  EXPECT_EQ(slice_of(released.layers[0].feed_forward, "choice_bias").tensor, layer + "expert_bias");
  const ModelNames saved = names_among(
      hunyuan, {layer + "e_score_correction_bias", layer + "shared_experts.gate_proj.weight"});
  EXPECT_EQ(mlp_of(saved, "shared").up.tensor, layer + "shared_experts.up_proj.weight");
  EXPECT_EQ(slice_of(saved.layers[0].feed_forward, "choice_bias").tensor,
            layer + "e_score_correction_bias");
}

}  // namespace
}  // namespace moesaic
