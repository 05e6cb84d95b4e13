// A kind of mixer that only tests know runs in a model: what a new kind of layer needs is a
// MixerKind, a TokenMixer and a row of the table of families (tests/support/recurrence.cpp).

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/recurrence.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

class PluggedMixer : public testing::Test {
 protected:
  [[nodiscard]] EngineSetup setup() const {
    return {.directory = checkpoint_.directory(),
            .isa = supported_isas().back(),
            .families = test::families_with_recurrence()};
  }

  test::RecurrentCheckpoint checkpoint_;
  std::vector<std::int32_t> tokens_ = {5, 17, 3, 99, 42, 8, 120, 3, 77, 1, 64, 31};
};

TEST_F(PluggedMixer, LayersAreWhatTheTableSays) {
  const ModelConfig config =
      read_model_config(checkpoint_.directory(), test::families_with_recurrence());
  ASSERT_EQ(config.num_layers(), 3);
  EXPECT_EQ(config.layers[0].mixer, config.layers[2].mixer);
  EXPECT_EQ(config.layers[0].mixer->text().label, "recurrence");
  EXPECT_EQ(config.layers[1].mixer->text().label, "heads");
  // Only the attention layer grows with the sequence.
  const CacheNeeds pages = config.layers[1].mixer->cache(Precision::bf16);
  EXPECT_EQ(KvPool::sequence_bytes(config, Precision::bf16, 640) -
                KvPool::sequence_bytes(config, Precision::bf16, 64),
            9 * pages.page_bytes);
  EXPECT_GE(KvPool::sequence_bytes(config, Precision::bf16, 64), 2 * 4 * 120 + pages.page_bytes);
}

TEST_F(PluggedMixer, BitsDoNotDependOnRanksThreadsOrChunks) {
  EngineSetup setup = this->setup();
  const auto expected = logits_on_ranks(1, setup, tokens_, std::ssize(tokens_));
  EXPECT_EQ(logits_on_ranks(1, setup, tokens_, 1), expected)
      << "the state passes from call to call";
  setup.threads = 2;
  EXPECT_EQ(logits_on_ranks(2, setup, tokens_, 5), expected);
  setup.moe.half_batches = HalfBatches::on;
  EXPECT_EQ(logits_on_ranks(2, setup, tokens_, 5), expected) << "and from half to half";
}

TEST_F(PluggedMixer, TheLastTokenSeesTheFirst) {
  const auto before = logits_on_ranks(1, setup(), tokens_, 4);
  tokens_.front() = 6;
  const auto after = logits_on_ranks(1, setup(), tokens_, 4);
  const std::size_t vocab = before.size() / tokens_.size();
  EXPECT_FALSE(std::equal(before.end() - static_cast<std::ptrdiff_t>(vocab), before.end(),
                          after.end() - static_cast<std::ptrdiff_t>(vocab)));
  // And it is another model than the one whose layers are all attention.
  EngineSetup plain = setup();
  plain.directory = test::RecurrentCheckpoint::plain_directory();
  plain.families = known_families();
  EXPECT_NE(logits_on_ranks(1, plain, tokens_, 4), after);
}

TEST_F(PluggedMixer, AModelMayHaveNoAttentionAtAll) {
  EngineSetup setup = this->setup();
  setup.families.front().usual_layer_type = [](const ConfigReader&, std::int64_t) {
    return std::string_view("recurrence");
  };
  const ModelConfig config = read_model_config(checkpoint_.directory(), setup.families);
  EXPECT_EQ(KvPool::sequence_bytes(config, Precision::bf16, 1000), 3 * 4 * 128) << "states alone";
  const auto expected = logits_on_ranks(1, setup, tokens_);
  EXPECT_NE(expected, logits_on_ranks(1, this->setup(), tokens_));
  EXPECT_EQ(logits_on_ranks(1, setup, tokens_, 1), expected);
  EXPECT_EQ(logits_on_ranks(2, setup, tokens_, 5), expected);
}

TEST_F(PluggedMixer, AStateIsSharedWholeOrNotAtAll) {
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(setup(), world);
    KvPool pool(engine.config(), Precision::bf16);
    EXPECT_EQ(pool.state_bytes(), 2 * 4 * 128) << "of two layers, in whole cache lines";
    const auto feed = [&](Sequence& sequence, std::span<const std::int32_t> tokens) {
      const SequenceChunk chunk{.sequence = &sequence, .tokens = tokens};
      const MatrixView<const float> logits = engine.transformer().forward({&chunk, 1});
      return std::vector<float>(logits.data(), logits.data() + logits.cols());
    };
    const std::span<const std::int32_t> all(tokens_);
    Sequence first = pool.make_sequence(0);
    feed(first, all.first(8));
    Sequence second = pool.make_sequence(0);
    EXPECT_EQ(second.share_prefix(first, 5), 0) << "the state of the fifth position is gone";
    EXPECT_EQ(second.share_prefix(first, 8), 8);
    const auto expected = feed(first, all.subspan(8));
    EXPECT_EQ(feed(second, all.subspan(8)), expected) << "from a copy of the state";
    EXPECT_EQ(test::error_message([&] { second.truncate(3); }, ErrorKind::usage),
              "a sequence of 12 positions cannot be cut to 3: layers of this model keep a state "
              "that cannot go back");
    second.truncate(0);
    EXPECT_EQ(feed(second, all), expected) << "a state begins with zeros";
  });
}

TEST_F(PluggedMixer, ItsWeightsAreFoundAndMissedLikeAllOthers) {
  const ModelConfig config =
      read_model_config(checkpoint_.directory(), test::families_with_recurrence());
  const ModelNames names =
      find_model_names(config, [](std::string_view name) { return name.size() > 3; });
  std::int64_t slices = 0;
  for_each_slice(names, [&](const TensorSlice& slice, bool) {
    slices += slice.tensor.ends_with("self_attn.k_proj.weight") ? 1 : 0;
  });
  EXPECT_EQ(slices, 1) << "of three layers one has keys";
}

}  // namespace
}  // namespace moesaic
