#include "tests/support/recurrence.h"

#include <filesystem>

#include "src/model/token_mixer.h"
#include "tests/support/checkpoint_files.h"

namespace moesaic::test {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kChannelsPerTask = 16;

struct RecurrenceConfig {
  std::int64_t hidden = 0;
  std::int64_t width = 0;
  std::int64_t head_dim = 0;
};

enum RecurrenceWeight : std::size_t { kIn, kOut, kDecay };

/// The states that the output is made of.
struct RecurrenceStash : Stash {
  [[nodiscard]] std::int64_t bytes() const override { return 4 * states.size(); }

  Buffer<float> states;  // [rows, width]
};

class Recurrence : public TokenMixer {
 public:
  Recurrence(const RecurrenceConfig& config, LayerContext& context)
      : config_(config), context_(context) {}

  void begin(const Batch& batch) override { rows_ = batch.rows(); }

  void forward(const MixerLayer& layer, const Batch& batch, const PartForward& part) override {
    auto* const keep = static_cast<RecurrenceStash*>(part.keep);
    Buffer<float>& buffer = keep != nullptr ? keep->states : context_.projected;
    buffer.reserve(rows_ * config_.width);
    const MatrixView<float> s = buffer.matrix(rows_, config_.width);
    context_.linear.forward(layer.weights[kIn], {}, part.x, s);
    for (const BatchSequence& sequence : batch.sequences) run(layer, sequence, s);
    context_.linear.forward(layer.weights[kOut], {}, s, part.y);
  }

  [[nodiscard]] std::unique_ptr<Stash> make_stash() const override {
    return std::make_unique<RecurrenceStash>();
  }

  /// The gradient of a state is what its output gives, and what the next state hands back.
  void backward(const MixerLayer& layer, const Batch& batch, Stash& stash,
                const PartBackward& part) override {
    const auto& kept = static_cast<const RecurrenceStash&>(stash);
    gradient_.reserve(rows_ * config_.width);
    const MatrixView<float> ds = gradient_.matrix(rows_, config_.width);
    context_.linear.backward(
        layer.weights[kOut],
        part.of_product(kept.states.matrix(rows_, config_.width), part.dy, ds));
    for (const BatchSequence& sequence : batch.sequences) hand_back(layer, sequence, ds);
    context_.linear.backward(layer.weights[kIn], part.of_product(part.x, ds, part.dx));
  }

 private:
  [[nodiscard]] float decay(const MixerLayer& layer, std::int64_t channel) const {
    return 0.5F *
           layer.weights[kDecay].vector[static_cast<std::size_t>(channel % config_.head_dim)];
  }
  void run(const MixerLayer& layer, const BatchSequence& sequence, MatrixView<float> s) {
    auto* const state = reinterpret_cast<float*>(sequence.sequence->state(layer.index));
    context_.compute.pool->for_each(config_.width, kChannelsPerTask, [&](std::int64_t channel) {
      for (std::int64_t row = sequence.first_row; row < sequence.first_row + sequence.num_rows;
           ++row) {
        state[channel] = decay(layer, channel) * state[channel] + s(row, channel);
        s(row, channel) = state[channel];
      }
    });
  }
  void hand_back(const MixerLayer& layer, const BatchSequence& sequence, MatrixView<float> ds) {
    const std::int64_t first = sequence.first_row;
    context_.compute.pool->for_each(config_.width, kChannelsPerTask, [&](std::int64_t channel) {
      for (std::int64_t row = first + sequence.num_rows - 1; row > first; --row) {
        ds(row - 1, channel) += decay(layer, channel) * ds(row, channel);
      }
    });
  }

  RecurrenceConfig config_;
  LayerContext& context_;
  Buffer<float> gradient_;  // [rows, width] of the states
  std::int64_t rows_ = 0;
};

AdapterSite site(const std::string& module, std::int64_t out, std::int64_t in) {
  return {.kind = AdapterKind::attention, .module = module, .out = out, .in = in};
}

class RecurrenceKind : public MixerKind {
 public:
  explicit RecurrenceKind(const RecurrenceConfig& config) : config_(config) {}

  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors& tensors) const override {
    const auto& [hidden, width, head_dim] = config_;
    return {{.name = "recurrence.in",
             .parts = {tensors.matrix("self_attn.q_proj", width, hidden)},
             .sites = {site("self_attn.q_proj", width, hidden)}},
            {.name = "recurrence.out",
             .parts = {tensors.matrix("self_attn.o_proj", hidden, width)},
             .sites = {site("self_attn.o_proj", hidden, width)}},
            {.name = "recurrence.decay",
             .parts = {vector_slice(tensors.name("self_attn.q_norm.weight"), head_dim)},
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
  [[nodiscard]] std::int64_t backward_bytes() const override { return 4 * config_.width; }
  [[nodiscard]] MixerText text() const override { return {"recurrence", "linear", ""}; }
  void write_fields(JsonWriter& out) const override { out.field("recurrence", config_.width); }
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext& context) const override {
    return std::make_unique<Recurrence>(config_, context);
  }

 private:
  RecurrenceConfig config_;
};

}  // namespace

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

RecurrentCheckpoint::RecurrentCheckpoint() {
  for (const auto& file : fs::directory_iterator(plain_directory())) {
    fs::copy(file.path(), directory_.path_of(file.path().filename().string()));
  }
  const std::string config = directory_.path_of("config.json");
  write_text(config, replaced(read_text(config), "\"qwen3_moe\"", "\"recurrent_moe\""));
}

std::string RecurrentCheckpoint::plain_directory() {
  return MOESAIC_TEST_DATA "/models/qwen3_moe-v4";
}

}  // namespace moesaic::test
