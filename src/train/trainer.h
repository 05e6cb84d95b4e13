#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/error.h"
#include "src/train/adam.h"
#include "src/train/gradient_reduction.h"
#include "src/train/sample_pass.h"
#include "src/train/sample_set.h"
#include "src/train/schedule.h"
#include "src/train/train_state.h"

namespace moesaic {

struct TrainOptions {
  LearningRate rate;
  AdamOptions adam;
  double clip = 1;                  ///< longest gradient; 0: no limit
  std::int64_t batch_tokens = 512;  ///< most tokens of a rank's micro-batch
  bool skip_nonfinite = false;      ///< leave such a step out instead of throwing
  double dropout = 0;               ///< share of the adapters' inputs that a step leaves out
  std::uint64_t seed = 0;           ///< of dropout
};

/// What a step or an evaluation saw, over all ranks.
struct SamplesSeen {
  double loss = 0;  ///< mean over the trained tokens
  std::int64_t samples = 0;
  std::int64_t tokens = 0;
  std::int64_t trained_tokens = 0;
  double balance_loss = 0;        ///< of all routers: balance_loss() of router_statistics.h
  double load_max_over_mean = 0;  ///< of the ranks' experts, in rows
};

struct TrainStepResult {
  SamplesSeen seen;
  double grad_norm = 0;  ///< before clipping
  double learning_rate = 0;
  /// What was not finite, if the step was left out: "the loss", "the gradient of MODULE", the first
  /// of the model, or "the loss (and the gradient of MODULE)".
  std::optional<std::string> not_finite;
};

/// What a step throws that is to stop at a loss or gradient that is not finite: on all ranks, with
/// the same words.
class NotFinite : public Error {
 public:
  NotFinite(const std::string& message, bool is_of_adapter)
      : Error(ErrorKind::file, message), is_of_adapter_(is_of_adapter) {}
  /// Whether the adapter is spoiled, or what it was before the step.
  [[nodiscard]] bool is_of_adapter() const noexcept { return is_of_adapter_; }

 private:
  bool is_of_adapter_;
};

/// Seconds of a rank in the parts of one step.
struct TrainTimes {
  double forward = 0;
  double backward = 0;
  double sums = 0;          ///< of gradients over ranks, from the start of the first to the last
  double exposed_sums = 0;  ///< of these, those in which it did nothing else
  double optimizer = 0;
};

/// Trains the adapters of a model on the samples of all ranks. Losses and adapters do not depend on
/// the ranks, replicas, threads or micro-batches. All calls are collective.
class Trainer {
 public:
  struct Parts {
    SamplePass& pass;
    AdapterSet& adapters;
    std::span<const AdapterSpec> all;  // of the model; `adapters` holds this rank's
    TrainRanks ranks;
    Compute compute;
  };
  /// What the parts refer to must outlive this.
  Trainer(const Parts& parts, const TrainOptions& options);

  /// Step `number`, from 0, over `samples` of `set`, which is the same on all ranks. Throws
  /// NotFinite{file} naming step and module unless such steps are to be skipped; naming the step
  /// alone, also of those, where the adapter is not finite after it.
  TrainStepResult step(std::int64_t number, const SampleSet& set,
                       std::span<const std::int64_t> samples);
  /// Whether to leave off; all ranks are told the same.
  using Stop = std::function<bool()>;
  /// The loss of all samples of `set`; nothing if `stop`, which is asked before each micro-batch,
  /// said so.
  std::optional<SamplesSeen> evaluate(const SampleSet& set, const Stop& stop = {});

  /// Those of the last step, summed over all samples and ranks; multiply by gradient_scale().
  [[nodiscard]] const AdapterGradients& gradients() const noexcept { return gradients_; }
  [[nodiscard]] double gradient_scale() const noexcept { return gradient_scale_; }
  /// Of the last step.
  [[nodiscard]] const TrainTimes& times() const noexcept { return times_; }
  [[nodiscard]] Moments& moments() noexcept { return moments_; }
  /// Steps that were not left out, which AdamW counts.
  [[nodiscard]] std::int64_t updates() const noexcept { return updates_; }
  void set_updates(std::int64_t updates) noexcept { updates_ = updates; }

 private:
  /// `step`: its number; none: an evaluation, which alone may be stopped.
  std::optional<SamplesSeen> run(const SampleSet& set, std::span<const std::int64_t> samples,
                                 std::optional<std::int64_t> step, const Stop& stop = {});
  void start_sums(std::int64_t layer);
  std::optional<std::string> finish_sums();
  void update(const TrainStepResult& result);
  /// Collective.
  void require_finite_adapter(std::int64_t number) const;

  Parts parts_;
  TrainOptions options_;
  GradientReduction reduction_;
  AdapterGradients gradients_;
  double gradient_scale_ = 0;
  Moments moments_;
  std::int64_t updates_ = 0;
  TrainTimes times_;
  std::chrono::steady_clock::time_point sums_began_;
};

}  // namespace moesaic
