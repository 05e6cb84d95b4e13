// The demo model in every weight format: one set of bits whatever the instruction set, AMX among
// them (in software where the CPU has none: tests/support/with_amx.cpp), the ranks, and the tokens
// of a forward pass.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "comm/thread_communicator.h"
#include "src/model/weight_layout.h"
#include "src/tokenizer/tokenizer.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const std::string kModel = std::string(MOESAIC_TEST_DATA) + "/demo-model";
const std::string kText = "And it came to pass in those days, that he went out into a mountain";

struct Run {
  Isa isa;
  int ranks;
  std::int64_t chunk;  // tokens of a forward pass
  Int4Activations int4_activations = Int4Activations::bf16;
};

/// Logits of all tokens, by rank 0; the other ranks feed the same text.
std::vector<float> logits(const std::string& format, const Run& run) {
  const auto tokens = Tokenizer::from_directory(kModel).encode(kText);
  std::vector<float> result;
  run_thread_ranks(run.ranks, [&](Communicator& world) {
    EngineSetup setup{
        .directory = kModel, .isa = run.isa, .int4_activations = run.int4_activations};
    const std::optional<Layout> layout = layout_from_name(format);
    setup.layouts = {.experts = layout, .dense = layout, .head = layout};
    TestEngine engine(setup, world);
    const std::vector<float> own =
        run_sequence(engine.transformer(), tokens, run.chunk, std::ssize(tokens));
    if (world.rank() == 0) result = own;
  });
  return result;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class DemoModelInFormat : public testing::TestWithParam<std::string> {};

TEST_P(DemoModelInFormat, has_the_same_bits_on_every_instruction_set) {
  const std::vector<float> scalar = logits(GetParam(), {Isa::scalar, 1, 1000});
  for (const float value : scalar) ASSERT_TRUE(std::isfinite(value));
  for (const Isa isa : tile_order_isas()) {
    EXPECT_TRUE(same_bits(logits(GetParam(), {isa, 1, 1000}), scalar)) << isa_name(isa);
    EXPECT_TRUE(same_bits(logits(GetParam(), {isa, 1, 1}), scalar))
        << isa_name(isa) << ", a token at a time";
  }
}

TEST_P(DemoModelInFormat, has_the_same_bits_on_any_number_of_ranks) {
  const Isa isa = tile_order_isas().back();
  const std::vector<float> one = logits(GetParam(), {isa, 1, 7});
  EXPECT_TRUE(same_bits(logits(GetParam(), {isa, 3, 5}), one));
}

TEST_P(DemoModelInFormat, is_close_to_the_model_in_bf16) {
  const double difference = relative_l2(logits(GetParam(), {tile_order_isas().back(), 1, 1000}),
                                        logits("bf16", {tile_order_isas().back(), 1, 1000}));
  const bool four_bits = GetParam().find('4') != std::string::npos;
  EXPECT_LT(difference, four_bits ? 0.5 : 0.1);
}

INSTANTIATE_TEST_SUITE_P(, DemoModelInFormat,
                         testing::ValuesIn(std::vector<std::string>(kLayoutNames.begin(),
                                                                    kLayoutNames.end())),
                         [](const auto& format) { return format.param; });

TEST(DemoModelWithInt8Activations, has_the_same_bits_on_every_instruction_set_and_any_ranks) {
  constexpr auto kInt8 = Int4Activations::int8;
  const std::vector<float> scalar = logits("int4_group128", {Isa::scalar, 1, 1000, kInt8});
  for (const Isa isa : tile_order_isas()) {
    for (const std::int64_t chunk : {1, 7, 1000}) {
      EXPECT_TRUE(same_bits(logits("int4_group128", {isa, 1, chunk, kInt8}), scalar))
          << isa_name(isa) << ", " << chunk << " tokens at a time";
    }
    EXPECT_TRUE(same_bits(logits("int4_group128", {isa, 3, 5, kInt8}), scalar)) << isa_name(isa);
  }
}

TEST(DemoModelWithInt8Activations, is_close_to_bf16_activations) {
  const Isa isa = tile_order_isas().back();
  const std::vector<float> bf16 = logits("int4_group128", {isa, 1, 1000});
  const std::vector<float> int8 = logits("int4_group128", {isa, 1, 1000, Int4Activations::int8});
  EXPECT_FALSE(same_bits(int8, bf16));
  EXPECT_LT(relative_l2(int8, bf16), 0.1);
}

TEST(DemoModelWithInt8Activations, leaves_other_formats_as_they_are) {
  const Isa isa = tile_order_isas().back();
  for (const char* format : {"int4_group", "int4_group64", "int4", "mxfp4"}) {
    EXPECT_TRUE(same_bits(logits(format, {isa, 1, 1000, Int4Activations::int8}),
                          logits(format, {isa, 1, 1000})))
        << format;
  }
}

}  // namespace
}  // namespace moesaic
