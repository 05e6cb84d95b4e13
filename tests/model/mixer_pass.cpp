#include "tests/model/mixer_pass.h"

#include <algorithm>
#include <string>

#include "comm/thread_communicator.h"
#include "src/model/kv_pool.h"
#include "src/model/model_config.h"

namespace moesaic {
namespace {

MixerResult run_on(MixerPass& pass, const MixerRun& run, Communicator& world) {
  ThreadPool pool(run.threads);
  LayerContext context(
      {.compute = {.isa = run.isa, .vector = &find_vector_kernels(run.isa), .pool = &pool},
       .precision = run.precision,
       .hidden = pass.hidden},
      world);
  ModelConfig model;
  model.vocab_size = 9;
  model.hidden_size = pass.hidden;
  model.layers.resize(1);
  model.layers[0].mixer = pass.kind;
  KvPool cache(model, run.precision);
  std::vector<Sequence> sequences;
  std::vector<SampleRange> samples;
  std::int64_t rows = 0;
  for (const std::int64_t tokens : pass.samples) {
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
  const std::unique_ptr<TokenMixer> mixer = pass.kind->make_mixer(context);
  mixer->begin(batch);
  const auto matrix = [&](Floats& values) {
    return MatrixView<float>(values.data(), rows, pass.hidden);
  };
  const Floats zeros(pass.x.size());
  MixerResult result{.y = zeros, .y_kept = zeros, .dx = zeros, .sums = {}};
  const MixerLayer at{0, pass.bed.set()};
  const std::unique_ptr<Stash> stash = mixer->make_stash();
  mixer->forward(at, batch, {.x = matrix(pass.x), .y = matrix(result.y)});
  for (const Sequence& sequence : sequences) sequence.clear_state(0);
  mixer->forward(at, batch, {.x = matrix(pass.x), .y = matrix(result.y_kept), .keep = stash.get()});
  AdapterGradients gradients(pass.bed.places(), find_vector_kernels(Isa::scalar));
  mixer->backward(at, batch, *stash,
                  {.x = matrix(pass.x),
                   .dy = matrix(pass.dy),
                   .dx = matrix(result.dx),
                   .samples = samples,
                   .adapters = gradients});
  result.sums.assign(gradients.sums().begin(), gradients.sums().end());
  result.kept_bytes = stash->bytes();
  return result;
}

}  // namespace

void LayerBed::keep_vector(std::size_t place, const Doubles& values) {
  vectors_.push_back(std::make_unique<Floats>(as_floats(values)));
  set_[place].vector = *vectors_.back();
}

void LayerBed::keep_matrix(std::size_t place, const Doubles& values, std::int64_t depth) {
  pack(place, values, depth, precision_);
}

void LayerBed::keep_f32_matrix(std::size_t place, const Doubles& values, std::int64_t depth) {
  pack(place, values, depth, Precision::f32);
}

void LayerBed::pack(std::size_t place, const Doubles& values, std::int64_t depth,
                    Precision precision) {
  packed_.push_back(std::make_unique<PackedWeight>(pack_weight(values, depth, precision)));
  set_[place].matrix = packed_.back()->matrix;
}

void LayerBed::add_adapters(std::span<const NaiveAdapter> adapters) {
  const auto count = [&](std::size_t matrix) {
    return std::ranges::count(adapters, matrix, &NaiveAdapter::matrix);
  };
  std::vector<AdapterSpec> specs;
  for (const NaiveAdapter& adapter : adapters) {
    const std::int64_t stacked = count(adapter.matrix) > 1 ? set_[adapter.matrix].matrix.rows : 0;
    specs.push_back({.site = {.module = std::to_string(specs.size()),
                              .first_row = adapter.first_row,
                              .stacked_rows = stacked,
                              .out = adapter.rows,
                              .in = std::ssize(adapter.a) / adapter.rank},
                     .rank = adapter.rank,
                     .scale = static_cast<float>(adapter.scale)});
  }
  adapters_.emplace(specs, weight_format(precision_));
  for (std::int64_t i = 0; i < adapters_->size(); ++i) {
    const NaiveAdapter& adapter = adapters[static_cast<std::size_t>(i)];
    std::ranges::copy(as_floats(adapter.a), adapters_->factors(i).a.data());
    std::ranges::copy(as_floats(adapter.b), adapters_->factors(i).b.data());
  }
  ThreadPool pool(1);
  adapters_->pack(pool);
  for (std::int64_t first = 0; first < std::ssize(adapters);) {
    const std::size_t matrix = adapters[static_cast<std::size_t>(first)].matrix;
    set_[matrix].adapter = &adapters_->of_matrix(first, count(matrix));
    first += count(matrix);
  }
}

MixerResult run_mixer(MixerPass pass, const MixerRun& run) {
  MixerResult result;
  run_thread_ranks(1, [&](Communicator& world) { result = run_on(pass, run, world); });
  return result;
}

}  // namespace moesaic
