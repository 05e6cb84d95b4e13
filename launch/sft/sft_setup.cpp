#include "launch/sft/sft_setup.h"

#include <algorithm>

#include "launch/job/adapter_layout.h"
#include "launch/job/agreement.h"
#include "launch/job/placement_choice.h"
#include "launch/sft/sft_adapters.h"
#include "src/model/model_adapters.h"
#include "src/train/gradient_reduction.h"
#include "src/train/sample_order.h"

namespace moesaic {
namespace {

/// Of a run over so many samples.
std::int64_t count_steps(const Options& options, std::int64_t samples) {
  if (options.max_steps > 0) return options.max_steps;
  const SampleOrder order({.samples = samples, .batch = options.global_batch_size});
  return steps_of_epochs(options.epochs, order.steps_per_epoch());
}

}  // namespace

SftSetup::SftSetup(const Runtime& runtime, const OpenModel& model, const SftData& data)
    : runtime_(runtime),
      config_(model.config),
      lora_(model.adapter ? &*model.adapter : nullptr),
      sites_(find_adapter_sites(runtime, model)),
      specs_(choose_adapters(runtime, model, sites_)),
      dropout_(choose_dropout(runtime, lora_, specs_)),
      replicas_(runtime.world().split(runtime.grid().experts().rank(), runtime.world().rank())),
      held_(place_experts(runtime, model.config), runtime.grid().experts().rank()),
      adapters_(specs_of_rank(specs_, held_),
                runtime.precision() == Precision::f32 ? Format::f32 : Format::bf16),
      exchange_(adapters_, specs_, runtime.world(), replicas_->rank() == 0),
      engine_(runtime, model, engine_work(model, data)),
      total_steps_(count_steps(runtime.options(), data.train.size())),
      is_converted_(model.files.checkpoint() == nullptr),
      pass_(pass_on(engine_.transformer())) {
  const Compute compute = runtime.compute();
  agree(runtime.world(), [&] {
    if (lora_ != nullptr) return lora_->read(adapters_);
    initialize(adapters_, static_cast<std::uint64_t>(runtime.options().seed));
  });
  adapters_.pack(*compute.pool);
  trainer_ = trainer_on(pass_);
}

bool SftSetup::recomputes() const {
  return engine_.is_smaller() || runtime_.options().recompute == RecomputeChoice::always;
}

SamplePass SftSetup::pass_on(Transformer& transformer) const {
  return {transformer, recomputes() ? Recompute::always : Recompute::never};
}

std::unique_ptr<Trainer> SftSetup::trainer_on(SamplePass& pass) {
  return std::make_unique<Trainer>(
      Trainer::Parts{.pass = pass,
                     .adapters = adapters_,
                     .all = specs_,
                     .ranks = {.world = runtime_.world(), .replicas = *replicas_},
                     .compute = runtime_.compute()},
      train_options());
}

/// Of gradients over ranks.
std::int64_t SftSetup::sum_bytes() const {
  const std::int64_t common = adapters_.num_common_values();
  return GradientReduction::most_bytes(runtime_.world().size(), replicas_->size(),
                                       {common, std::ssize(adapters_.masters()) - common});
}

EngineWork SftSetup::engine_work(const OpenModel& model, const SftData& data) {
  const Options& options = runtime_.options();
  const SampleSizes sizes{
      .longest = std::max(data.train.longest(), data.held_out.longest()),
      .tokens = data.train.tokens(),
      .adapter_bytes = adapters_.bytes(),
      .adapter_values = static_cast<std::int64_t>(adapters_.masters().size()),
      .sum_bytes = sum_bytes(),
      .saving_bytes = saving_bytes({.description = description(), .adapters = specs_, .sites = {}}),
      .adapters = specs_,
      .expert_ranks = runtime_.grid().experts().size(),
      .dropout = dropout_,
      .threads = runtime_.compute().pool->size()};
  const Workload work = sft_workload(options, model.config, sizes, false);
  const Workload smaller = sft_workload(options, model.config, sizes, true);
  EngineWork engine{.work = options.recompute == RecomputeChoice::always ? smaller : work};
  if (options.recompute == RecomputeChoice::automatic) engine.smaller = smaller;
  engine.prepare = [this, &model](ModelWeights& weights) {
    attach_adapters(adapters_, model.files.names(model.config), held_, weights);
  };
  return engine;
}

TrainOptions SftSetup::train_options() const {
  const Options& options = runtime_.options();
  return {.rate = {.peak = options.lr,
                   .schedule = options.schedule,
                   .warmup_steps = options.warmup_steps,
                   .total_steps = total_steps_},
          .adam = {.beta1 = options.beta1,
                   .beta2 = options.beta2,
                   .epsilon = options.adam_eps,
                   .weight_decay = options.weight_decay},
          .clip = options.clip,
          .batch_tokens = options.batch_size,
          .skip_nonfinite = options.on_nonfinite == OnNonfinite::skip,
          .dropout = dropout_,
          .seed = static_cast<std::uint64_t>(options.seed)};
}

AdapterDescription SftSetup::description() const {
  const Options& options = runtime_.options();
  AdapterDescription its{.rank_stabilised = options.rslora, .base_model = options.model};
  if (lora_ != nullptr) its = lora_->description();
  its.layout = choose_adapter_layout(options, config_, lora_);
  its.dropout = dropout_;
  return its;
}

}  // namespace moesaic
