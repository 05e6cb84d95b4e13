// A kind of mixer that only this file knows runs in a model: what a new kind of layer needs is a
// MixerKind, a TokenMixer and a row of the table of families.

#include <gtest/gtest.h>

#include <filesystem>

#include "comm/thread_communicator.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/converted_model.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

const std::string kPlainModel = MOESAIC_TEST_DATA "/models/qwen3_moe-v4";

/// y = out s, s = decay * s + in x: a linear recurrence whose state is all that it keeps of a
/// sequence. Its weights are those that the checkpoint has for something else.
struct RecurrenceConfig {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  std::int64_t head_dim = 0;
};

enum RecurrenceWeight : std::size_t { kIn, kOut, kDecay };

class Recurrence : public TokenMixer {
 public:
  Recurrence(const RecurrenceConfig& config, LayerContext& context)
      : config_(config), context_(context) {}

  void begin(const Batch& batch) override { rows_ = batch.rows(); }

  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override {
    EXPECT_EQ(rows_, batch.rows());
    context_.projected.reserve(rows_ * config_.width);
    const MatrixView<float> s = context_.projected.matrix(rows_, config_.width);
    context_.linear.forward(layer.weights[kIn], {}, part.x, s);
    for (const BatchSequence& sequence : batch.sequences) run(layer, sequence, s);
    context_.linear.forward(layer.weights[kOut], {}, s, part.y);
  }

 private:
  void run(const MixerLayer& layer, const BatchSequence& sequence, MatrixView<float> s) {
    auto* const state = reinterpret_cast<float*>(sequence.sequence->state(layer.index));
    context_.compute.pool->for_each(config_.width, 16, [&](std::int64_t channel) {
      const auto d = static_cast<std::size_t>(channel % config_.head_dim);
      const float decay = 0.5F * layer.weights[kDecay].vector[d];
      for (std::int64_t row = sequence.first_row; row < sequence.first_row + sequence.num_rows;
           ++row) {
        state[channel] = decay * state[channel] + s(row, channel);
        s(row, channel) = state[channel];
      }
    });
  }

  RecurrenceConfig config_;
  LayerContext& context_;
  std::int64_t rows_ = 0;
};

class RecurrenceKind : public MixerKind {
 public:
  explicit RecurrenceKind(const RecurrenceConfig& config) : config_(config) {}

  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override {
    return {{.name = "recurrence.in",
             .parts = {tensors.matrix("self_attn.q_proj", config_.width, config_.hidden)}},
            {.name = "recurrence.out",
             .parts = {tensors.matrix("self_attn.o_proj", config_.hidden, config_.width)}},
            {.name = "recurrence.decay",
             .parts = {vector_slice(tensors.name("self_attn.q_norm.weight"), config_.head_dim)},
             .form = WeightForm::vector}};
  }
  [[nodiscard]] CacheNeeds cache(Precision) const override {
    return {.state_bytes = 4 * config_.width};
  }
  [[nodiscard]] MixerWork work(Precision, std::int64_t tokens) const override {
    const auto n = static_cast<double>(tokens * config_.width);
    return {.flops = 2 * n, .cache_bytes = 8 * n};
  }
  [[nodiscard]] std::int64_t row_bytes() const override { return 4 * config_.width; }
  [[nodiscard]] std::int64_t kept_bytes() const override { return 4 * config_.width; }
  [[nodiscard]] std::int64_t backward_bytes() const override { return 0; }
  [[nodiscard]] MixerText text() const override { return {"recurrence", "linear", ""}; }
  void write_fields(JsonWriter& out) const override { out.field("recurrence", config_.width); }
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const override {
    return std::make_unique<Recurrence>(config_, context);
  }

 private:
  RecurrenceConfig config_;
};

/// Qwen3-MoE whose even layers are recurrences.
std::vector<Family> families_with_recurrence() {
  Family family = known_families().front();
  family.name = "recurrent_moe";
  family.mixers.push_back(
      {"recurrence", [](const ConfigReader& reader, const ModelConfig& model) {
         const std::int64_t head_dim = reader.required_int("head_dim", {1, 1024});
         const std::int64_t heads = reader.required_int("num_attention_heads", {1, 1024});
         return std::make_shared<RecurrenceKind>(
             RecurrenceConfig{model.hidden_size, heads * head_dim, head_dim});
       }});
  family.usual_layer_type = [](const ConfigReader&, std::int64_t layer) {
    return layer % 2 == 0 ? std::string_view("recurrence") : std::string_view("full_attention");
  };
  return {family};
}

class PluggedMixer : public testing::Test {
 protected:
  PluggedMixer() {
    for (const auto& file : fs::directory_iterator(kPlainModel)) {
      fs::copy(file.path(), directory_.path_of(file.path().filename().string()));
    }
    const std::string config = directory_.path_of("config.json");
    test::write_text(config,
                     test::replaced(test::read_text(config), "\"qwen3_moe\"", "\"recurrent_moe\""));
  }

  [[nodiscard]] EngineSetup setup() const {
    return {.directory = directory_.path(),
            .isa = supported_isas().back(),
            .families = families_with_recurrence()};
  }

  /// Logits of rank 0 for the tokens, `chunk` a forward pass.
  static std::vector<float> logits(int ranks, const EngineSetup& setup,
                                   const std::vector<std::int32_t>& tokens, std::int64_t chunk) {
    std::vector<float> result;
    run_thread_ranks(ranks, [&](Communicator& world) {
      TestEngine engine(setup, world);
      const auto length = static_cast<std::int64_t>(tokens.size());
      if (world.rank() == 0) {
        result = run_sequence(engine.transformer(), tokens, chunk, length);
        return;
      }
      for (std::int64_t first = 0; first < length; first += chunk) {
        (void)engine.transformer().forward({});
      }
    });
    return result;
  }

  test::TemporaryDirectory directory_;
  std::vector<std::int32_t> tokens_ = {5, 17, 3, 99, 42, 8, 120, 3, 77, 1, 64, 31};
};

TEST_F(PluggedMixer, LayersAreWhatTheTableSays) {
  const ModelConfig config = read_model_config(directory_.path(), families_with_recurrence());
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
  const auto expected = logits(1, setup, tokens_, std::ssize(tokens_));
  EXPECT_EQ(logits(1, setup, tokens_, 1), expected) << "the state passes from call to call";
  setup.threads = 2;
  EXPECT_EQ(logits(2, setup, tokens_, 5), expected);
  setup.moe.half_batches = HalfBatches::on;
  EXPECT_EQ(logits(2, setup, tokens_, 5), expected) << "and from half to half";
}

TEST_F(PluggedMixer, TheLastTokenSeesTheFirst) {
  const auto before = logits(1, setup(), tokens_, 4);
  tokens_.front() = 6;
  const auto after = logits(1, setup(), tokens_, 4);
  const std::size_t vocab = before.size() / tokens_.size();
  EXPECT_FALSE(std::equal(before.end() - static_cast<std::ptrdiff_t>(vocab), before.end(),
                          after.end() - static_cast<std::ptrdiff_t>(vocab)));
  // And it is another model than the one whose layers are all attention.
  EngineSetup plain = setup();
  plain.directory = kPlainModel;
  plain.families = known_families();
  EXPECT_NE(logits(1, plain, tokens_, 4), after);
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
  const ModelConfig config = read_model_config(directory_.path(), families_with_recurrence());
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
