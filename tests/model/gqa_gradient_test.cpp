#include "src/model/gqa_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "base/dtype.h"
#include "comm/thread_communicator.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "src/lora/adapter_set.h"
#include "src/model/gqa_attention.h"
#include "src/model/kv_pool.h"
#include "src/model/model_config.h"
#include "tests/model/naive_gqa.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

using Floats = std::vector<float>;

/// Exact in bf16, so that weights are the same in both precisions.
Doubles numbers(std::int64_t count, unsigned seed, double scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution(0, scale);
  Doubles out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(to_float(to_bfloat16(static_cast<float>(distribution(generator)))));
  }
  return out;
}
Floats as_floats(const Doubles& values) {
  return {values.begin(), values.end()};
}

/// The loss is the sum of y times dy.
struct Problem {
  NaiveGqa model;
  std::vector<std::int64_t> samples;  // tokens of each
  Doubles x, dy;                      // [rows, hidden]

  [[nodiscard]] std::int64_t rows() const {
    std::int64_t sum = 0;
    for (const std::int64_t tokens : samples) sum += tokens;
    return sum;
  }
  [[nodiscard]] Problem sample(std::size_t index) const {
    std::int64_t first = 0;
    for (std::size_t i = 0; i < index; ++i) first += samples[i];
    const auto part = [&](const Doubles& all) {
      const auto* const begin = all.data() + first * model.config.hidden;
      return Doubles(begin, begin + samples[index] * model.config.hidden);
    };
    return {model, {samples[index]}, part(x), part(dy)};
  }
  [[nodiscard]] double loss() const {
    double sum = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Problem one = sample(i);
      const Doubles y = model.forward(one.x);
      for (std::size_t j = 0; j < y.size(); ++j) sum += y[j] * one.dy[j];
    }
    return sum;
  }
  /// By central differences. `values` are part of this problem.
  [[nodiscard]] Doubles slopes(Doubles& values) {
    constexpr double kStep = 1e-5;
    Doubles out;
    for (double& value : values) {
      const double x0 = value;
      value = x0 + kStep;
      const double above = loss();
      value = x0 - kStep;
      out.push_back((above - loss()) / (2 * kStep));
      value = x0;
    }
    return out;
  }
};

Problem make_problem(GqaConfig config, std::vector<std::int64_t> samples) {
  config.hidden = 10;
  config.rms_norm_eps = 1e-5;
  config.scale = 0.3;
  if (config.rope.rotary_dim == 0) config.rope.rotary_dim = config.head_dim;
  const std::int64_t width = config.q_width() + 2 * config.kv_width();
  NaiveGqa model{.config = config,
                 .qkv = numbers(width * config.hidden, 1, 0.5),
                 .o = numbers(config.hidden * config.q_width(), 2, 0.5)};
  if (config.qkv_bias) model.qkv_bias = numbers(width, 3, 1);
  if (config.o_bias) model.o_bias = numbers(config.hidden, 4, 1);
  if (config.qk_norm != QkNorm::none) {
    const bool whole = config.qk_norm == QkNorm::whole;
    model.q_norm = numbers(whole ? config.q_width() : config.head_dim, 5, 1);
    model.k_norm = numbers(whole ? config.kv_width() : config.head_dim, 6, 1);
  }
  const auto adapter = [&](bool of_output, std::int64_t first, std::int64_t rows, unsigned seed) {
    const std::int64_t in = of_output ? config.q_width() : config.hidden;
    model.adapters.push_back({.of_output = of_output,
                              .first_row = first,
                              .rows = rows,
                              .rank = 3,
                              .scale = 1.5,
                              .a = numbers(3 * in, seed, 0.3),
                              .b = numbers(rows * 3, seed + 1, 0.3)});
  };
  adapter(false, 0, config.q_width(), 20);
  adapter(false, config.q_width(), config.kv_width(), 30);
  adapter(false, config.q_width() + config.kv_width(), config.kv_width(), 40);
  adapter(true, 0, config.hidden, 50);
  Problem problem{.model = model, .samples = std::move(samples), .x = {}, .dy = {}};
  problem.x = numbers(problem.rows() * config.hidden, 7, 1);
  problem.dy = numbers(problem.rows() * config.hidden, 8, 1);
  return problem;
}

struct PackedWeight {
  PackedMatrix matrix{};
  Buffer<std::byte> memory;
};

PackedWeight pack(const Doubles& values, std::int64_t depth, Precision precision) {
  const Format format = weight_format(precision);
  PackedWeight packed{
      .matrix = {.layout = {.format = format}, .rows = std::ssize(values) / depth, .depth = depth},
      .memory = {}};
  packed.memory = Buffer<std::byte>(packed.matrix.bytes());
  packed.matrix.panels = packed.memory.data();
  const Floats floats = as_floats(values);
  std::vector<BFloat16> halves;
  for (const float x : floats) halves.push_back(to_bfloat16(x));
  for (std::int64_t panel = 0; panel < packed.matrix.num_panels(); ++panel) {
    std::vector<const float*> rows;
    std::vector<const BFloat16*> half_rows;
    for (std::int64_t row = panel * 16; row < std::min(packed.matrix.rows, panel * 16 + 16);
         ++row) {
      rows.push_back(floats.data() + row * depth);
      half_rows.push_back(halves.data() + row * depth);
    }
    std::byte* const to = packed.memory.data() + panel * packed.matrix.panel_stride();
    if (format == Format::f32) {
      f32_format::pack_panel(rows, depth, reinterpret_cast<float*>(to));
    } else {
      bf16_format::pack_panel(half_rows, depth, reinterpret_cast<BFloat16*>(to));
    }
  }
  return packed;
}

/// What a run is to be like.
struct Run {
  Precision precision = Precision::f32;
  Isa isa = Isa::scalar;
  int threads = 1;
};

struct Result {
  Floats y, y_kept, dx;
  std::vector<std::int64_t> sums;  // of AdapterGradients
  std::int64_t kept_bytes = 0;
};

/// Weights and adapters as a layer has them.
class GqaLayer {
 public:
  GqaLayer(const NaiveGqa& model, Precision precision) : set_(kKNorm + 1) {
    const auto keep_vector = [&](std::size_t at, const Doubles& values) {
      vectors_.push_back(std::make_unique<Floats>(as_floats(values)));
      set_[at].vector = *vectors_.back();
    };
    keep_vector(kQkvBias, model.qkv_bias);
    keep_vector(kOBias, model.o_bias);
    keep_vector(kQNorm, model.q_norm);
    keep_vector(kKNorm, model.k_norm);
    const auto keep_matrix = [&](const Doubles& values, std::int64_t depth) {
      packed_.push_back(std::make_unique<PackedWeight>(pack(values, depth, precision)));
      return packed_.back()->matrix;
    };
    set_[kQkv].matrix = keep_matrix(model.qkv, model.config.hidden);
    set_[kO].matrix = keep_matrix(model.o, model.config.q_width());
    const std::int64_t joined = model.config.q_width() + 2 * model.config.kv_width();
    std::vector<AdapterSpec> specs;
    for (const NaiveAdapter& adapter : model.adapters) {
      specs.push_back({.site = {.module = std::to_string(specs.size()),
                                .first_row = adapter.first_row,
                                .joined_rows = adapter.of_output ? 0 : joined,
                                .out = adapter.rows,
                                .in = std::ssize(adapter.a) / adapter.rank},
                       .rank = adapter.rank,
                       .scale = static_cast<float>(adapter.scale)});
    }
    adapters_.emplace(specs, weight_format(precision));
    for (std::int64_t i = 0; i < adapters_->size(); ++i) {
      const NaiveAdapter& adapter = model.adapters[static_cast<std::size_t>(i)];
      std::ranges::copy(as_floats(adapter.a), adapters_->factors(i).a.data());
      std::ranges::copy(as_floats(adapter.b), adapters_->factors(i).b.data());
    }
    ThreadPool pool(1);
    adapters_->pack(pool);
    const auto parts = static_cast<std::int64_t>(std::ranges::count(
        model.adapters, false, [](const NaiveAdapter& adapter) { return adapter.of_output; }));
    set_[kQkv].adapter = &adapters_->of_matrix(0, parts);
    set_[kO].adapter = &adapters_->of_matrix(parts, 1);
  }

  [[nodiscard]] const WeightSet& set() const { return set_; }
  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return adapters_->places(); }

 private:
  WeightSet set_;
  std::vector<std::unique_ptr<Floats>> vectors_;
  std::vector<std::unique_ptr<PackedWeight>> packed_;
  std::optional<AdapterSet> adapters_;
};

Result run_rank(const Problem& problem, const Run& run, Communicator& world) {
  const GqaConfig& gqa = problem.model.config;
  const auto kind = std::make_shared<const GqaKind>(gqa);
  const GqaLayer layer(problem.model, run.precision);
  ThreadPool pool(run.threads);
  LayerContext context(
      {.compute = {.isa = run.isa, .vector = &find_vector_kernels(run.isa), .pool = &pool},
       .precision = run.precision,
       .hidden = gqa.hidden},
      world);
  ModelConfig model;
  model.vocab_size = 9;
  model.hidden_size = gqa.hidden;
  model.layers.resize(1);
  model.layers[0].mixer = kind;
  KvPool cache(model, run.precision);
  std::vector<Sequence> sequences;
  std::vector<SampleRange> samples;
  std::int64_t rows = 0;
  for (const std::int64_t tokens : problem.samples) {
    sequences.push_back(cache.make_sequence(tokens));
    samples.push_back({rows, tokens});
    rows += tokens;
  }
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(rows));
  std::vector<SequenceChunk> chunks;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    chunks.push_back(
        {&sequences[i], std::span(ids).first(static_cast<std::size_t>(samples[i].num_rows))});
  }
  Batch batch;
  batch.fill(chunks, model.vocab_size);
  const std::unique_ptr<TokenMixer> mixer = make_gqa_attention(gqa, context);
  mixer->begin(batch);
  Floats x = as_floats(problem.x);
  Floats dy = as_floats(problem.dy);
  const auto matrix = [&](Floats& values) {
    return MatrixView<float>(values.data(), rows, gqa.hidden);
  };
  const Floats zeros(x.size());
  Result result{.y = zeros, .y_kept = zeros, .dx = zeros, .sums = {}};
  const MixerLayer at{0, layer.set()};
  const std::unique_ptr<Stash> stash = mixer->make_stash();
  mixer->forward(at, batch, {.x = matrix(x), .y = matrix(result.y)});
  mixer->forward(at, batch, {.x = matrix(x), .y = matrix(result.y_kept), .keep = stash.get()});
  AdapterGradients gradients(layer.places(), find_vector_kernels(Isa::scalar));
  mixer->backward(at, batch, *stash,
                  {.x = matrix(x),
                   .dy = matrix(dy),
                   .dx = matrix(result.dx),
                   .samples = samples,
                   .adapters = gradients});
  result.sums.assign(gradients.sums().begin(), gradients.sums().end());
  result.kept_bytes = stash->bytes();
  return result;
}

Result run(const Problem& problem, const Run& run) {
  Result result;
  run_thread_ranks(1, [&](Communicator& world) { result = run_rank(problem, run, world); });
  return result;
}

/// |a - b| / |b|
double distance(const Doubles& a, const Doubles& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}
Doubles as_doubles(const Floats& values) {
  return {values.begin(), values.end()};
}

/// The gradients of the adapters' factors, one after the other, A before B.
std::vector<Doubles> factor_gradients(const Problem& problem, const Result& result) {
  std::vector<Doubles> out;
  std::size_t at = 0;
  for (const NaiveAdapter& adapter : problem.model.adapters) {
    for (const Doubles* factor : {&adapter.a, &adapter.b}) {
      out.emplace_back();
      for (std::size_t i = 0; i < factor->size(); ++i) {
        out.back().push_back(AdapterGradients::value(result.sums[at++]));
      }
    }
  }
  return out;
}

struct NamedConfig {
  std::string name;
  GqaConfig config;
};
std::vector<NamedConfig> gqa_configs() {
  const GqaConfig shared{.num_heads = 4, .num_kv_heads = 2, .head_dim = 6};
  GqaConfig per_head = shared;
  per_head.qk_norm = QkNorm::per_head;
  GqaConfig whole = shared;
  whole.qk_norm = QkNorm::whole;
  whole.clip_qkv = 1.1;
  GqaConfig clipped_heads = per_head;
  clipped_heads.clip_qkv = 1.3;
  GqaConfig biased = shared;
  biased.qkv_bias = biased.o_bias = true;
  biased.window = 3;
  GqaConfig single{.num_heads = 3, .num_kv_heads = 3, .head_dim = 8};
  single.rope.rotary_dim = 4;
  return {{"shared_keys", shared},          {"norms_of_heads", per_head},
          {"norms_of_all_and_clip", whole}, {"clip_and_norms_of_heads", clipped_heads},
          {"biases_and_window", biased},    {"own_keys_half_rotated", single}};
}

class GqaGradientTest : public testing::TestWithParam<NamedConfig> {
 protected:
  Problem problem_ = make_problem(GetParam().config, {7, 1, 5});
};

INSTANTIATE_TEST_SUITE_P(EveryKind, GqaGradientTest, testing::ValuesIn(gqa_configs()),
                         [](const auto& test) { return test.param.name; });

TEST_P(GqaGradientTest, is_what_finite_differences_give) {
  const Result result = run(problem_, {});
  EXPECT_EQ(result.y, result.y_kept);
  EXPECT_LT(distance(as_doubles(result.dx), problem_.slopes(problem_.x)), 1e-5);
  const std::vector<Doubles> gradients = factor_gradients(problem_, result);
  for (std::size_t i = 0; i < problem_.model.adapters.size(); ++i) {
    NaiveAdapter& adapter = problem_.model.adapters[i];
    EXPECT_LT(distance(gradients[2 * i], problem_.slopes(adapter.a)), 1e-5) << i;
    EXPECT_LT(distance(gradients[2 * i + 1], problem_.slopes(adapter.b)), 1e-5) << i;
  }
}

TEST_P(GqaGradientTest, in_bf16_is_near) {
  const Result exact = run(problem_, {});
  for (const Isa isa : supported_isas()) {
    const Result result = run(problem_, {.precision = Precision::bf16, .isa = isa});
    EXPECT_LT(distance(as_doubles(result.dx), as_doubles(exact.dx)), 2e-2) << isa_name(isa);
    const std::vector<Doubles> gradients = factor_gradients(problem_, result);
    const std::vector<Doubles> expected = factor_gradients(problem_, exact);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      EXPECT_LT(distance(gradients[i], expected[i]), 2e-2) << i << " " << isa_name(isa);
    }
  }
}

TEST_P(GqaGradientTest, has_the_same_bits_with_threads_and_instruction_sets) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const Result one = run(problem_, {.precision = precision});
    for (const Isa isa : tile_order_isas()) {
      const Result other = run(problem_, {.precision = precision, .isa = isa, .threads = 3});
      EXPECT_EQ(one.dx, other.dx) << isa_name(isa);
      EXPECT_EQ(one.sums, other.sums) << isa_name(isa);
    }
  }
}

TEST_P(GqaGradientTest, has_the_same_bits_sample_by_sample) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const Result all = run(problem_, {.precision = precision});
    Floats dx;
    std::vector<std::int64_t> sums(all.sums.size());
    for (std::size_t i = 0; i < problem_.samples.size(); ++i) {
      const Result one = run(problem_.sample(i), {.precision = precision});
      dx.insert(dx.end(), one.dx.begin(), one.dx.end());
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += one.sums[j];
    }
    EXPECT_EQ(dx, all.dx);
    EXPECT_EQ(sums, all.sums);
  }
}

// Rows whose keys are several segments: with few heads these are cut for the threads.
TEST(LongSampleGradient, has_the_same_bits_with_any_threads) {
  GqaConfig config{.num_heads = 2, .num_kv_heads = 1, .head_dim = 6};
  for (const std::int64_t window : {0, 1025}) {
    config.window = window;
    const Problem problem = make_problem(config, {1030});
    for (const Precision precision : {Precision::f32, Precision::bf16}) {
      const Result one = run(problem, {.precision = precision});
      const Result other =
          run(problem, {.precision = precision, .isa = tile_order_isas().back(), .threads = 9});
      EXPECT_EQ(one.y, other.y) << window;
      EXPECT_EQ(one.y, other.y_kept) << window;
      EXPECT_EQ(one.dx, other.dx) << window;
      EXPECT_EQ(one.sums, other.sums) << window;
    }
  }
}

TEST_P(GqaGradientTest, keeps_what_the_kind_says) {
  const GqaKind kind(problem_.model.config);
  EXPECT_EQ(run(problem_, {}).kept_bytes, problem_.rows() * kind.kept_bytes());
}

}  // namespace
}  // namespace moesaic
