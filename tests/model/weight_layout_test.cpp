#include "src/model/weight_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "src/checkpoint/safetensors_writer.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

TEST(LayoutNames, ReadBack) {
  const std::vector<std::pair<std::string, Layout>> names = {
      {"f32", {Format::f32}},
      {"bf16", {Format::bf16}},
      {"int8", {Format::int8}},
      {"int4", {Format::int4}},
      {"int4_group", {Format::int4_group, 32}},
      {"int4_group64", {Format::int4_group, 64}},
      {"int4_group128", {Format::int4_group, 128}},
      {"fp8_block", {Format::fp8_block, 128}},
      {"fp8_block32", {Format::fp8_block, 32}},
      {"fp8_channel", {Format::fp8_channel}},
      {"nvfp4", {Format::nvfp4}},
      {"mxfp4", {Format::mxfp4}},
      {"mxfp8", {Format::mxfp8}}};
  for (const auto& [name, layout] : names) {
    EXPECT_EQ(layout_name(layout), name);
    ASSERT_TRUE(layout_from_name(name).has_value()) << name;
    EXPECT_TRUE(*layout_from_name(name) == layout) << name;
  }
  for (const char* name : {"", "int5", "int4_group16", "fp8_block64", "INT4", "nvfp4 "}) {
    EXPECT_FALSE(layout_from_name(name).has_value()) << name;
  }
}

TEST(LayoutNames, EveryFormatHasOne) {
  std::set<Format> named = {Format::f32};  // which only --precision fp32 takes
  for (const std::string_view name : kLayoutNames) {
    ASSERT_TRUE(layout_from_name(name).has_value()) << name;
    named.insert(layout_from_name(name)->format);
  }
  EXPECT_EQ(named.size(), static_cast<std::size_t>(kNumFormats));
}

TEST(LayoutNames, OtherSpellingsAreUnderstood) {
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {"AMXINT4", "int4"},
      {"amxint8", "int8"},
      {"MOE_INT4", "int4"},
      {"MOE_INT8", "int8"},
      {"RAWINT4", "int4_group"},
      {"FP8", "fp8_block"},
      {"BF16", "bf16"},
      {"FP8_PERCHANNEL", "fp8_channel"},
      {"MXFP4", "mxfp4"},
      {"NVFP4", "nvfp4"},
      {"MXFP8", "mxfp8"},
      {"GPTQ_INT4", "int4_group128"},
      {"AMXBF16_SFT", "bf16"},
      {"AMXFP8_SFT", "fp8_block"},
      {"INT8_SFT", "int8"},
      {"AMXINT4_SFT", "int4"},
      {"AMXINT4_KGroup_SFT", "int4_group"},
      {"Int4_Group32", "int4_group"},
      {"fp8_block128", "fp8_block"}};
  for (const auto& [spelling, name] : spellings) {
    EXPECT_EQ(canonical_layout_name(spelling), name) << spelling;
  }
  EXPECT_EQ(canonical_layout_name("auto"), "auto");
  EXPECT_EQ(canonical_layout_name("Nonsense"), "Nonsense");
  EXPECT_EQ(canonical_layout_name("Nonsense_SFT"), "Nonsense_SFT");
}

TEST(LayoutNames, KTransformersNamesThatMeanMoreThanALayoutAreNone) {
  for (const std::string name : {"AMXINT4_1", "AMXINT4_1_SFT", "AMXINT4_1KGroup_SFT",
                                 "AMXINT4_1_SFT_SkipLoRA", "AMXBF16_SFT_SkipLoRA"}) {
    EXPECT_FALSE(layout_from_name(canonical_layout_name(name))) << name;
    EXPECT_FALSE(foreign_layout_remark(name).empty()) << name;
  }
  EXPECT_NE(foreign_layout_remark("AMXINT4_1_SFT").find("least value"), std::string_view::npos);
  EXPECT_NE(foreign_layout_remark("amxbf16_sft_skiplora").find("--lora-targets"),
            std::string_view::npos);
  EXPECT_EQ(foreign_layout_remark("AMXINT4_SFT"), "");
  EXPECT_EQ(foreign_layout_remark("nonsense"), "");
}

/// A checkpoint with some small matrices of 64 columns: NAME_ROWS is of type NAME.
class LayoutChoiceTest : public testing::Test {
 protected:
  LayoutChoiceTest() {
    test::write_text(directory_.path_of("config.json"), "{}");
    std::vector<TensorSpec> specs;
    for (const std::int64_t rows : {8, 16, 32}) {
      const std::string end = "_" + std::to_string(rows) + ".weight";
      specs.push_back({"bf16" + end, DType::bf16, {rows, 64}});
      specs.push_back({"f16" + end, DType::f16, {rows, 64}});
      specs.push_back({"channel" + end, DType::f8_e4m3, {rows, 64}});
      specs.push_back({"channel" + end + "_scale", DType::f32, {rows, 1}});
      specs.push_back({"mx" + end, DType::f8_e4m3, {rows, 64}});
      specs.push_back({"mx" + end + "_scale", DType::u8, {rows, 2}});
      for (const std::string name : {"order", "reverse"}) {
        const std::string tensor = name + "_" + std::to_string(rows) + ".weight";
        specs.push_back({tensor + "_packed", DType::i32, {rows, 8}});
        specs.push_back({tensor + "_scale", DType::bf16, {rows, 2}});
        specs.push_back({tensor + "_g_idx", DType::i32, {64}});
      }
      for (const std::string name : {"nv", "other"}) {
        specs.push_back({name + end, DType::u8, {rows, 32}});
        specs.push_back({name + end + "_scale", DType::f8_e4m3, {rows, 4}});
        specs.push_back({name + end + "_scale_2", DType::f32, {1}});
      }
    }
    SafetensorsWriter writer(directory_.path_of("model.safetensors"), specs);
    for (const TensorSpec& spec : specs) {
      std::int64_t bytes = dtype_bytes(spec.dtype);
      for (const std::int64_t size : spec.shape) bytes *= size;
      std::vector<std::byte> data(static_cast<std::size_t>(bytes), std::byte{0x38});
      if (spec.name.starts_with("other") && spec.dtype == DType::f32) data[0] = std::byte{0x39};
      if (spec.name.ends_with("_g_idx")) {
        // Even and odd columns are of different groups.
        const std::int32_t odd = spec.name.starts_with("order") ? 1 : 0;
        std::array<std::int32_t, 64> groups{};
        for (std::size_t k = 0; k < 64; ++k) groups[k] = k % 2 == 1 ? odd : 1 - odd;
        std::ranges::copy(std::as_bytes(std::span(groups)), data.begin());
      }
      writer.write(spec.name, 0, data);
    }
    writer.finish();
    checkpoint_.emplace(Checkpoint::open(directory_.path()));
  }

  /// "mx 16" is tensor mx_16.weight.
  [[nodiscard]] std::vector<MatrixSource> sources(
      const std::vector<std::pair<std::string, std::int64_t>>& names) const {
    std::vector<MatrixSource> result;
    for (const auto& [name, rows] : names) {
      result.emplace_back(*checkpoint_,
                          TensorSlice{.tensor = name + "_" + std::to_string(rows) + ".weight",
                                      .shape = {rows, 64},
                                      .first_row = 0,
                                      .rows = rows,
                                      .cols = 64});
    }
    return result;
  }

  test::TemporaryDirectory directory_;
  std::optional<Checkpoint> checkpoint_;
};

using Stacked = std::vector<std::pair<std::string, std::int64_t>>;

TEST_F(LayoutChoiceTest, DenseMatricesKeepWhatTheyAre) {
  const LayoutChoice choice(Precision::bf16, {.experts = Layout{Format::int4}});
  const std::vector<std::pair<Stacked, Format>> stacked = {
      {{{"bf16", 8}, {"bf16", 16}}, Format::bf16},
      {{{"f16", 8}}, Format::f32},
      {{{"bf16", 16}, {"f16", 16}}, Format::f32},
      {{{"channel", 16}, {"channel", 32}}, Format::fp8_channel},
      {{{"channel", 8}}, Format::fp8_channel},
      {{{"channel", 16}, {"channel", 8}}, Format::bf16},  // a panel would hold rows of both
      {{{"channel", 16}, {"mx", 16}}, Format::bf16},
      {{{"channel", 16}, {"bf16", 16}}, Format::bf16},
      {{{"channel", 16}, {"f16", 16}}, Format::f32},
      {{{"nv", 16}, {"nv", 16}}, Format::nvfp4},
      {{{"nv", 16}, {"other", 16}}, Format::bf16},  // of another scale
  };
  for (const auto& [names, format] : stacked) {
    EXPECT_EQ(choice.stacked(WeightRole::dense, sources(names)).layout.format, format)
        << names[0].first << " " << names.back().first << names.back().second;
  }
  EXPECT_EQ(choice.together(WeightRole::dense, sources({{"nv", 8}, {"other", 8}})).layout.format,
            Format::nvfp4);
  EXPECT_EQ(choice.together(WeightRole::dense, sources({{"nv", 8}, {"mx", 8}})).layout.format,
            Format::bf16);
}

TEST_F(LayoutChoiceTest, ExpertsAreAsTheFilesHaveThemOrAsIsWanted) {
  const LayoutChoice own(Precision::bf16, {});
  EXPECT_EQ(own.together(WeightRole::expert, sources({{"bf16", 8}, {"bf16", 8}})).layout.format,
            Format::bf16);
  EXPECT_EQ(own.together(WeightRole::expert, sources({{"f16", 8}, {"f16", 8}})).layout.format,
            Format::bf16);
  EXPECT_EQ(own.together(WeightRole::expert, sources({{"mx", 8}, {"mx", 8}})).layout.format,
            Format::mxfp8);
  EXPECT_EQ(own.together(WeightRole::expert, sources({{"mx", 8}, {"channel", 8}})).layout.format,
            Format::bf16);
  const LayoutChoice wanted(Precision::bf16, {.experts = Layout{Format::int4_group, 64}});
  for (const std::string name : {"bf16", "f16", "mx", "nv"}) {
    EXPECT_TRUE(wanted.together(WeightRole::expert, sources({{name, 8}})) ==
                (Packing{.layout = {Format::int4_group, 64}, .keeps_codes = false}))
        << name;
  }
  const LayoutChoice plain(Precision::bf16, {.experts = Layout{Format::bf16}});
  EXPECT_EQ(plain.together(WeightRole::expert, sources({{"mx", 8}})).layout.format, Format::bf16);
}

TEST_F(LayoutChoiceTest, EveryRoleTakesTheLayoutThatIsWantedOfIt) {
  const LayoutChoice choice(Precision::bf16, {.experts = Layout{Format::int4},
                                              .dense = Layout{Format::fp8_channel},
                                              .head = Layout{Format::int8}});
  const auto parts = sources({{"bf16", 8}, {"f16", 16}});
  const auto made = [](Format format) { return Packing{.layout = {format}, .keeps_codes = false}; };
  EXPECT_TRUE(choice.stacked(WeightRole::dense, parts) == made(Format::fp8_channel));
  EXPECT_TRUE(choice.stacked(WeightRole::head, parts) == made(Format::int8));
  EXPECT_TRUE(choice.together(WeightRole::dense, parts) == made(Format::fp8_channel));
  EXPECT_TRUE(choice.together(WeightRole::expert, parts) == made(Format::int4));
  // Codes that are there already are kept where they can be stacked.
  EXPECT_TRUE(choice.stacked(WeightRole::dense, sources({{"channel", 16}, {"channel", 32}})) ==
              (Packing{.layout = {Format::fp8_channel}, .keeps_codes = true}));
  EXPECT_TRUE(choice.stacked(WeightRole::dense, sources({{"channel", 8}, {"channel", 8}})) ==
              made(Format::fp8_channel));
  EXPECT_TRUE(choice.stacked(WeightRole::dense, sources({{"mx", 16}})) ==
              made(Format::fp8_channel));
}

TEST_F(LayoutChoiceTest, CodesAreKeptInOneOrderOfColumnsOnly) {
  const Layout groups{Format::int4_group, 32};
  const auto same = sources({{"order", 16}, {"order", 16}});
  const auto different = sources({{"order", 16}, {"reverse", 16}});
  ASSERT_FALSE(same[0].order().empty());
  ASSERT_TRUE(same[0].layout() == groups);
  const LayoutChoice own(Precision::bf16, {});
  EXPECT_TRUE(own.stacked(WeightRole::dense, same) ==
              (Packing{.layout = groups, .keeps_codes = true}));
  EXPECT_TRUE(own.together(WeightRole::dense, different) ==
              (Packing{.layout = {Format::bf16}, .keeps_codes = false}));
  EXPECT_TRUE(own.together(WeightRole::expert, different) ==
              (Packing{.layout = {Format::bf16}, .keeps_codes = false}));
  const LayoutChoice wanted(Precision::bf16, {.experts = groups});
  EXPECT_TRUE(wanted.together(WeightRole::expert, same) ==
              (Packing{.layout = groups, .keeps_codes = true}));
  EXPECT_TRUE(wanted.together(WeightRole::expert, different) ==
              (Packing{.layout = groups, .keeps_codes = false}));
  const LayoutChoice other(Precision::bf16, {.experts = Layout{Format::int4_group, 64}});
  EXPECT_FALSE(other.together(WeightRole::expert, same).keeps_codes);
}

TEST_F(LayoutChoiceTest, Fp32KeepsEverythingInF32) {
  const LayoutChoice choice(Precision::f32, {});
  for (const std::string name : {"bf16", "f16", "mx", "nv"}) {
    EXPECT_EQ(choice.stacked(WeightRole::dense, sources({{name, 16}})).layout.format, Format::f32);
    EXPECT_EQ(choice.together(WeightRole::dense, sources({{name, 16}})).layout.format, Format::f32);
    EXPECT_EQ(choice.together(WeightRole::expert, sources({{name, 16}})).layout.format,
              Format::f32);
  }
}

}  // namespace
}  // namespace moesaic
