#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "src/lora/adapter_exchange.h"
#include "src/parallel/process_grid.h"
#include "src/train/trainer.h"
#include "tests/train/golden_adapter.h"

namespace moesaic {

/// As tools/make_sft_goldens.py trains.
inline constexpr std::int64_t kSteps = 20;
inline constexpr std::int64_t kSamplesPerStep = 2;
inline const TrainOptions kOptions = {
    .rate = {.peak = 5e-3, .schedule = RateSchedule::cosine, .warmup_steps = 3, .total_steps = 20},
    .adam = {.weight_decay = 0.01},
    .clip = 1};

inline SampleSet samples_of(const GoldenAdapter& golden) {
  SampleSet set;
  for (const TrainSample& sample : golden.samples()) set.add(sample.tokens, sample.labels);
  return set;
}

/// The samples of a step, as the goldens take them in turn.
inline std::vector<std::int64_t> step_samples(std::int64_t step, std::int64_t count) {
  std::vector<std::int64_t> samples;
  for (std::int64_t i = 0; i < kSamplesPerStep; ++i) {
    samples.push_back((step * kSamplesPerStep + i) % count);
  }
  return samples;
}

/// One rank that trains.
class TrainingRank {
 public:
  TrainingRank(const GoldenAdapter& golden, const PassSetup& setup, Communicator& world)
      : rank_(golden, setup, world),
        grid_(world, setup.expert_replicas),
        replicas_(world.split(grid_.experts().rank(), world.rank())),
        all_(golden.files().specs()),
        pool_(setup.threads),
        pass_(rank_.transformer(), setup.recompute),
        exchange_(rank_.adapters(), all_, world, replicas_->rank() == 0),
        trainer_({.pass = pass_,
                  .adapters = rank_.adapters(),
                  .all = all_,
                  .ranks = {.world = world, .replicas = *replicas_},
                  .compute = {.vector = &find_vector_kernels(Isa::scalar), .pool = &pool_}},
                 options(setup)) {}

  [[nodiscard]] Trainer& trainer() { return trainer_; }
  [[nodiscard]] AdapterSet& adapters() { return rank_.adapters(); }
  [[nodiscard]] const AdapterExchange& exchange() const { return exchange_; }
  [[nodiscard]] ThreadPool& pool() { return pool_; }

 private:
  static TrainOptions options(const PassSetup& setup) {
    TrainOptions options = kOptions;
    options.batch_tokens = setup.samples_at_once == 1 ? 1 : 512;
    options.dropout = setup.dropout;
    options.seed = 11;
    options.skip_nonfinite = setup.skip_nonfinite;
    return options;
  }

  AdaptedRank rank_;
  ProcessGrid grid_;
  std::unique_ptr<Communicator> replicas_;
  std::span<const AdapterSpec> all_;
  ThreadPool pool_;
  SamplePass pass_;
  AdapterExchange exchange_;
  Trainer trainer_;
};

}  // namespace moesaic
