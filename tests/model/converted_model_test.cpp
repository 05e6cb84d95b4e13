// Converted directories against the checkpoints that they were made from.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/checksum.h"
#include "comm/thread_communicator.h"
#include "src/model/weight_layout.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/converted_model.h"
#include "tests/support/quantized_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

using test::error_message;
using test::TemporaryDirectory;

const std::string kModel = MOESAIC_TEST_DATA "/models/qwen3_moe-v4";

std::vector<std::string> fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(MOESAIC_TEST_DATA "/models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

class ConvertedFixture : public testing::TestWithParam<std::string> {};

TEST_P(ConvertedFixture, GivesTheSameBits) {
  const std::string model = MOESAIC_TEST_DATA "/models/" + GetParam();
  const auto tokens = read_golden_logits(model + "/golden.safetensors").input_ids;
  const TemporaryDirectory directory;
  const WantedLayouts kept;
  const WantedLayouts others{.experts = Layout{Format::int4_group, 32},
                             .dense = Layout{Format::nvfp4},
                             .head = Layout{Format::int8}};
  for (const WantedLayouts& layouts : {kept, others}) {
    const std::string out = directory.path_of(layouts.head ? "others" : "kept");
    convert_model(model, layouts, out);
    const Isa isa = supported_isas().back();
    const auto expected =
        logits_on_ranks(1, {.directory = model, .layouts = layouts, .isa = isa}, tokens);
    EXPECT_EQ(logits_on_ranks(2, {.directory = out, .isa = isa}, tokens), expected);
    EngineSetup mapped{.directory = out, .stored = {.map = true}, .isa = isa};
    EXPECT_EQ(logits_on_ranks(3, mapped, tokens), expected);
    mapped.placement = shuffled_placement(read_model_config(out), 3);
    EXPECT_EQ(logits_on_ranks(3, mapped, tokens), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ConvertedFixture, testing::ValuesIn(fixtures()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

/// Bytes of all files of a directory, by name.
std::map<std::string, std::string> contents(const std::string& directory) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(directory)) {
    files[entry.path().filename().string()] = test::read_text(entry.path().string());
  }
  return files;
}

TEST(ConvertedModel, CodesOfAQuantisedCheckpointAreKept) {
  for (const Layout& layout : {Layout{Format::nvfp4}, Layout{Format::fp8_block, 32}}) {
    const TemporaryDirectory directory;
    quantize_checkpoint(kModel, layout, is_expert_weight, directory.path_of("quantized"));
    convert_model(directory.path_of("quantized"), {}, directory.path_of("kept"));
    convert_model(kModel, {.experts = layout}, directory.path_of("made"));
    EXPECT_EQ(contents(directory.path_of("kept")).at("packed-00001-of-00001.bin"),
              contents(directory.path_of("made")).at("packed-00001-of-00001.bin"))
        << layout_name(layout);
  }
}

/// A converted model whose manifest is edited and signed anew.
class EditedManifest : public testing::Test {
 protected:
  EditedManifest() : out_(directory_.path_of("out")) {
    convert_model(kModel, {.experts = Layout{Format::int8}}, out_);
  }

  [[nodiscard]] std::string load_error(const EngineSetup& setup,
                                       ErrorKind kind = ErrorKind::file) const {
    return error_message(
        [&] {
          run_thread_ranks(1, [&](Communicator& world) { const TestEngine engine(setup, world); });
        },
        kind);
  }
  [[nodiscard]] std::string load_error() const { return load_error({.directory = out_}); }

  void edit(const std::function<void(PackedManifest&)>& change) const {
    const std::string path = out_ + "/manifest.json";
    PackedManifest manifest = parse_manifest(test::read_text(path), path);
    change(manifest);
    test::write_text(path, manifest_text(manifest));
  }

  static PackedEntry& find(PackedManifest& manifest, std::string_view name) {
    return *std::ranges::find(manifest.entries, name, &PackedEntry::name);
  }

  TemporaryDirectory directory_;
  std::string out_;
};

TEST_F(EditedManifest, WeightsThatTheModelDoesNotHaveAreNamed) {
  edit([](PackedManifest& manifest) {
    find(manifest, "layers.1.experts.2.up").name = "layers.1.experts.2.upper";
  });
  EXPECT_NE(load_error().find("weight \"layers.1.experts.2.up\" is missing"), std::string::npos)
      << load_error();
}

TEST_F(EditedManifest, ShapesMustBeThoseOfTheModel) {
  edit([](PackedManifest& manifest) {
    PackedEntry& entry = find(manifest, "layers.0.o");
    entry.depth -= 1;  // the same panels
    ASSERT_EQ(entry.bytes, entry.data_bytes());
  });
  EXPECT_NE(load_error().find("weight \"layers.0.o\" is packed of"), std::string::npos)
      << load_error();
}

TEST_F(EditedManifest, GateAndUpMustAgree) {
  edit([](PackedManifest& manifest) {
    PackedEntry& entry = find(manifest, "layers.0.experts.1.up");
    entry.layout = {.format = Format::mxfp4};
    entry.bytes = entry.data_bytes();
  });
  EXPECT_NE(load_error().find("\"layers.0.experts.1.gate\" and \"layers.0.experts.1.up\" have"),
            std::string::npos)
      << load_error();
}

TEST_F(EditedManifest, TheRouterMustBeF32) {
  edit([](PackedManifest& manifest) {
    PackedEntry& entry = find(manifest, "layers.0.router");
    entry.layout = {.format = Format::bf16};
    entry.bytes = entry.data_bytes();
  });
  EXPECT_NE(load_error().find("\"layers.0.router\" is bf16, not f32"), std::string::npos)
      << load_error();
}

TEST_F(EditedManifest, AnOrderBeyondTheColumnsIsRefused) {
  edit([](PackedManifest& manifest) {
    PackedEntry& entry = find(manifest, "layers.0.o");
    // Some other weight's bytes as an order.
    entry.has_order = true;
    entry.bytes = entry.data_bytes();
    entry.offset = 0;
  });
  EXPECT_NE(load_error().find("\"layers.0.o\" has an order of columns"), std::string::npos)
      << load_error();
}

TEST_F(EditedManifest, VerifyingFindsAWrongChecksum) {
  edit([](PackedManifest& manifest) { find(manifest, "layers.1.experts.0.down").checksum ^= 1; });
  EXPECT_EQ(load_error(), "no error");
  for (const bool map : {false, true}) {
    const std::string message =
        load_error({.directory = out_, .stored = {.map = map, .verify = true}});
    EXPECT_NE(message.find("weight \"layers.1.experts.0.down\" (bytes"), std::string::npos)
        << message;
  }
  edit([](PackedManifest& manifest) {
    find(manifest, "layers.1.experts.0.down").checksum ^= 1;
    find(manifest, "embedding").checksum ^= 1;
  });
  EXPECT_NE(load_error({.directory = out_, .stored = {.verify = true}}).find("\"embedding\""),
            std::string::npos);
}

TEST_F(EditedManifest, OnlyWhatWasConvertedCanBeHad) {
  const auto usage = [&](const EngineSetup& setup) { return load_error(setup, ErrorKind::usage); };
  EXPECT_NE(usage({.directory = out_, .precision = Precision::f32}).find("cannot be had in fp32"),
            std::string::npos);
  EXPECT_NE(usage({.directory = out_, .layouts = {.experts = Layout{Format::int4}}})
                .find("converted with experts as int8, not int4"),
            std::string::npos);
  EXPECT_NE(usage({.directory = out_, .layouts = {.dense = Layout{Format::int8}}})
                .find("converted with layers.0.qkv as bf16, not int8"),
            std::string::npos);
  EXPECT_NE(usage({.directory = out_, .layouts = {.head = Layout{Format::int8}}})
                .find("converted with lm_head as bf16, not int8"),
            std::string::npos);
  EXPECT_EQ(load_error({.directory = out_, .layouts = {.experts = Layout{Format::int8}}}),
            "no error");
  EXPECT_NE(usage({.directory = kModel, .stored = {.verify = true}}).find("verify"),
            std::string::npos);
  EXPECT_NE(usage({.directory = kModel, .stored = {.map = true}}).find("map"), std::string::npos);
}

}  // namespace
}  // namespace moesaic
