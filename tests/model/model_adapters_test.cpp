#include "src/model/model_adapters.h"

#include <gtest/gtest.h>

#include <map>

#include "src/lora/adapter_targets.h"

namespace moesaic {
namespace {

struct Sites {
  explicit Sites(const std::string& model) {
    const std::string directory = std::string(MOESAIC_TEST_DATA) + "/models/" + model;
    config = read_model_config(directory);
    files = ModelFiles::open(directory);
    names = files.names(config);
    all = adapter_sites(names);
    for (const AdapterSite& site : all) by_module.emplace(site.module, &site);
  }

  ModelFiles files;
  ModelConfig config;
  ModelNames names;
  std::vector<AdapterSite> all;
  std::map<std::string, const AdapterSite*> by_module;
};

TEST(ModelAdapters, EveryModuleHasAName) {
  for (const std::string model :
       {"qwen3_moe-v5-fused", "qwen2_moe-v4", "olmoe-v4", "mixtral-v5-fused", "granitemoe-v4"}) {
    const Sites sites(model);
    std::size_t expected = 4 * sites.config.layers.size();
    for (const LayerConfig& layer : sites.config.layers) {
      const FeedForwardSizes sizes = layer.feed_forward->sizes();
      expected += 3 * static_cast<std::size_t>(sizes.experts + (sizes.common_width > 0 ? 1 : 0));
    }
    EXPECT_EQ(sites.all.size(), expected) << model;
    EXPECT_EQ(sites.by_module.size(), expected) << model;
  }
}

TEST(ModelAdapters, NamesAreThoseOfTransformers4WhateverTheCheckpointHas) {
  const Sites mixtral("mixtral-v5-fused");
  const AdapterSite& up = *mixtral.by_module.at("model.layers.1.block_sparse_moe.experts.2.w3");
  EXPECT_EQ(up.part, MlpPart::up);
  EXPECT_EQ(up.expert, 2);
  EXPECT_EQ(up.layer, 1);
  EXPECT_EQ(up.fused4, "");
  EXPECT_EQ(up.fused5, "model.layers.1.mlp.experts");
  const Sites granite("granitemoe-v4");
  const AdapterSite& down =
      *granite.by_module.at("model.layers.0.block_sparse_moe.experts.0.down_proj");
  EXPECT_EQ(down.fused4, "model.layers.0.block_sparse_moe.output_linear");
  EXPECT_EQ(down.fused5, "model.layers.0.block_sparse_moe.experts");
  EXPECT_EQ(down.out, granite.config.hidden_size);
}

TEST(ModelAdapters, KindsAndRowsAreToldApart) {
  const Sites qwen("qwen2_moe-v4");
  const AdapterSite& v = *qwen.by_module.at("model.layers.0.self_attn.v_proj");
  const AdapterSite& k = *qwen.by_module.at("model.layers.0.self_attn.k_proj");
  EXPECT_EQ(k.first_row, qwen.by_module.at("model.layers.0.self_attn.q_proj")->out);
  EXPECT_EQ(v.first_row, k.first_row + k.out);
  std::map<AdapterKind, int> kinds;
  for (const AdapterSite& site : qwen.all) ++kinds[site.kind];
  EXPECT_EQ(kinds.size(), 4U);
  EXPECT_EQ(kinds[AdapterKind::dense], 3);
}

TEST(ModelAdapters, WeightsGetTheAdaptersOfTheirRowsOnTheRankThatHasThem) {
  const Sites sites("qwen2_moe-v4");
  std::vector<AdapterSpec> specs;
  for (const AdapterSite& site : choose_sites(sites.all, R"(.*\.(q|v|down)_proj)")) {
    specs.push_back({.site = site, .rank = 2, .alpha = 2, .scale = 1});
  }
  std::vector<int> owners(static_cast<std::size_t>(sites.config.num_experts), 0);
  owners[1] = owners[2] = 1;
  const HeldExperts experts(ExpertPlacement(owners, 2), 1);
  const AdapterSet set(specs_of_rank(specs, experts), Format::bf16);
  ModelWeights weights;
  const WeightPlan plan =
      plan_weights(sites.files, sites.config,
                   {.layouts = LayoutChoice(Precision::bf16, {}), .experts = experts}, weights);
  attach_adapters(set, sites.names, experts, weights);
  std::int64_t attached = 0;
  for (std::size_t l = 0; l < weights.layers.size(); ++l) {
    const std::string layer = "model.layers." + std::to_string(l) + ".";
    const auto module = [&](const Adapter& adapter) { return set.spec(adapter.index).site.module; };
    ASSERT_NE(weights.layers[l].mixer.front().adapter, nullptr);
    const std::span<const Adapter> qkv = weights.layers[l].mixer.front().adapter->parts;
    ASSERT_EQ(qkv.size(), 2U);
    EXPECT_EQ(module(qkv[0]), layer + "self_attn.q_proj");
    EXPECT_EQ(module(qkv[1]), layer + "self_attn.v_proj");
    EXPECT_EQ(qkv[1].first_row, sites.by_module.at(layer + "self_attn.v_proj")->first_row);
    const WeightSet& mixer = weights.layers[l].mixer;
    const WeightSet& mlp = weights.layers[l].feed_forward;
    for (const WeightSet* const part : {&mixer, &mlp}) {
      for (const Weight& weight : *part) {
        if (weight.adapter == nullptr) continue;
        for_each_part(*weight.adapter, [&](const Adapter&, std::int64_t) { ++attached; });
      }
    }
    if (sites.config.layers[l].feed_forward->sizes().experts == 0) continue;
    EXPECT_EQ(mlp[mlp.size() - 2].adapter, nullptr);
    ASSERT_NE(mlp.back().adapter, nullptr);
    EXPECT_EQ(module(*mlp.back().adapter), layer + "mlp.experts.2.down_proj");
  }
  EXPECT_EQ(attached, set.size());
}

}  // namespace
}  // namespace moesaic
