// Adapters of experts whose parameters are [experts, in, out], columns of gate and up taking turns:
// PEFT has their factors in one order on transformers 5, in another on 4.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "src/checkpoint/safetensors_writer.h"
#include "src/lora/adapter_files.h"
#include "src/lora/adapter_writer.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using test::error_message;
using test::TemporaryDirectory;

constexpr std::int64_t kHiddenSize = 4;

/// Gates, ups and downs of two experts.
std::vector<AdapterSite> across_sites(std::int64_t width) {
  std::vector<AdapterSite> sites;
  for (int expert = 0; expert < 2; ++expert) {
    const std::string path = "model.layers.0.mlp.experts." + std::to_string(expert) + ".";
    for (const auto& [part, name] :
         {std::pair(MlpPart::gate, "gate_proj"), std::pair(MlpPart::up, "up_proj"),
          std::pair(MlpPart::down, "down_proj")}) {
      const bool is_down = part == MlpPart::down;
      sites.push_back({.kind = AdapterKind::experts,
                       .module = path + name,
                       .expert = expert,
                       .num_experts = 2,
                       .out = is_down ? kHiddenSize : width,
                       .in = is_down ? width : kHiddenSize,
                       .part = part,
                       .fused5 = "model.layers.0.mlp.experts",
                       .takes_turns = true,
                       .lies_across = true});
    }
  }
  return sites;
}

/// Of rank 1, on the sites of `parts`, with values that all differ: 1, 2, 3, ...
AdapterSet numbered_adapters(std::span<const AdapterSite> sites, const std::string& parts,
                             bool shares_a) {
  std::vector<AdapterSpec> specs;
  for (const AdapterSite& site : sites) {
    const char part = site.module[site.module.rfind('.') + 1];
    if (parts.find(part) == std::string::npos) continue;
    specs.push_back({.site = site,
                     .rank = 1,
                     .alpha = 1,
                     .scale = 1,
                     .shares_a = shares_a && site.part == MlpPart::up});
  }
  AdapterSet set(specs, Format::f32);
  float value = 0;
  for (float& master : set.masters()) master = value += 1;
  return set;
}

std::vector<AdapterSpec> specs_in(const AdapterSet& set) {
  std::vector<AdapterSpec> specs;
  for (std::int64_t i = 0; i < set.size(); ++i) specs.push_back(set.spec(i));
  return specs;
}

void save(const AdapterSet& set, std::span<const AdapterSite> sites, AdapterLayout layout,
          const std::string& to) {
  save_adapter(to, {{.layout = layout}, specs_in(set), sites}, set);
}

std::vector<float> values_in_file(const std::string& directory, const std::string& key,
                                  const std::vector<std::int64_t>& shape) {
  const SafetensorsFile file = SafetensorsFile::open(directory + "/adapter_model.safetensors");
  const TensorView* const tensor = file.find("base_model.model.model.layers.0.mlp.experts." + key);
  if (tensor == nullptr) return {};
  EXPECT_EQ(tensor->shape, shape) << key;
  std::vector<float> values(tensor->bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// An expert's masters: A of both (4 numbers), B of gate (3), B of up (3), A of down (3), B (4).
TEST(LyingAcross, RowsOfBTakeTurnsAndFactorsChangePlacesInTransformers4) {
  const std::vector<AdapterSite> sites = across_sites(3);
  const AdapterSet set = numbered_adapters(sites, "gud", true);
  const TemporaryDirectory directory;
  save(set, sites, AdapterLayout::transformers5, directory.path());
  const auto in_file = [&](const std::string& key, const std::vector<std::int64_t>& shape) {
    return values_in_file(directory.path(), key, shape);
  };
  EXPECT_EQ(in_file("base_layer.lora_A.weight", {2, 4}),
            (std::vector<float>{1, 2, 3, 4, 18, 19, 20, 21}));
  EXPECT_EQ(in_file("base_layer.lora_B.weight", {6, 2}),
            (std::vector<float>{5, 22, 8, 25, 6, 23, 9, 26, 7, 24, 10, 27}));
  EXPECT_EQ(in_file("lora_A.weight", {2, 3}), (std::vector<float>{11, 12, 13, 28, 29, 30}));
  EXPECT_EQ(in_file("lora_B.weight", {4, 2}), (std::vector<float>{14, 31, 15, 32, 16, 33, 17, 34}));
  save(set, sites, AdapterLayout::transformers4, directory.path());
  EXPECT_EQ(in_file("base_layer.lora_A.weight", {2, 6}),
            (std::vector<float>{5, 8, 6, 9, 7, 10, 22, 25, 23, 26, 24, 27}));
  EXPECT_EQ(in_file("base_layer.lora_B.weight", {4, 2}),
            (std::vector<float>{1, 18, 2, 19, 3, 20, 4, 21}));
  EXPECT_EQ(in_file("lora_A.weight", {2, 4}), (std::vector<float>{14, 15, 16, 17, 31, 32, 33, 34}));
  EXPECT_EQ(in_file("lora_B.weight", {3, 2}), (std::vector<float>{11, 28, 12, 29, 13, 30}));
}

TEST(LyingAcross, ShapesTellTheLayoutAlsoWhereSomeAreSquare) {
  const TemporaryDirectory directory;
  for (const std::int64_t width : {2, 3, 4}) {  // gate and up together are as wide as hidden, ...
    const std::vector<AdapterSite> sites = across_sites(width);
    for (const std::string parts : {"gud", "gd", "ud"}) {
      const AdapterSet set = numbered_adapters(sites, parts, false);
      for (const AdapterLayout layout :
           {AdapterLayout::transformers4, AdapterLayout::transformers5}) {
        save(set, sites, layout, directory.path());
        const AdapterFiles files = AdapterFiles::open(directory.path(), sites);
        EXPECT_EQ(files.description().layout, layout) << width << parts;
        const AdapterSet again = read_whole(files);
        ASSERT_EQ(again.size(), set.size()) << width << parts;
        EXPECT_TRUE(std::ranges::equal(again.masters(), set.masters())) << width << parts;
      }
    }
  }
}

TEST(LyingAcross, WhatNoShapeTellsIsNeitherReadNorWritten) {
  const std::vector<AdapterSite> sites = across_sites(kHiddenSize);
  const AdapterSet set = numbered_adapters(sites, "d", false);
  const TemporaryDirectory directory;
  for (const AdapterLayout layout : {AdapterLayout::transformers4, AdapterLayout::transformers5}) {
    EXPECT_EQ(
        error_message([&] { save(set, sites, layout, directory.path()); }, ErrorKind::usage),
        "model.layers.0.mlp.experts.down_proj has 4 inputs and outputs: a file with its "
        "adapters as the only ones of experts would not tell which are which; those of gates, "
        "ups and downs together do");
  }
  const std::string file = directory.path_of("adapter_model.safetensors");
  const std::string key = "base_model.model.model.layers.0.mlp.experts.lora_";
  SafetensorsWriter writer(
      file, {{key + "A.weight", DType::f32, {2, 4}}, {key + "B.weight", DType::f32, {4, 2}}});
  const std::vector<float> values(8, 1.0F);
  for (const char* factor : {"A.weight", "B.weight"}) {
    writer.write(key + factor, 0, std::as_bytes(std::span(values)));
  }
  writer.finish();
  test::write_text(directory.path_of("adapter_config.json"),
                   R"({"peft_type": "LORA", "r": 1, "lora_alpha": 1,
                       "target_parameters": ["experts.down_proj"]})");
  const std::string message =
      error_message([&] { (void)AdapterFiles::open(directory.path(), sites); }, ErrorKind::file);
  EXPECT_NE(message.find("\"model.layers.0.mlp.experts.down_proj\" has 4 inputs and outputs"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace moesaic
