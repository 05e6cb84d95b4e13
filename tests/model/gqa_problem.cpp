#include "tests/model/gqa_problem.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "comm/thread_communicator.h"
#include "src/lora/adapter_set.h"
#include "src/model/gqa_attention.h"
#include "src/model/kv_pool.h"
#include "src/model/model_config.h"
#include "tests/model/packed_weight.h"

namespace moesaic {
namespace {

/// Weights and adapters as a layer has them.
class GqaLayer {
 public:
  GqaLayer(const NaiveGqa& model, Precision precision) : set_(kSinks + 1) {
    const auto keep_vector = [&](std::size_t at, const Doubles& values) {
      vectors_.push_back(std::make_unique<Floats>(as_floats(values)));
      set_[at].vector = *vectors_.back();
    };
    keep_vector(kQkvBias, model.qkv_bias);
    keep_vector(kOBias, model.o_bias);
    keep_vector(kQNorm, model.q_norm);
    keep_vector(kKNorm, model.k_norm);
    keep_vector(kSinks, model.sinks);
    const auto keep_matrix = [&](const Doubles& values, std::int64_t depth) {
      packed_.push_back(std::make_unique<PackedWeight>(pack_weight(values, depth, precision)));
      return packed_.back()->matrix;
    };
    set_[kQkv].matrix = keep_matrix(model.qkv, model.config.hidden);
    set_[kO].matrix = keep_matrix(model.o, model.config.q_width());
    const std::int64_t stacked = model.config.projected_width();
    std::vector<AdapterSpec> specs;
    for (const NaiveAdapter& adapter : model.adapters) {
      specs.push_back({.site = {.module = std::to_string(specs.size()),
                                .first_row = adapter.first_row,
                                .stacked_rows = adapter.of_output ? 0 : stacked,
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

GqaResult run_rank(const GqaProblem& problem, const GqaRun& run, Communicator& world) {
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
  GqaResult result{.y = zeros, .y_kept = zeros, .dx = zeros, .sums = {}};
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

}  // namespace

std::int64_t GqaProblem::rows() const {
  std::int64_t sum = 0;
  for (const std::int64_t tokens : samples) sum += tokens;
  return sum;
}

GqaProblem GqaProblem::sample(std::size_t index) const {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < index; ++i) first += samples[i];
  const auto part = [&](const Doubles& all) {
    const auto* const begin = all.data() + first * model.config.hidden;
    return Doubles(begin, begin + samples[index] * model.config.hidden);
  };
  return {model, {samples[index]}, part(x), part(dy)};
}

Doubles GqaProblem::results() const {
  Doubles all;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Doubles y = model.forward(sample(i).x);
    all.insert(all.end(), y.begin(), y.end());
  }
  return all;
}

Doubles GqaProblem::slopes(Doubles& values) {
  const auto loss = [&] { return product(results().data(), dy.data(), std::ssize(dy)); };
  return moesaic::slopes(values, loss);
}

GqaProblem make_gqa_problem(GqaConfig config, std::vector<std::int64_t> samples) {
  config.hidden = 10;
  config.rms_norm_eps = 1e-5;
  config.scale = 0.3;
  if (config.rope.rotary_dim == 0) config.rope.rotary_dim = config.head_dim;
  const std::int64_t width = config.projected_width();
  NaiveGqa model{.config = config,
                 .qkv = exact_numbers(width * config.hidden, 1, 0.5),
                 .o = exact_numbers(config.hidden * config.q_width(), 2, 0.5)};
  if (config.qkv_bias) model.qkv_bias = exact_numbers(width, 3, 1);
  if (config.o_bias) model.o_bias = exact_numbers(config.hidden, 4, 1);
  if (config.qk_norm != QkNorm::none) {
    const bool whole = config.qk_norm == QkNorm::whole;
    model.q_norm = exact_numbers(whole ? config.q_width() : config.head_dim, 5, 1);
    model.k_norm = exact_numbers(whole ? config.kv_width() : config.head_dim, 6, 1);
  }
  if (config.sinks) model.sinks = exact_numbers(config.num_heads, 9, 2);
  const auto adapter = [&](bool of_output, std::int64_t first, std::int64_t rows, unsigned seed) {
    const std::int64_t in = of_output ? config.q_width() : config.hidden;
    model.adapters.push_back({.of_output = of_output,
                              .first_row = first,
                              .rows = rows,
                              .rank = 3,
                              .scale = 1.5,
                              .a = exact_numbers(3 * in, seed, 0.3),
                              .b = exact_numbers(rows * 3, seed + 1, 0.3)});
  };
  const std::int64_t queries = config.gate_width() + config.q_width();
  adapter(false, 0, queries, 20);
  adapter(false, queries, config.kv_width(), 30);
  adapter(false, queries + config.kv_width(), config.kv_width(), 40);
  adapter(true, 0, config.hidden, 50);
  GqaProblem problem{.model = model, .samples = std::move(samples), .x = {}, .dy = {}};
  problem.x = exact_numbers(problem.rows() * config.hidden, 7, 1);
  problem.dy = exact_numbers(problem.rows() * config.hidden, 8, 1);
  return problem;
}

GqaResult run_gqa(const GqaProblem& problem, const GqaRun& run) {
  GqaResult result;
  run_thread_ranks(1, [&](Communicator& world) { result = run_rank(problem, run, world); });
  return result;
}

}  // namespace moesaic
