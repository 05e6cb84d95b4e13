// Gradients through gated delta nets, by finite differences of a definition in double precision.

#include "src/model/delta_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "comm/thread_communicator.h"
#include "src/lora/adapter_set.h"
#include "src/model/delta_net.h"
#include "src/model/kv_pool.h"
#include "src/model/model_config.h"
#include "tests/model/naive_delta.h"
#include "tests/model/packed_weight.h"
#include "tests/support/slopes.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

/// Some samples; the loss is the sum of y times dy.
struct DeltaProblem {
  NaiveDelta model;
  std::vector<std::int64_t> samples;  // tokens of each
  Doubles x, dy;                      // [rows, hidden]

  [[nodiscard]] std::int64_t rows() const {
    return std::accumulate(samples.begin(), samples.end(), std::int64_t{0});
  }
  [[nodiscard]] DeltaProblem sample(std::size_t index) const {
    const std::int64_t first = std::accumulate(
        samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(index), std::int64_t{0});
    const auto part = [&](const Doubles& all) {
      const double* const begin = all.data() + first * model.config.hidden;
      return Doubles(begin, begin + samples[index] * model.config.hidden);
    };
    return {model, {samples[index]}, part(x), part(dy)};
  }
  [[nodiscard]] Doubles results() const {
    Doubles all;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const Doubles y = model.forward(sample(i).x);
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  }
  /// By every `stride`-th element of `values`, which are part of this problem.
  [[nodiscard]] Doubles slopes(Doubles& values, std::size_t stride) {
    const auto loss = [&] { return product(results().data(), dy.data(), std::ssize(dy)); };
    return moesaic::slopes(values, loss, stride);
  }
};

DeltaProblem make_delta_problem(DeltaConfig config, std::vector<std::int64_t> samples) {
  config.hidden = 10;
  config.rms_norm_eps = 1e-5;
  const std::int64_t in = config.projected_width();
  const std::int64_t heads = config.value_heads;
  NaiveDelta model{.config = config,
                   .in = exact_numbers(in * config.hidden, 1, 0.5),
                   .rates = exact_numbers(2 * heads * config.hidden, 2, 0.5),
                   .out = exact_numbers(config.hidden * config.value_width(), 3, 0.5),
                   .convolution = exact_numbers(config.taps * config.channels(), 4, 0.7),
                   .decay_logs = exact_numbers(heads, 5, 0.5),
                   .step_bias = exact_numbers(heads, 6, 1),
                   .norm = exact_numbers(config.value_dim, 7, 1)};
  for (double& log : model.decay_logs) log -= 2;  // states last for some tokens
  const auto adapter = [&](DeltaWeight::Place place, std::int64_t first, std::int64_t rows,
                           std::int64_t depth) {
    const auto seed = static_cast<unsigned>(20 + 2 * model.adapters.size());
    model.adapters.push_back({.place = place,
                              .first_row = first,
                              .rows = rows,
                              .rank = 3,
                              .scale = 1.5,
                              .a = exact_numbers(3 * depth, seed, 0.3),
                              .b = exact_numbers(rows * 3, seed + 1, 0.3)});
  };
  if (config.form == DeltaForm::separate) {
    adapter(DeltaWeight::kIn, 0, config.channels(), config.hidden);
    adapter(DeltaWeight::kIn, config.channels(), config.value_width(), config.hidden);
    adapter(DeltaWeight::kRates, 0, heads, config.hidden);
    adapter(DeltaWeight::kRates, heads, heads, config.hidden);
  } else {
    adapter(DeltaWeight::kIn, 0, in, config.hidden);
    adapter(DeltaWeight::kRates, 0, 2 * heads, config.hidden);
  }
  adapter(DeltaWeight::kOut, 0, config.hidden, config.value_width());
  DeltaProblem problem{.model = model, .samples = std::move(samples), .x = {}, .dy = {}};
  problem.x = exact_numbers(problem.rows() * config.hidden, 8, 1);
  problem.dy = exact_numbers(problem.rows() * config.hidden, 9, 1);
  return problem;
}

/// Weights and adapters as a layer has them.
class DeltaLayer {
 public:
  DeltaLayer(const NaiveDelta& model, Precision precision) : set_(DeltaWeight::kCount) {
    const auto keep_matrix = [&](DeltaWeight::Place place, const Doubles& values,
                                 std::int64_t depth, Precision its) {
      packed_.push_back(std::make_unique<PackedWeight>(pack_weight(values, depth, its)));
      set_[place].matrix = packed_.back()->matrix;
    };
    keep_matrix(DeltaWeight::kIn, model.in, model.config.hidden, precision);
    keep_matrix(DeltaWeight::kRates, model.rates, model.config.hidden, Precision::f32);
    keep_matrix(DeltaWeight::kOut, model.out, model.config.value_width(), precision);
    const auto keep_vector = [&](DeltaWeight::Place place, const Doubles& values) {
      vectors_.push_back(std::make_unique<Floats>(as_floats(values)));
      set_[place].vector = *vectors_.back();
    };
    keep_vector(DeltaWeight::kConvolution, model.convolution);
    keep_vector(DeltaWeight::kDecayLogs, model.decay_logs);
    keep_vector(DeltaWeight::kStepBias, model.step_bias);
    keep_vector(DeltaWeight::kNorm, model.norm);
    add_adapters(model, precision);
  }

  [[nodiscard]] const WeightSet& set() const { return set_; }
  [[nodiscard]] const std::vector<AdapterPlace>& places() const { return adapters_->places(); }

 private:
  void add_adapters(const NaiveDelta& model, Precision precision) {
    std::vector<AdapterSpec> specs;
    const auto count = [&](DeltaWeight::Place place) {
      return std::ranges::count(model.adapters, place, &NaiveDeltaAdapter::place);
    };
    for (const NaiveDeltaAdapter& adapter : model.adapters) {
      const std::int64_t stacked = set_[adapter.place].matrix.rows;
      specs.push_back({.site = {.module = std::to_string(specs.size()),
                                .first_row = adapter.first_row,
                                .stacked_rows = count(adapter.place) > 1 ? stacked : 0,
                                .out = adapter.rows,
                                .in = std::ssize(adapter.a) / adapter.rank},
                       .rank = adapter.rank,
                       .scale = static_cast<float>(adapter.scale)});
    }
    adapters_.emplace(specs, weight_format(precision));
    for (std::int64_t i = 0; i < adapters_->size(); ++i) {
      const NaiveDeltaAdapter& adapter = model.adapters[static_cast<std::size_t>(i)];
      std::ranges::copy(as_floats(adapter.a), adapters_->factors(i).a.data());
      std::ranges::copy(as_floats(adapter.b), adapters_->factors(i).b.data());
    }
    ThreadPool pool(1);
    adapters_->pack(pool);
    std::int64_t first = 0;
    for (const DeltaWeight::Place place :
         {DeltaWeight::kIn, DeltaWeight::kRates, DeltaWeight::kOut}) {
      set_[place].adapter = &adapters_->of_matrix(first, count(place));
      first += count(place);
    }
  }

  WeightSet set_;
  std::vector<std::unique_ptr<Floats>> vectors_;
  std::vector<std::unique_ptr<PackedWeight>> packed_;
  std::optional<AdapterSet> adapters_;
};

struct DeltaRun {
  Precision precision = Precision::f32;
  Isa isa = Isa::scalar;
  int threads = 1;
};

struct DeltaResult {
  Floats y, y_kept, dx;
  std::vector<std::int64_t> sums;  // of AdapterGradients
  std::int64_t kept_bytes = 0;
};

DeltaResult run_rank(const DeltaProblem& problem, const DeltaRun& run, Communicator& world) {
  const DeltaConfig& delta = problem.model.config;
  const DeltaLayer layer(problem.model, run.precision);
  ThreadPool pool(run.threads);
  LayerContext context(
      {.compute = {.isa = run.isa, .vector = &find_vector_kernels(run.isa), .pool = &pool},
       .precision = run.precision,
       .hidden = delta.hidden},
      world);
  ModelConfig model;
  model.vocab_size = 9;
  model.hidden_size = delta.hidden;
  model.layers.resize(1);
  model.layers[0].mixer = std::make_shared<const DeltaKind>(delta);
  KvPool cache(model, run.precision);
  const std::vector<std::int32_t> ids(static_cast<std::size_t>(problem.rows()));
  std::vector<Sequence> sequences;
  std::vector<SampleRange> samples;
  std::int64_t rows = 0;
  for (const std::int64_t tokens : problem.samples) {
    sequences.push_back(cache.make_sequence(tokens));
    samples.push_back({rows, tokens});
    rows += tokens;
  }
  std::vector<SequenceChunk> chunks;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    chunks.push_back(
        {&sequences[i], std::span(ids).first(static_cast<std::size_t>(samples[i].num_rows))});
  }
  Batch batch;
  batch.fill(chunks, model.vocab_size);
  const std::unique_ptr<TokenMixer> mixer = make_delta_net(delta, context);
  mixer->begin(batch);
  Floats x = as_floats(problem.x);
  Floats dy = as_floats(problem.dy);
  const auto matrix = [&](Floats& values) {
    return MatrixView<float>(values.data(), rows, delta.hidden);
  };
  const Floats zeros(x.size());
  DeltaResult result{.y = zeros, .y_kept = zeros, .dx = zeros, .sums = {}};
  const MixerLayer at{0, layer.set()};
  const std::unique_ptr<Stash> stash = mixer->make_stash();
  mixer->forward(at, batch, {.x = matrix(x), .y = matrix(result.y)});
  for (const Sequence& sequence : sequences) sequence.clear_state(0);
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

DeltaResult run_delta(const DeltaProblem& problem, const DeltaRun& run) {
  DeltaResult result;
  run_thread_ranks(1, [&](Communicator& world) { result = run_rank(problem, run, world); });
  return result;
}

/// Every `stride`-th of some sums, as gradients.
Floats some(std::span<const std::int64_t> sums, std::size_t stride) {
  Floats found;
  for (std::size_t i = 0; i < sums.size(); i += stride) {
    found.push_back(static_cast<float>(AdapterGradients::value(sums[i])));
  }
  return found;
}

struct NamedDelta {
  std::string name;
  DeltaConfig config;
  std::vector<std::int64_t> samples;
  std::size_t stride;  // of the elements that are compared
};
std::vector<NamedDelta> delta_problems() {
  const DeltaConfig shared{
      .key_heads = 2, .value_heads = 4, .key_dim = 6, .value_dim = 5, .taps = 4};
  DeltaConfig separate = shared;
  separate.form = DeltaForm::separate;
  const DeltaConfig wide{
      .key_heads = 1, .value_heads = 1, .key_dim = 18, .value_dim = 21, .taps = 1};
  return {{"by_key_head", shared, {7, 1, 5}, 1},
          {"separate", separate, {7, 1, 5}, 1},
          {"several_chunks", separate, {130, 64, 65}, 97},
          {"wide_heads", wide, {9, 2}, 7}};
}

class DeltaGradientOf : public testing::TestWithParam<NamedDelta> {
 protected:
  DeltaProblem problem_ = make_delta_problem(GetParam().config, GetParam().samples);
};

INSTANTIATE_TEST_SUITE_P(EveryForm, DeltaGradientOf, testing::ValuesIn(delta_problems()),
                         [](const auto& test) { return test.param.name; });

TEST_P(DeltaGradientOf, is_what_finite_differences_give) {
  const std::size_t stride = GetParam().stride;
  const DeltaResult result = run_delta(problem_, {});
  EXPECT_EQ(result.y, result.y_kept);
  EXPECT_LT(relative_distance(result.y, problem_.results()), 2e-6);
  Floats dx;
  for (std::size_t i = 0; i < result.dx.size(); i += stride) dx.push_back(result.dx[i]);
  EXPECT_LT(relative_distance(dx, problem_.slopes(problem_.x, stride)), 1e-5);
  std::span<const std::int64_t> sums = result.sums;
  for (NaiveDeltaAdapter& adapter : problem_.model.adapters) {
    for (Doubles* const factor : {&adapter.a, &adapter.b}) {
      EXPECT_LT(relative_distance(some(sums.first(factor->size()), stride),
                                  problem_.slopes(*factor, stride)),
                1e-5)
          << adapter.place << " " << adapter.first_row;
      sums = sums.subspan(factor->size());
    }
  }
  EXPECT_TRUE(sums.empty());
}

TEST_P(DeltaGradientOf, in_bf16_is_near) {
  const DeltaResult exact = run_delta(problem_, {});
  for (const Isa isa : supported_isas()) {
    const DeltaResult result = run_delta(problem_, {.precision = Precision::bf16, .isa = isa});
    EXPECT_LT(relative_distance(result.dx, {exact.dx.begin(), exact.dx.end()}), 3e-2)
        << isa_name(isa);
    const Floats sums = some(exact.sums, 1);
    EXPECT_LT(relative_distance(some(result.sums, 1), {sums.begin(), sums.end()}), 3e-2)
        << isa_name(isa);
  }
}

TEST_P(DeltaGradientOf, has_the_same_bits_with_threads_and_instruction_sets) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const DeltaResult one = run_delta(problem_, {.precision = precision});
    for (const Isa isa : tile_order_isas()) {
      const DeltaResult other =
          run_delta(problem_, {.precision = precision, .isa = isa, .threads = 3});
      EXPECT_EQ(one.dx, other.dx) << isa_name(isa);
      EXPECT_EQ(one.sums, other.sums) << isa_name(isa);
    }
  }
}

TEST_P(DeltaGradientOf, has_the_same_bits_sample_by_sample) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    const DeltaResult all = run_delta(problem_, {.precision = precision});
    Floats dx;
    std::vector<std::int64_t> sums(all.sums.size());
    for (std::size_t i = 0; i < problem_.samples.size(); ++i) {
      const DeltaResult one = run_delta(problem_.sample(i), {.precision = precision});
      dx.insert(dx.end(), one.dx.begin(), one.dx.end());
      for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += one.sums[j];
    }
    EXPECT_EQ(dx, all.dx);
    EXPECT_EQ(sums, all.sums);
  }
}

TEST_P(DeltaGradientOf, keeps_what_the_kind_says) {
  const DeltaKind kind(problem_.model.config);
  EXPECT_EQ(run_delta(problem_, {}).kept_bytes, problem_.rows() * kind.kept_bytes());
}

}  // namespace
}  // namespace moesaic
