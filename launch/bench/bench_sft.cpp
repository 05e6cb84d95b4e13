#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/memory.h"
#include "launch/bench/bench_timing.h"
#include "launch/bench/model_feed.h"
#include "launch/bench/result_printer.h"
#include "launch/bench/roofs.h"
#include "launch/bench/stored_model.h"
#include "launch/job/agreement.h"
#include "launch/job/gather.h"
#include "launch/job/verbs.h"
#include "launch/options/choices.h"
#include "launch/sft/sft_setup.h"

namespace moesaic {
namespace {

/// The samples of every step, on all ranks.
SftData make_data(const Runtime& runtime, const FeedTokens& feed) {
  const Options& options = runtime.options();
  SftData data;
  if (runtime.is_first()) {
    const std::vector<std::int32_t> tokens = feed.take(0, options.step_tokens);
    std::span<const std::int32_t> left = tokens;
    while (!left.empty()) {
      const auto length = std::min(left.size(), static_cast<std::size_t>(options.sample_tokens));
      data.train.add(left.first(length), left.first(length));
      left = left.subspan(length);
    }
  }
  share_samples(runtime.world(), data.train);
  return data;
}

/// One step, the parts as means over all ranks.
struct MeasuredStep {
  double seconds = 0;
  TrainTimes parts;
  PhaseTimes phases;  // of forward and backward
};

/// 0: no layer has experts.
std::int64_t expert_width(const ModelConfig& config) {
  std::int64_t width = 0;
  for (const LayerConfig& layer : config.layers) {
    width = std::max(width, layer.feed_forward->sizes().expert_width);
  }
  return width;
}

double mean_over_ranks(Communicator& world, double value) {
  double sum = 0;
  for (const double each : gather_values(world, value)) sum += each;
  return sum / world.size();
}

class SftBench {
 public:
  SftBench(const Runtime& runtime, const OpenModel& model)
      : runtime_(runtime),
        model_(model),
        feed_(runtime, model),
        data_(make_data(runtime, feed_)),
        setup_(runtime, model, data_) {
    for (std::int64_t i = 0; i < data_.train.size(); ++i) samples_.push_back(i);
  }

  void run();

 private:
  MeasuredStep step(std::int64_t number);
  [[nodiscard]] MeasuredStep usual_step();
  [[nodiscard]] ResultLine line(const MeasuredStep& step, std::int64_t peak_bytes) const;

  const Runtime& runtime_;
  const OpenModel& model_;
  const FeedTokens feed_;
  const SftData data_;
  SftSetup setup_;
  std::vector<std::int64_t> samples_;
};

MeasuredStep SftBench::step(std::int64_t number) {
  Communicator& world = runtime_.world();
  const PhaseTimes before = setup_.phase_times();
  MeasuredStep measured;
  measured.seconds =
      time_together(world, [&] { (void)setup_.trainer().step(number, data_.train, samples_); });
  const PhaseTimes after = setup_.phase_times();
  for (std::size_t phase = 0; phase < kNumPhases; ++phase) {
    measured.phases.seconds[phase] =
        mean_over_ranks(world, after.seconds[phase] - before.seconds[phase]);
  }
  const TrainTimes& own = setup_.trainer().times();
  measured.parts = {.forward = mean_over_ranks(world, own.forward),
                    .backward = mean_over_ranks(world, own.backward),
                    .sums = mean_over_ranks(world, own.sums),
                    .exposed_sums = mean_over_ranks(world, own.exposed_sums),
                    .optimizer = mean_over_ranks(world, own.optimizer)};
  return measured;
}

/// Of all steps but the first, that which a quarter do not exceed.
MeasuredStep SftBench::usual_step() {
  step(0);
  std::vector<MeasuredStep> steps;
  for (std::int64_t i = 0; i < runtime_.options().repetitions; ++i) {
    runtime_.leave_if_stop_wanted();
    steps.push_back(step(i + 1));
  }
  std::vector<double> seconds;
  for (const MeasuredStep& one : steps) seconds.push_back(one.seconds);
  return *std::ranges::find(steps, lower_quartile(seconds), &MeasuredStep::seconds);
}

ResultLine SftBench::line(const MeasuredStep& step, std::int64_t peak_bytes) const {
  const StoredModel stored(runtime_, setup_.engine().load());
  const Roofs roofs = measure_roofs(runtime_, *runtime_.compute().pool,
                                    stored.multiplied(model_.config, facts_of(model_)));
  const double per_second = training_flops(model_, data_.train) / step.seconds;
  const auto whole = [](std::int64_t value) { return fmt::format("{}", value); };
  const auto tokens = static_cast<double>(data_.train.tokens());
  PhaseTimes phases = step.phases;
  return {
      {"layers", whole(std::ssize(model_.config.layers))},
      {"hidden", whole(model_.config.hidden_size)},
      {"experts", whole(model_.config.num_experts)},
      {"intermediate", whole(expert_width(model_.config))},
      {"topk", whole(model_.config.experts_per_token)},
      {"ranks", whole(runtime_.world().size())},
      {"threads", whole(runtime_.self().threads)},
      {"isa", std::string(isa_name(runtime_.compute().isa)), true},
      {"precision", std::string(choice_name(runtime_.precision())), true},
      {"expert_format", std::string(format_name(StoredModel::main_format(stored.experts))), true},
      {"routing", std::string(routing_text(feed_.fed())), true},
      {"tokens", whole(data_.train.tokens())},
      {"sample_tokens", whole(runtime_.options().sample_tokens)},
      {"batch_size", whole(runtime_.options().batch_size)},
      {"tokens_per_second", short_number(tokens / step.seconds)},
      {"forward_seconds", short_number(step.parts.forward)},
      {"backward_seconds", short_number(step.parts.backward)},
      {"exchange_seconds", short_number(phases[Phase::wait])},
      {"sum_seconds", short_number(step.parts.sums)},
      {"exposed_sum_seconds", short_number(step.parts.exposed_sums)},
      {"optimizer_seconds", short_number(step.parts.optimizer)},
      {"gops", short_number(per_second / 1e9)},
      {"roof_share", short_number(per_second / roofs.flops_per_second)},
      {"peak_bytes", whole(peak_bytes)}};
}

void SftBench::run() {
  const MeasuredStep step = usual_step();
  for (std::size_t phase = 0; phase < kNumPhases; ++phase) {
    runtime_.log().once(LogLevel::debug, "{}: {} s", kPhaseNames[phase],
                        short_number(step.phases.seconds[phase]));
  }
  std::int64_t peak_bytes = peak_resident_bytes();  // before the roofs, which need memory too
  runtime_.world().sum({&peak_bytes, 1});
  const ResultLine result = line(step, peak_bytes);
  print_results(runtime_, result_table({&result, 1}, result_form(runtime_.options())));
}

}  // namespace

void run_bench_sft(Runtime& runtime) {
  agree(runtime.world(), [&] { (void)result_form(runtime.options()); });
  const OpenModel model = open_model(runtime);
  SftBench bench(runtime, model);
  runtime.run_or_end_early("no step is measured", [&] { bench.run(); });
}

}  // namespace moesaic
