// Latent attention, whose queries meet latents, against what it stands for: every head's keys and
// values made of them.

#include "src/model/mla_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <numeric>
#include <optional>

#include "comm/thread_communicator.h"
#include "src/model/kv_pool.h"
#include "src/model/model_config.h"
#include "tests/model/packed_weight.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

constexpr std::int64_t kHidden = 24;

/// A row times a matrix [n, k], and what is added to each result.
Doubles times(const double* x, std::int64_t k, const Doubles& matrix, const Doubles& bias = {}) {
  Doubles y = bias;
  y.resize(static_cast<std::size_t>(std::ssize(matrix) / k));
  for (std::size_t n = 0; n < y.size(); ++n) {
    y[n] = std::inner_product(x, x + k, matrix.begin() + static_cast<std::ptrdiff_t>(n) * k, y[n]);
  }
  return y;
}

void normalise(double* x, const Doubles& weight) {
  const double squares = std::inner_product(x, x + weight.size(), x, 0.0);
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(weight.size()) + 1e-6);
  for (std::size_t i = 0; i < weight.size(); ++i) x[i] *= inverse * weight[i];
}

struct PlainMla {
  MlaConfig config;
  Doubles q_a{}, q_a_norm{}, q{}, kv_a{}, kv_a_norm{}, kv_b{}, o{};
  Doubles q_a_bias{}, kv_a_bias{}, o_bias{};

  void rotate(double* x, std::int64_t position) const {
    const std::int64_t half = config.rope_dim / 2;
    const bool neighbours = config.rope.form == RotaryForm::pairs;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(config.rope.theta, -static_cast<double>(i) / static_cast<double>(half));
      double& a = x[neighbours ? 2 * i : i];
      double& b = x[neighbours ? 2 * i + 1 : i + half];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a * std::sin(angle);
      a = turned;
    }
  }

  /// [rows, hidden] of one sequence; those of the last `wanted` rows.
  [[nodiscard]] Doubles forward(const Doubles& x, std::int64_t wanted) const {
    const std::int64_t rows = std::ssize(x) / kHidden;
    std::vector<Doubles> latents;
    for (std::int64_t row = 0; row < rows; ++row) {
      latents.push_back(times(x.data() + row * kHidden, kHidden, kv_a, kv_a_bias));
      normalise(latents.back().data(), kv_a_norm);
      rotate(latents.back().data() + config.latent, row);
    }
    Doubles y;
    for (std::int64_t row = rows - wanted; row < rows; ++row) {
      const Doubles attended = attend(x.data() + row * kHidden, latents, row);
      const Doubles result = times(attended.data(), std::ssize(attended), o, o_bias);
      y.insert(y.end(), result.begin(), result.end());
    }
    return y;
  }

  [[nodiscard]] Doubles attend(const double* x, const std::vector<Doubles>& latents,
                               std::int64_t row) const {
    Doubles inner(x, x + kHidden);
    if (config.query_rank > 0) {
      inner = times(x, kHidden, q_a, q_a_bias);
      normalise(inner.data(), q_a_norm);
    }
    Doubles queries = times(inner.data(), std::ssize(inner), q);
    Doubles attended;
    for (std::int64_t head = 0; head < config.num_heads; ++head) {
      double* const query = queries.data() + head * config.query_dim();
      rotate(query + config.nope_dim, row);
      Doubles sums(static_cast<std::size_t>(config.value_dim));
      double total = 0;
      for (std::int64_t key = 0; key <= row; ++key) {
        const Doubles& latent = latents[static_cast<std::size_t>(key)];
        const auto first =
            kv_b.begin() + head * (config.nope_dim + config.value_dim) * config.latent;
        const Doubles own(first, first + (config.nope_dim + config.value_dim) * config.latent);
        const Doubles made = times(latent.data(), config.latent, own);
        const double score =
            std::inner_product(made.begin(), made.begin() + config.nope_dim, query, 0.0) +
            std::inner_product(latent.begin() + config.latent, latent.end(),
                               query + config.nope_dim, 0.0);
        const double weight = std::exp(config.scale * score);
        total += weight;
        for (std::size_t d = 0; d < sums.size(); ++d) {
          sums[d] += weight * made[static_cast<std::size_t>(config.nope_dim) + d];
        }
      }
      for (const double sum : sums) attended.push_back(sum / total);
    }
    return attended;
  }
};

PlainMla make_mla(MlaConfig config) {
  config.hidden = kHidden;
  config.scale = 0.2;
  config.rope.rotary_dim = config.rope_dim;
  const std::int64_t inner = config.query_rank > 0 ? config.query_rank : kHidden;
  const std::int64_t values = config.num_heads * config.value_dim;
  PlainMla model{
      .config = config,
      .q = exact_numbers(config.num_heads * config.query_dim() * inner, 1, 0.3),
      .kv_a = exact_numbers(config.key_dim() * kHidden, 2, 0.3),
      .kv_a_norm = exact_numbers(config.latent, 3, 1),
      .kv_b = exact_numbers((config.num_heads * config.nope_dim + values) * config.latent, 4, 0.3),
      .o = exact_numbers(kHidden * values, 5, 0.3)};
  if (config.query_rank > 0) {
    model.q_a = exact_numbers(config.query_rank * kHidden, 6, 0.3);
    model.q_a_norm = exact_numbers(config.query_rank, 7, 1);
    if (config.bias) model.q_a_bias = exact_numbers(config.query_rank, 8, 1);
  }
  if (config.bias) {
    model.kv_a_bias = exact_numbers(config.key_dim(), 9, 1);
    model.o_bias = exact_numbers(kHidden, 10, 1);
  }
  return model;
}

/// Weights as a layer has them.
class MlaLayer {
 public:
  MlaLayer(const PlainMla& model, Precision precision) : set_(MlaWeight::kCount) {
    const MlaConfig& config = model.config;
    const auto matrix = [&](std::size_t at, const Doubles& values, std::int64_t depth) {
      if (values.empty()) return;
      packed_.push_back(pack_weight(values, depth, precision));
      set_[at].matrix = packed_.back().matrix;
    };
    matrix(MlaWeight::kQA, model.q_a, kHidden);
    matrix(MlaWeight::kQ, model.q, config.query_rank > 0 ? config.query_rank : kHidden);
    matrix(MlaWeight::kKvA, model.kv_a, kHidden);
    matrix(MlaWeight::kKeys, rows_of_heads(model, 0, config.nope_dim), config.latent);
    matrix(MlaWeight::kValues, rows_of_heads(model, config.nope_dim, config.value_dim),
           config.latent);
    matrix(MlaWeight::kOut, model.o, config.num_heads * config.value_dim);
    const auto vector = [&](std::size_t at, const Doubles& values) {
      vectors_.push_back(std::make_unique<std::vector<float>>(as_floats(values)));
      set_[at].vector = *vectors_.back();
    };
    vector(MlaWeight::kQABias, model.q_a_bias);
    vector(MlaWeight::kQANorm, model.q_a_norm);
    vector(MlaWeight::kKvABias, model.kv_a_bias);
    vector(MlaWeight::kKvANorm, model.kv_a_norm);
    vector(MlaWeight::kOutBias, model.o_bias);
  }

  [[nodiscard]] const WeightSet& set() const { return set_; }

 private:
  static Doubles rows_of_heads(const PlainMla& model, std::int64_t first, std::int64_t count) {
    const MlaConfig& config = model.config;
    Doubles rows;
    for (std::int64_t head = 0; head < config.num_heads; ++head) {
      const auto begin = model.kv_b.begin() +
                         (head * (config.nope_dim + config.value_dim) + first) * config.latent;
      rows.insert(rows.end(), begin, begin + count * config.latent);
    }
    return rows;
  }

  WeightSet set_;
  std::vector<PackedWeight> packed_;
  std::vector<std::unique_ptr<std::vector<float>>> vectors_;
};

struct MlaRun {
  Precision precision = Precision::f32;
  Isa isa = Isa::scalar;
  int threads = 1;
  std::int64_t chunk = 1 << 20;
  bool keeps = false;  // what a backward pass needs
};

/// Of one sequence.
std::vector<float> run_mla(const PlainMla& model, const Doubles& x, const MlaRun& run) {
  std::vector<float> y(x.size());
  run_thread_ranks(1, [&](Communicator& world) {
    const MlaLayer layer(model, run.precision);
    ThreadPool pool(run.threads);
    LayerContext context(
        {.compute = {.isa = run.isa, .vector = &find_vector_kernels(run.isa), .pool = &pool},
         .precision = run.precision,
         .hidden = kHidden},
        world);
    ModelConfig config;
    config.vocab_size = 9;
    config.layers.resize(1);
    config.layers[0].mixer = std::make_shared<const MlaKind>(model.config);
    KvPool cache(config, run.precision);
    Sequence sequence = cache.make_sequence(std::ssize(x) / kHidden);
    const std::unique_ptr<TokenMixer> mixer = config.layers[0].mixer->make_mixer(context);
    std::vector<float> rows = as_floats(x);
    const std::vector<std::int32_t> ids(rows.size() / kHidden);
    for (std::int64_t first = 0; first < std::ssize(ids); first += run.chunk) {
      const std::int64_t count = std::min(run.chunk, std::ssize(ids) - first);
      const SequenceChunk chunk{&sequence, std::span(ids).first(static_cast<std::size_t>(count))};
      Batch batch;
      batch.fill({&chunk, 1}, config.vocab_size);
      mixer->begin(batch);
      const std::unique_ptr<Stash> stash = run.keeps ? mixer->make_stash() : nullptr;
      mixer->forward({0, layer.set()}, batch,
                     {.x = {rows.data() + first * kHidden, count, kHidden},
                      .y = {y.data() + first * kHidden, count, kHidden},
                      .keep = stash.get()});
      if (run.keeps) {
        EXPECT_EQ(stash->bytes(), count * config.layers[0].mixer->kept_bytes());
      }
      sequence.advance(count);
    }
  });
  return y;
}

std::vector<MlaConfig> mla_configs() {
  const MlaConfig plain{
      .num_heads = 3, .latent = 20, .nope_dim = 16, .rope_dim = 6, .value_dim = 32};
  MlaConfig inner = plain;
  inner.query_rank = 14;
  inner.bias = true;
  inner.rope.form = RotaryForm::pairs;
  MlaConfig wide_values{.num_heads = 5,
                        .latent = 18,
                        .nope_dim = 32,
                        .rope_dim = 2,
                        .value_dim = 48,
                        .bias = true};  // wider than key and latent
  return {plain, inner, wide_values};
}

TEST(MlaAttention, is_what_keys_and_values_of_every_head_give) {
  for (const MlaConfig& config : mla_configs()) {
    const PlainMla model = make_mla(config);
    const Doubles x = exact_numbers(70 * kHidden, 20, 1);
    const Doubles expected = model.forward(x, 70);
    EXPECT_LT(relative_distance(run_mla(model, x, {}), expected), 1e-6);
    EXPECT_EQ(run_mla(model, x, {.keeps = true}), run_mla(model, x, {}));
    for (const Isa isa : supported_isas()) {
      const auto rounded = run_mla(model, x, {.precision = Precision::bf16, .isa = isa});
      EXPECT_LT(relative_distance(rounded, expected), 2e-2) << isa_name(isa);
    }
  }
}

// Several segments of keys, which single tokens share out over threads.
TEST(MlaAttention, bits_do_not_depend_on_chunks_threads_or_instruction_set) {
  for (MlaConfig config : mla_configs()) {
    const Doubles x = exact_numbers(1040 * kHidden, 21, 1);
    const PlainMla model = make_mla(config);
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const auto expected =
          run_mla(model, x, {.precision = precision, .isa = supported_isas().back()});
      for (const Isa isa : tile_order_isas()) {
        EXPECT_EQ(run_mla(model, x, {precision, isa, 3, 300}), expected) << isa_name(isa);
      }
      EXPECT_EQ(run_mla(model, x, {precision, supported_isas().back(), 2, 1}), expected);
    }
  }
}

TEST(MlaAttention, more_heads_than_share_a_pass_over_keys_give_the_same_bits) {
  const PlainMla model =
      make_mla({.num_heads = 134, .latent = 16, .nope_dim = 16, .rope_dim = 4, .value_dim = 16});
  const Doubles x = exact_numbers(40 * kHidden, 22, 1);
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const auto expected = run_mla(model, x, {.precision = precision});
    EXPECT_LT(relative_distance(expected, model.forward(x, 40)),
              precision == Precision::f32 ? 1e-6 : 2e-2);
    for (const Isa isa : tile_order_isas()) {
      EXPECT_EQ(run_mla(model, x, {precision, isa, 3, 7}), expected) << isa_name(isa);
    }
  }
}

TEST(MlaAttention, heads_are_shared_out_where_tokens_are_few) {
  const auto parts = [](std::int64_t heads, std::int64_t tokens, int threads) {
    MlaConfig config;
    config.num_heads = heads;
    const AttentionShape shape = config.shape(tokens, threads);
    EXPECT_EQ(shape.kv_heads * shape.group, heads);
    return shape.kv_heads;
  };
  EXPECT_EQ(parts(128, 1000, 1), 2) << "rows of a pass";
  EXPECT_EQ(parts(128, 1, 16), 16);
  EXPECT_EQ(parts(128, 1, 64), 16) << "fewer heads read all keys for too little";
  EXPECT_EQ(parts(128, 2, 8), 4);
  EXPECT_EQ(parts(16, 1, 2), 2);
  EXPECT_EQ(parts(16, 100, 2), 1);
  EXPECT_EQ(parts(134, 1, 1), 67) << "as a number has divisors";
  EXPECT_EQ(parts(1, 1, 8), 1);
}

// Rows of heads are parts of a packed matrix, also where its codes are made of it. (The error is
// that of all dense weights.)
TEST(MlaAttention, weights_may_be_in_any_format) {
  const std::string model = MOESAIC_TEST_DATA "/models/deepseek_v3-v4";
  const GoldenLogits golden = read_golden_logits(model + "/golden.safetensors");
  for (const std::string_view name : kLayoutNames) {
    EngineSetup setup{.directory = model, .isa = Isa::scalar};
    setup.layouts.dense = layout_from_name(name);
    const bool is_coarse = name.find("int4") == 0 || name.find("fp4") != std::string_view::npos;
    const auto expected = logits_on_ranks(1, setup, golden.input_ids);
    EXPECT_LE(relative_l2(expected, golden.logits), is_coarse ? 0.6 : 0.25) << name;
    setup.threads = 3;
    for (const Isa isa : tile_order_isas()) {
      setup.isa = isa;
      EXPECT_EQ(logits_on_ranks(1, setup, golden.input_ids, 7), expected)
          << name << " " << isa_name(isa);
    }
  }
}

}  // namespace
}  // namespace moesaic
