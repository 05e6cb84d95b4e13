// Attention with sinks in a model: what a family needs for them is a row of the table
// (tests/support/attention_sinks.cpp). What they do to a row of attention: gqa_gradient_test.

#include <gtest/gtest.h>

#include "comm/thread_communicator.h"
#include "src/model/gqa_kind.h"
#include "tests/support/attention_sinks.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const std::vector<float> kSinkValues = {0.5F, -2, 3, 1.25F, -0.5F, 2};

EngineSetup setup_of(const test::SinkCheckpoint& checkpoint, bool sinks = true) {
  return {.directory = checkpoint.directory(),
          .isa = supported_isas().back(),
          .families = test::families_with_sinks(sinks)};
}

/// More than a window of the model, and than a segment of keys.
std::vector<std::int32_t> long_text() {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < test::SinkCheckpoint::kWindow + 60; ++i) {
    tokens.push_back((7 * i * (i % 13) + 3) % 150);
  }
  return tokens;
}

TEST(AttentionSinks, AreWeightsOfEveryLayer) {
  const test::SinkCheckpoint checkpoint(kSinkValues);
  run_thread_ranks(1, [&](Communicator& world) {
    const TestEngine engine(setup_of(checkpoint), world);
    ASSERT_EQ(engine.config().num_layers(), 3);
    EXPECT_EQ(engine.config().layers[0].mixer->window(), test::SinkCheckpoint::kWindow);
    EXPECT_EQ(engine.config().layers[1].mixer->window(), 0);
    for (const LayerWeights& layer : engine.weights().layers) {
      const std::span<const float> sinks = layer.mixer[kSinks].vector;
      EXPECT_EQ(std::vector<float>(sinks.begin(), sinks.end()), kSinkValues);
    }
  });
  const test::SinkCheckpoint of_five_heads({1, 2, 3, 4, 5});
  EXPECT_NE(test::error_message([&] {
              (void)logits_on_ranks(1, setup_of(of_five_heads), std::vector<std::int32_t>{1});
            }).find("model.layers.0.self_attn.sinks"),
            std::string::npos);
}

TEST(AttentionSinks, BitsDoNotDependOnRanksThreadsOrChunks) {
  const test::SinkCheckpoint checkpoint(kSinkValues);
  const std::vector<std::int32_t> tokens = long_text();
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    EngineSetup setup = setup_of(checkpoint);
    setup.precision = precision;
    const auto expected = logits_on_ranks(1, setup, tokens);
    EXPECT_EQ(logits_on_ranks(1, setup, tokens, 1), expected) << "a token at a time";
    setup.threads = 3;
    EXPECT_EQ(logits_on_ranks(1, setup, tokens), expected);
    EXPECT_EQ(logits_on_ranks(1, setup, tokens, 1), expected) << "in segments for the threads";
    setup.moe.half_batches = HalfBatches::on;
    EXPECT_EQ(logits_on_ranks(2, setup, tokens, 300), expected);
  }
}

TEST(AttentionSinks, WithoutAnyWeightLeaveTheModelAsItIs) {
  const std::vector<std::int32_t> tokens = long_text();
  const test::SinkCheckpoint none(std::vector<float>(6, -1e4F));
  const test::SinkCheckpoint some(kSinkValues);
  const auto plain = logits_on_ranks(1, setup_of(none, false), tokens);
  EXPECT_EQ(logits_on_ranks(1, setup_of(none), tokens), plain);
  EXPECT_GT(relative_l2(logits_on_ranks(1, setup_of(some), tokens), plain), 0.01);
}

}  // namespace
}  // namespace moesaic
