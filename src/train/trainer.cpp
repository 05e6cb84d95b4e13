#include "src/train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "src/train/batch_plan.h"
#include "src/train/loss_sum.h"

namespace moesaic {
namespace {

/// Calls `work` and adds what it takes.
template <typename Work>
auto timed(double& seconds, Work&& work) {
  struct Scope {
    double& seconds;
    std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
    ~Scope() {
      seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
  } const scope{seconds};
  return work();
}

/// What one rank's samples add up to, for sums over ranks.
struct Totals {
  LossSum loss;
  std::int64_t trained_tokens = 0;
  std::int64_t broken = 0;  // losses that are not finite
  std::int64_t expert_rows = 0;
  RouterStatistics routers;      // of all layers
  std::int64_t router_rows = 0;  // tokens of each layer, added

  void add(const MicroBatch& batch) {
    for (const double loss_of_sample : batch.losses) {
      if (!loss.add(loss_of_sample)) ++broken;
    }
    trained_tokens += batch.trained_tokens;
    expert_rows += batch.expert_rows;
    for (const RouterStatistics& layer : batch.routers) {
      if (layer.chosen.empty()) continue;  // without experts
      routers.resize(std::ssize(layer.chosen));
      routers.add(layer);
      router_rows += batch.rows;
    }
  }

  /// What all ranks saw. Collective.
  [[nodiscard]] SamplesSeen over_ranks(Communicator& world) {
    std::array<std::int64_t, 2> most = {expert_rows, std::ssize(routers.chosen)};
    world.max(most);
    routers.resize(most[1]);
    std::vector<std::int64_t> sums = {loss.high, loss.low,    trained_tokens,
                                      broken,    expert_rows, router_rows};
    const std::ptrdiff_t head = std::ssize(sums);
    sums.insert(sums.end(), routers.chosen.begin(), routers.chosen.end());
    sums.insert(sums.end(), routers.probability.begin(), routers.probability.end());
    world.sum(sums);
    std::copy_n(sums.begin() + head, routers.chosen.size(), routers.chosen.begin());
    std::copy_n(sums.end() - std::ssize(routers.probability), routers.probability.size(),
                routers.probability.begin());

    SamplesSeen seen{.trained_tokens = sums[2], .balance_loss = balance_loss(routers, sums[5])};
    seen.loss = sums[3] > 0 ? std::numeric_limits<double>::quiet_NaN()
                            : LossSum{sums[0], sums[1]}.value() /
                                  static_cast<double>(std::max<std::int64_t>(sums[2], 1));
    if (sums[3] > 0) seen.balance_loss = seen.loss;  // of what is no number
    if (sums[4] > 0) {
      seen.load_max_over_mean =
          static_cast<double>(most[0]) * world.size() / static_cast<double>(sums[4]);
    }
    return seen;
  }
};

/// What is not finite, `module` being one whose gradient is not; nullopt: nothing.
std::optional<std::string> not_finite_text(double loss, const std::optional<std::string>& module) {
  const std::string gradient = module ? "the gradient of " + *module : "";
  if (!std::isfinite(loss)) return module ? "the loss (and " + gradient + ")" : "the loss";
  return module ? std::optional(gradient) : std::nullopt;
}

}  // namespace

Trainer::Trainer(const Parts& parts, const TrainOptions& options)
    : parts_(parts),
      options_(options),
      reduction_(parts.adapters, parts.all, parts.ranks, *parts.compute.pool),
      gradients_(parts.adapters.places(), *parts.compute.vector),
      moments_{std::vector<float>(parts.adapters.masters().size()),
               std::vector<float>(parts.adapters.masters().size())} {}

std::optional<SamplesSeen> Trainer::run(const SampleSet& set, std::span<const std::int64_t> samples,
                                        std::optional<std::int64_t> step, const Stop& stop) {
  std::vector<std::int64_t> lengths;
  for (const std::int64_t sample : samples) lengths.push_back(set.length(sample));
  Communicator& world = parts_.ranks.world;
  const std::vector<RankBatches> plan = plan_batches(lengths, world.size(), options_.batch_tokens);
  Totals totals;
  std::vector<TrainSample> batch;
  std::vector<std::uint64_t> keys;
  const auto& micro_batches = plan[static_cast<std::size_t>(world.rank())].micro_batches;
  const Transformer::LayerDone start = [this](std::int64_t layer) { start_sums(layer); };
  for (const auto& places : micro_batches) {
    const bool is_last = &places == &micro_batches.back();
    batch.clear();
    keys.clear();
    for (const std::int64_t place : places) {
      batch.push_back(set[samples[static_cast<std::size_t>(place)]]);
      keys.push_back(dropout_sample_key(options_.seed, step.value_or(0), place));
    }
    if (!step) {
      if (stop && stop()) return std::nullopt;
      totals.add(parts_.pass.evaluate(batch));
      continue;
    }
    MicroBatch passed = timed(times_.forward, [&] {
      return parts_.pass.forward(batch, {options_.dropout, keys});
    });
    totals.add(passed);
    timed(times_.backward, [&] {
      parts_.pass.backward(std::move(passed), gradients_,
                           is_last ? start : Transformer::LayerDone());
    });
  }
  SamplesSeen seen = totals.over_ranks(world);
  seen.samples = std::ssize(samples);
  seen.tokens = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  return seen;
}

/// While the last backward pass goes on.
void Trainer::start_sums(std::int64_t layer) {
  if (times_.exposed_sums == 0) sums_began_ = std::chrono::steady_clock::now();
  timed(times_.exposed_sums, [&] { reduction_.start(layer, gradients_); });
}

std::optional<std::string> Trainer::finish_sums() {
  if (times_.exposed_sums == 0) sums_began_ = std::chrono::steady_clock::now();
  times_.backward -= times_.exposed_sums;
  auto not_finite = timed(times_.exposed_sums, [&] { return reduction_.sum(gradients_); });
  const std::chrono::duration<double> since = std::chrono::steady_clock::now() - sums_began_;
  times_.sums = parts_.ranks.world.size() > 1 ? since.count() : times_.exposed_sums;
  return not_finite;
}

TrainStepResult Trainer::step(std::int64_t number, const SampleSet& set,
                              std::span<const std::int64_t> samples) {
  times_ = {};
  std::int64_t trained_tokens = 0;
  for (const std::int64_t sample : samples) trained_tokens += set[sample].trained_tokens();
  timed(times_.optimizer,
        [&] { gradients_.clear(*parts_.compute.pool, AdapterGradients::unit_of(trained_tokens)); });
  TrainStepResult result;
  result.learning_rate = options_.rate.at(number);
  result.seen = *run(set, samples, number);
  result.not_finite = not_finite_text(result.seen.loss, finish_sums());
  if (result.not_finite) {
    if (!options_.skip_nonfinite) {
      throw NotFinite(
          fmt::format("step {}: {} is not finite: a learning rate or --lora-alpha that is too "
                      "high, or damaged weights or data; --on-nonfinite skip leaves such steps out",
                      number + 1, *result.not_finite),
          false);
    }
    result.grad_norm = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  gradient_scale_ = gradients_.unit() / static_cast<double>(result.seen.trained_tokens);
  timed(times_.optimizer, [&] {
    result.grad_norm = reduction_.norm(gradients_) * gradient_scale_;
    update(result);
    require_finite_adapter(number);
  });
  return result;
}

/// Nothing later could mend it: not a step that is left out either.
void Trainer::require_finite_adapter(std::int64_t number) const {
  constexpr std::int64_t kValues = std::int64_t{1} << 16;
  const std::span<const float> masters = parts_.adapters.masters();
  std::atomic<std::int64_t> broken = 0;
  parts_.compute.pool->for_each_piece(
      std::ssize(masters), kValues, [&](std::int64_t first, std::int64_t count) {
        if (!parts_.compute.vector->all_finite(masters.data() + first, count)) broken = 1;
      });
  std::int64_t any = broken;
  parts_.ranks.world.max({&any, 1});
  if (any == 0) return;
  throw NotFinite(
      fmt::format("step {}: the adapter holds values that are not finite after it: a learning "
                  "rate, weight decay or epsilon of AdamW that is too extreme",
                  number + 1),
      true);
}

void Trainer::update(const TrainStepResult& result) {
  // As torch.nn.utils.clip_grad_norm_.
  const double shrink =
      options_.clip > 0 ? std::min(1.0, options_.clip / (result.grad_norm + 1e-6)) : 1.0;
  adam_step(options_.adam,
            {.number = ++updates_,
             .learning_rate = result.learning_rate,
             .scale = gradient_scale_ * shrink},
            std::as_const(gradients_).sums(),
            {parts_.adapters.masters(), moments_.first, moments_.second}, parts_.compute);
  parts_.adapters.pack(*parts_.compute.pool);
}

std::optional<SamplesSeen> Trainer::evaluate(const SampleSet& set, const Stop& stop) {
  std::vector<std::int64_t> samples(static_cast<std::size_t>(set.size()));
  std::iota(samples.begin(), samples.end(), 0);
  return run(set, samples, std::nullopt, stop);
}

}  // namespace moesaic
