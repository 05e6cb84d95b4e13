#include "src/lora/adapter_targets.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "src/lora/peft_config.h"

namespace moesaic {
namespace {

const std::vector<AdapterSite> kSites = {
    {.kind = AdapterKind::attention, .module = "model.layers.0.self_attn.q_proj"},
    {.kind = AdapterKind::attention, .module = "model.layers.0.self_attn.v_proj"},
    {.kind = AdapterKind::experts, .module = "model.layers.0.mlp.experts.0.gate_proj"},
    {.kind = AdapterKind::experts, .module = "model.layers.0.mlp.experts.10.gate_proj"},
    {.kind = AdapterKind::dense, .module = "model.layers.1.mlp.gate_proj"},
};

std::size_t chosen(const std::string& targets) {
  return choose_sites(kSites, targets).size();
}

std::string refusal(const std::string& targets) {
  try {
    (void)choose_sites(kSites, targets);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(AdapterTargets, KindsChooseAllOfThem) {
  EXPECT_EQ(chosen("attention"), 2U);
  EXPECT_EQ(chosen("experts,dense"), 3U);
  EXPECT_EQ(chosen("attention,experts,shared,dense"), kSites.size());
  EXPECT_EQ(chosen(" experts, dense"), 3U) << "blanks do not count";
}

TEST(AdapterTargets, ExpressionsMatchWholeNames) {
  EXPECT_EQ(chosen(R"(.*\.(q|v)_proj)"), 2U);
  EXPECT_EQ(chosen(R"(.*gate_proj)"), 3U);
  EXPECT_EQ(chosen(R"(.*\.experts\.\d\.gate_proj)"), 1U);
  EXPECT_EQ(choose_sites(kSites, R"(.*q_proj|.*\.10\..*)")[1].module, kSites[3].module);
}

TEST(AdapterTargets, WhatMatchesNothingIsRefused) {
  EXPECT_NE(refusal("attention,shared").find("\"shared\""), std::string::npos);
  EXPECT_NE(refusal("q_proj").find("model.layers.0.self_attn.q_proj"), std::string::npos);
  EXPECT_NE(refusal("q_proj").find(R"('.*\.(q_proj)')"), std::string::npos) << refusal("q_proj");
  EXPECT_NE(refusal("q_proj,gate_proj").find(R"('.*\.(q_proj|gate_proj)')"), std::string::npos)
      << refusal("q_proj,gate_proj");
  EXPECT_EQ(refusal("q_proj, gate_proj").substr(refusal("q_proj, gate_proj").find(';')),
            refusal("q_proj,gate_proj").substr(refusal("q_proj,gate_proj").find(';')));
  EXPECT_EQ(chosen(R"(.*\.(q_proj|gate_proj))"), 4U) << "what the message says is true";
  EXPECT_EQ(refusal("q_proj,lm_head").find("'.*"), std::string::npos);
  EXPECT_NE(refusal("attention,experst").find("attention, experts, shared, dense"),
            std::string::npos);
  EXPECT_NE(refusal("(q_proj").find("regular expression"), std::string::npos);
  EXPECT_FALSE(refusal("").empty());
}

TEST(AdapterTargets, ARefusalNamesTheOptionAndAModuleOfEachSort) {
  const std::string too_long = R"((.*.*)*x)";  // to match: PCRE2 gives up
  for (const std::string targets : {"shared", "(q_proj", "mlp", too_long.c_str(), ""}) {
    EXPECT_TRUE(refusal(targets).starts_with("--lora-targets")) << refusal(targets);
  }
  EXPECT_NE(refusal("mlp").find("such as model.layers.0.self_attn.q_proj, "
                                "model.layers.0.self_attn.v_proj, "
                                "model.layers.0.mlp.experts.0.gate_proj, "
                                "model.layers.1.mlp.gate_proj"),
            std::string::npos)
      << refusal("mlp");
}

TEST(AdapterTargets, AListWithAnotherWordIsRefusedByThatWord) {
  EXPECT_TRUE(
      refusal("attention,,experts")
          .starts_with("--lora-targets \"attention,,experts\": word 2 of the list is empty"))
      << refusal("attention,,experts");
  EXPECT_NE(refusal("attention,").find("word 2 of the list is empty"), std::string::npos);
  const std::string mixed = refusal("attention, q_proj");
  EXPECT_NE(mixed.find(": \"q_proj\" is no kind (attention, experts, shared, dense)"),
            std::string::npos)
      << mixed;
  EXPECT_NE(mixed.find(R"(; '.*\.(q_proj)' are all modules)"), std::string::npos) << mixed;
  EXPECT_NE(refusal("experts,(q_proj").find(": \"(q_proj\" is no kind"), std::string::npos);
}

TEST(AdapterTargets, NamesOfFilesAndListsOfJsonAreToldWhatStandsThere) {
  for (const std::string path : {"OUT/adapter_config.json", "adapter_config.json", "OUT/"}) {
    EXPECT_TRUE(refusal(path).starts_with("--lora-targets \"" + path + "\": the name of a file"))
        << refusal(path);
    EXPECT_NE(refusal(path).find("--lora DIR"), std::string::npos);
  }
  EXPECT_EQ(chosen(R"(.*(/|\.)q_proj)"), 1U) << "no name of a file";
  const std::string json = refusal(R"(["q_proj", "gate_proj"])");
  EXPECT_NE(json.find(R"('.*\.(q_proj|gate_proj)')"), std::string::npos) << json;
}

TEST(AdapterTargets, KindsHaveOneSpelling) {
  EXPECT_EQ(canonical_targets(" experts ,attention"), "attention,experts");
  EXPECT_EQ(canonical_targets("experts,experts"), "experts");
  for (const std::string other : {R"(.*\.(q|v)_proj)", "attention,,experts", ""}) {
    EXPECT_EQ(canonical_targets(other), other);
  }
}

/// Adapters of the first `count` of two experts of a layer.
void add_experts(std::vector<AdapterSpec>& adapters, const std::vector<MlpPart>& parts,
                 std::int64_t count, std::int64_t layer = 0) {
  for (std::int64_t expert = 0; expert < count; ++expert) {
    for (const MlpPart part : parts) {
      adapters.push_back({.site = {.kind = AdapterKind::experts,
                                   .module = "module",
                                   .layer = layer,
                                   .expert = expert,
                                   .num_experts = 2,
                                   .part = part},
                          .rank = 8,
                          .alpha = 16});
    }
  }
}

/// What PEFT 0.21.2 with transformers 5.23 made of each.
TEST(AdapterLayouts, PartsOfExpertsLoadOnVersion5WhereTheyCanBeFused) {
  using enum MlpPart;
  const auto loads = [](const std::vector<AdapterSpec>& adapters) {
    return loads_on_both({.layout = AdapterLayout::transformers4}, true, adapters);
  };
  const auto loads_parts = [&](const std::vector<MlpPart>& parts, std::int64_t experts = 2) {
    std::vector<AdapterSpec> adapters;
    add_experts(adapters, parts, experts);
    return loads(adapters);
  };
  EXPECT_TRUE(loads_parts({gate, up, down}));
  EXPECT_TRUE(loads_parts({down}));
  EXPECT_FALSE(loads_parts({gate, up})) << "lost";
  EXPECT_FALSE(loads_parts({up})) << "refused";
  EXPECT_FALSE(loads_parts({gate, down}));
  EXPECT_FALSE(loads_parts({gate, up, down}, 1)) << "refused";
  std::vector<AdapterSpec> layers;
  add_experts(layers, {gate, up, down}, 2, 1);  // of the second layer alone
  EXPECT_TRUE(loads(layers));
  add_experts(layers, {down}, 2, 3);
  EXPECT_TRUE(loads(layers));
  layers.back().rank = 4;
  EXPECT_FALSE(loads(layers)) << "another rank";
}

/// As tools/compare_adapter_layouts.py found.
TEST(AdapterLayouts, SomeLoadOnBothVersionsOfTransformers) {
  const auto loads = [](const AdapterDescription& description, bool takes_experts,
                        const std::vector<AdapterKind>& kinds) {
    std::vector<AdapterSpec> adapters;
    for (const AdapterKind kind : kinds) {
      if (kind == AdapterKind::experts) {
        add_experts(adapters, {MlpPart::gate, MlpPart::up, MlpPart::down}, 2);
      } else {
        adapters.push_back({.site = {.kind = kind, .module = "module"}, .rank = 8});
      }
    }
    return loads_on_both(description, takes_experts, adapters);
  };
  using enum AdapterKind;
  const AdapterDescription old = {.layout = AdapterLayout::transformers4};
  const AdapterDescription fused = {.layout = AdapterLayout::transformers5};
  EXPECT_TRUE(loads(old, true, {attention, experts}));
  EXPECT_FALSE(loads(fused, true, {attention, experts}));
  EXPECT_FALSE(loads({.rank_stabilised = true}, true, {experts}));
  EXPECT_FALSE(loads(old, true, {attention, experts, dense}));
  EXPECT_FALSE(loads(old, false, {experts}));
  EXPECT_FALSE(loads(fused, false, {experts, shared}));
  EXPECT_TRUE(loads(fused, false, {attention}));
  EXPECT_TRUE(loads({.rank_stabilised = true}, false, {attention}));
}

}  // namespace
}  // namespace moesaic
