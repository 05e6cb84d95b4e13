// Models in every weight format: whatever the ranks, threads and instruction sets, the same bits;
// and close to what they were quantised from.

#include <gtest/gtest.h>

#include "base/json.h"
#include "comm/thread_communicator.h"
#include "src/model/weight_layout.h"
#include "tests/support/quantized_checkpoint.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

/// Trained, so that a small change of weights is a small change of logits.
const std::string kDemoModel = MOESAIC_TEST_DATA "/demo-model";

std::vector<std::int32_t> some_tokens() {
  const Json ids =
      Json::read_file(MOESAIC_TEST_DATA "/demo-golden.json").at("held_out").at("first_ids");
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < ids.size(); ++i) {
    tokens.push_back(static_cast<std::int32_t>(ids.at(i).as_int()));
  }
  return tokens;
}

class ExpertFormat : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Layout layout() { return *layout_from_name(GetParam()); }
};

TEST_P(ExpertFormat, GivesTheSameBitsOnAnyRanksThreadsAndInstructionSet) {
  EngineSetup setup{.directory = kDemoModel, .layouts = {.experts = layout()}};
  const std::vector<float> expected = logits_on_ranks(1, setup, some_tokens());
  for (const Isa isa : tile_order_isas()) {
    setup.isa = isa;
    EXPECT_EQ(logits_on_ranks(1, setup, some_tokens()), expected) << isa_name(isa);
  }
  setup.threads = 2;
  for (const int ranks : {2, 3}) {
    EXPECT_EQ(logits_on_ranks(ranks, setup, some_tokens()), expected) << ranks << " ranks";
  }
}

TEST_P(ExpertFormat, IsCloseToWhatItWasQuantisedFrom) {
  EngineSetup setup{.directory = kDemoModel, .isa = supported_isas().back()};
  const std::vector<float> plain = logits_on_ranks(1, setup, some_tokens());
  setup.layouts = {.experts = layout()};
  const double distance = relative_l2(logits_on_ranks(1, setup, some_tokens()), plain);
  if (layout().format == Format::bf16) {
    EXPECT_EQ(distance, 0);
    return;
  }
  const bool four_bits = GetParam().find("int4") == 0 || GetParam().find("fp4") == 2;
  EXPECT_LT(distance, four_bits ? 0.06 : 0.02);
  EXPECT_GT(distance, four_bits ? 0.01 : 0.002) << "nothing was quantised";
}

INSTANTIATE_TEST_SUITE_P(Formats, ExpertFormat,
                         testing::ValuesIn(std::vector<std::string>(kLayoutNames.begin(),
                                                                    kLayoutNames.end())),
                         [](const auto& param) { return param.param; });

/// Bytes that rank 0 of two sends, and its logits.
std::pair<std::int64_t, std::vector<float>> sent_bytes(const EngineSetup& setup) {
  std::pair<std::int64_t, std::vector<float>> result;
  const std::vector<std::int32_t> tokens = some_tokens();
  run_thread_ranks(2, [&](Communicator& world) {
    TestEngine engine(setup, world);
    if (world.rank() != 0) return (void)engine.transformer().forward({});
    const auto length = static_cast<std::int64_t>(tokens.size());
    std::vector<float> logits = run_sequence(engine.transformer(), tokens, length, length);
    result = {engine.transformer().load().bytes_sent, std::move(logits)};
  });
  return result;
}

TEST(Int8Rows, TravelWhereAllExpertsTakeThem) {
  for (const std::string name : {"int8", "int4", "int4_group128", "bf16"}) {
    EngineSetup setup{.directory = kDemoModel,
                      .layouts = {.experts = layout_from_name(name)},
                      .isa = supported_isas().back(),
                      .int4_activations = Int4Activations::int8};
    const auto [plain_bytes, expected] = sent_bytes(setup);
    setup.moe.int8_rows = true;
    const auto [bytes, logits] = sent_bytes(setup);
    EXPECT_EQ(logits, expected) << name;
    if (name == "bf16") {
      EXPECT_EQ(bytes, plain_bytes);
    } else {
      EXPECT_LT(bytes, plain_bytes * 6 / 10) << name;
    }
  }
}

class QuantizedModel : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] static Layout layout() { return *layout_from_name(GetParam()); }
};

TEST_P(QuantizedModel, EqualsTheOneThatIsQuantisedWhenLoaded) {
  const test::TemporaryDirectory directory;
  const std::string quantized = directory.path_of("model");
  quantize_checkpoint(kDemoModel, layout(), is_expert_weight, quantized);
  const auto expected = logits_on_ranks(
      1, {.directory = kDemoModel, .layouts = {.experts = layout()}}, some_tokens());
  EXPECT_EQ(logits_on_ranks(1, {.directory = quantized}, some_tokens()), expected);
  EXPECT_EQ(logits_on_ranks(3, {.directory = quantized}, some_tokens()), expected);
  EXPECT_EQ(
      logits_on_ranks(2, {.directory = quantized, .layouts = {.experts = layout()}}, some_tokens()),
      expected);
}

TEST_P(QuantizedModel, RunsInFullPrecisionAndInOtherFormats) {
  const test::TemporaryDirectory directory;
  const std::string quantized = directory.path_of("model");
  quantize_checkpoint(kDemoModel, layout(), is_expert_weight, quantized);
  const auto native = logits_on_ranks(1, {.directory = quantized}, some_tokens());
  const auto exact =
      logits_on_ranks(1, {.directory = quantized, .precision = Precision::f32}, some_tokens());
  EXPECT_LT(relative_l2(native, exact), 0.02);  // int8 rounds activations too
  const auto wide = logits_on_ranks(
      1, {.directory = quantized, .layouts = {.experts = Layout{Format::bf16}}}, some_tokens());
  EXPECT_LT(relative_l2(wide, exact), 0.02);
  const auto other = logits_on_ranks(
      1, {.directory = quantized, .layouts = {.experts = Layout{Format::int4_group, 32}}},
      some_tokens());
  EXPECT_LT(relative_l2(other, exact), 0.2);
  EXPECT_NE(other, native);
}

TEST_P(QuantizedModel, DenseMatricesKeepTheirFormat) {
  const test::TemporaryDirectory directory;
  const std::string quantized = directory.path_of("model");
  const auto is_attention = [](std::string_view name) {
    return name.find(".self_attn.") != std::string_view::npos && name.ends_with("_proj.weight");
  };
  quantize_checkpoint(kDemoModel, layout(), is_attention, quantized);
  const EngineSetup setup{.directory = quantized};
  run_thread_ranks(1, [&](Communicator& world) {
    const TestEngine engine(setup, world);
    const LayerWeights& layer = engine.weights().layers[0];
    constexpr std::size_t kQkv = 0, kO = 2, kFirstExpert = 5;  // in the order of their kinds
    EXPECT_TRUE(layer.mixer[kO].matrix.layout == layout());
    EXPECT_EQ(layer.feed_forward[kFirstExpert].matrix.layout.format, Format::bf16);
    const PackedMatrix& qkv = layer.mixer[kQkv].matrix;
    const bool one_scale = layout().format != Format::nvfp4;  // q, k and v have one each
    EXPECT_EQ(qkv.layout.format, one_scale ? layout().format : Format::bf16);
    EXPECT_EQ(engine.weights().notes.empty(), one_scale);
  });
  const auto exact =
      logits_on_ranks(1, {.directory = quantized, .precision = Precision::f32}, some_tokens());
  EXPECT_LT(relative_l2(logits_on_ranks(2, setup, some_tokens()), exact), 0.02);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedModel,
                         testing::Values("int8", "fp8_block", "fp8_block32", "fp8_channel", "nvfp4",
                                         "mxfp4", "mxfp8"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace moesaic
