#include "launch/sft/sft_run.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <span>

#include "base/checksum.h"
#include "base/error.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/small_file.h"
#include "launch/job/agreement.h"
#include "launch/results/peak_memory.h"
#include "launch/sft/metrics.h"
#include "launch/sft/sft_output.h"
#include "launch/sft/sft_setup.h"
#include "launch/sft/sft_store.h"
#include "launch/sft/sft_texts.h"
#include "src/lora/adapter_files.h"
#include "src/train/sample_order.h"

namespace moesaic {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The place of the results, tried before anything is loaded; null but on rank 0. Collective.
std::unique_ptr<OutputDirectory> open_output(const Runtime& runtime) {
  std::unique_ptr<OutputDirectory> output;
  agree(runtime.world(), [&] {
    if (!runtime.is_first()) return;
    output = std::make_unique<OutputDirectory>(runtime.options());
    if (runtime.options().grad_out) require_replaceable(*runtime.options().grad_out);
  });
  return output;
}

/// One run, from its first step or that of its checkpoint.
class SftRun {
 public:
  SftRun(Runtime& runtime, const OpenModel& model, const SftData& data)
      : runtime_(runtime),
        data_(data),
        output_(open_output(runtime)),
        setup_(runtime, model, data),
        store_(runtime, model, data, setup_),
        order_({.samples = data.train.size(),
                .batch = options().global_batch_size,
                .seed = static_cast<std::uint64_t>(options().seed),
                .shuffle = !options().no_shuffle}) {}
  void run();

 private:
  [[nodiscard]] const Options& options() const { return runtime_.options(); }
  [[nodiscard]] std::int64_t total_steps() const { return setup_.total_steps(); }
  [[nodiscard]] bool is_due(std::int64_t steps, std::int64_t every) const {
    return every > 0 && steps % every == 0;
  }
  void warn() const;
  void begin();
  void go_on();
  void train();
  TrainStepResult train_step(std::int64_t number, std::span<const std::int64_t> samples);
  void step(std::int64_t number);
  bool evaluate(std::int64_t steps);
  void save(std::int64_t steps);
  void end(std::int64_t steps, std::string_view reason);
  void end_early();
  void tell_of_disk(const std::string& refused);
  void drop_earlier_adapter() const;
  [[nodiscard]] bool has_adapter(std::int64_t steps) const;
  [[nodiscard]] std::int64_t best_saved(std::int64_t newest) const;
  void tell_of_lowest() const;
  void show(const StepMetrics& metrics) const;
  void warn_of_gradients(std::string_view why) const;

  Runtime& runtime_;
  const SftData& data_;
  std::unique_ptr<OutputDirectory> output_;  // rank 0
  SftSetup setup_;
  SftStore store_;
  SampleOrder order_;
  std::optional<MetricsFile> metrics_;  // rank 0
  bool is_disk_told_ = false;
  std::int64_t done_ = 0;    // steps
  std::int64_t first_ = 0;   // step of this run
  std::int64_t saved_ = -1;  // steps of the last checkpoint
  const std::string held_out_digest_ = checksum_text(data_.held_out.fingerprint());
  std::int64_t evaluated_ = -1;  // steps at the last evaluation
  Clock::time_point start_ = Clock::now();
};

void SftRun::go_on() {
  agree(runtime_.world(), [&] {
    if (runtime_.is_first()) output_->begin(options(), store_.demanded_bytes());
  });
  if (options().resume) {
    saved_ = store_.load_newest_checkpoint();
    done_ = std::max<std::int64_t>(saved_, 0);
    runtime_.log().once(LogLevel::info, "{}",
                        saved_ < 0 ? "no checkpoint to go on from: beginning at step 1"
                        : done_ == total_steps()
                            ? fmt::format("step {} is the last and done: nothing is left", done_)
                            : fmt::format("going on after step {}", done_));
  }
  agree(runtime_.world(), [&] {
    if (runtime_.is_first() && saved_ < 0) store_.require_room(done_);
  });
}

void SftRun::warn_of_gradients(std::string_view why) const {
  runtime_.log().once(LogLevel::warning, "--grad-out {}: nothing is written, as {}",
                      *options().grad_out, why);
}

/// Of options, and of what the configuration asks for, that do nothing. Collective.
void SftRun::warn() const {
  if (options().lr == 0) {
    runtime_.log().once(LogLevel::warning, "--lr 0: steps change nothing");
  } else if (options().warmup_steps >= total_steps()) {
    runtime_.log().once(LogLevel::warning,
                        "--warmup-steps {}: the run ends after step {}, so that the learning rate "
                        "never is {}",
                        options().warmup_steps, total_steps(), options().lr);
  }
  std::string unused;
  agree(runtime_.world(), [&] {
    if (runtime_.is_first()) unused = unused_training(options().model);
  });
  if (!unused.empty()) {
    runtime_.log().once(LogLevel::warning, "config.json: {}: not applied (docs/training.md)",
                        unused);
  }
  if (options().eval_every > 0 && data_.held_out.size() == 0) {
    runtime_.log().once(LogLevel::warning,
                        "--eval-every has no effect: no data are held out (--eval-data, "
                        "--eval-split)");
  }
}

/// The adapter in OUT is not that of a run that goes on. On rank 0.
void SftRun::drop_earlier_adapter() const {
  const std::string checkpoint = store_.checkpoint_path(saved_);  // not there if none is saved
  if (output_->remove_adapter_of(checkpoint)) return;
  runtime_.log().once(LogLevel::warning,
                      "{}: the adapter in it is that of an earlier run until this one ends, as no "
                      "checkpoint has it",
                      options().output_dir);
}

void SftRun::begin() {
  warn();
  go_on();
  first_ = done_;
  if (done_ > 0 && options().grad_out) warn_of_gradients("the first step is done");
  agree(runtime_.world(), [&] {
    if (!runtime_.is_first()) return;
    metrics_.emplace(options().output_dir, saved_);
    if (saved_ >= 0) {  // --keep may have become smaller
      store_.remove_checkpoints(saved_, best_saved(saved_));
      store_.require_room(done_);
    }
    if (done_ < total_steps()) drop_earlier_adapter();
    write_options(runtime_.command());
    if (options().eval_split > 0) {
      write_samples(fmt::format("{}/{}", options().output_dir, kHeldOutFile), data_.held_out);
    }
    metrics_->write(
        start_line(setup_, data_,
                   {.done = done_, .ranks = runtime_.world().size(), .digest = store_.digest()}));
    evaluated_ = metrics_->last_evaluation(held_out_digest_);
  });
  runtime_.world().max({&evaluated_, 1});
  runtime_.log().once(LogLevel::info, "{}", start_text(options(), setup_, data_));
  if (done_ == 0 || is_due(done_, options().eval_every)) evaluate(done_);
  start_ = Clock::now();
}

/// All ranks leave together where one is to stop the run.
TrainStepResult SftRun::train_step(std::int64_t number, std::span<const std::int64_t> samples) {
  try {
    return setup_.trainer().step(number, data_.train, samples);
  } catch (const NotFinite& error) {
    if (number > 0 && !error.is_of_adapter()) save(number);  // which the step leaves as it was
    throw AgreedError(error, runtime_.is_first());
  }
}

void SftRun::step(std::int64_t number) {
  const Clock::time_point start = Clock::now();
  const std::vector<std::int64_t> samples = order_.step(number);
  const double wait_before = setup_.phase_times()[Phase::wait];
  const TrainStepResult result = train_step(number, samples);
  done_ = number + 1;
  if (number == 0 && options().grad_out && !result.not_finite) {
    store_.write_gradients(*options().grad_out);
  }
  const SamplesSeen& seen = result.seen;
  const StepMetrics metrics{
      .step = done_,
      .epoch = static_cast<double>(done_) / static_cast<double>(order_.steps_per_epoch()),
      .loss = seen.loss,
      .grad_norm = result.grad_norm,
      .learning_rate = result.learning_rate,
      .samples = seen.samples,
      .tokens = seen.tokens,
      .trained_tokens = seen.trained_tokens,
      .seconds = seconds_since(start),
      .balance_loss = seen.balance_loss,
      .load_max_over_mean = seen.load_max_over_mean,
      .wait_seconds = setup_.phase_times()[Phase::wait] - wait_before,
      .skipped = result.not_finite.has_value()};
  if (result.not_finite) {
    runtime_.log().once(LogLevel::warning, "step {} is left out: {} is not finite", done_,
                        *result.not_finite);
    if (number == 0 && options().grad_out) warn_of_gradients("the first step is left out");
  }
  if (metrics_) tell_of_disk(metrics_->add(metrics));
  show(metrics);
}

/// A step is not worth a run: what cannot be written waits for the next save, which fails if it
/// still cannot.
void SftRun::tell_of_disk(const std::string& refused) {
  if (refused.empty() || is_disk_told_) return;
  is_disk_told_ = true;
  runtime_.log().once(LogLevel::warning, "{}; lines wait for room, at most until the next save",
                      refused);
}

/// Whether the checkpoint after so many steps is there, with its adapter.
bool SftRun::has_adapter(std::int64_t steps) const {
  return file_exists(fmt::format("{}/{}", store_.checkpoint_path(steps), kAdapterTensorsFile));
}

/// Of the checkpoints that are there, and that after `newest` steps, the steps of the one with the
/// lowest held-out loss; -1: none has any, or on other ranks than 0.
std::int64_t SftRun::best_saved(std::int64_t newest) const {
  if (!metrics_) return -1;
  const auto lowest = metrics_->lowest_held_out(
      [&](std::int64_t steps) { return steps == newest || has_adapter(steps); });
  return lowest ? lowest->step : -1;
}

/// Where the adapter is that had the lowest held-out loss, if it is not the last one.
void SftRun::tell_of_lowest() const {
  if (!metrics_ || data_.held_out.size() == 0) return;
  const std::optional<LossPoint> lowest = metrics_->lowest_held_out();
  if (!lowest || lowest->step == done_) return;
  const std::string place = store_.checkpoint_path(lowest->step);
  const std::string where =
      lowest->step == 0 ? "before the first step"
      : has_adapter(lowest->step)
          ? fmt::format("after step {}, whose adapter is in {}", lowest->step, place)
          : fmt::format("after step {}, which was not saved (--save-every, --eval-every)",
                        lowest->step);
  runtime_.log().once(LogLevel::info, "held-out loss was lowest, {:.4f}, {}", lowest->loss, where);
}

void SftRun::show(const StepMetrics& metrics) const {
  const double each = seconds_since(start_) / static_cast<double>(done_ - first_);
  const double left = each * static_cast<double>(total_steps() - done_);
  runtime_.log().once(LogLevel::info, "{}", step_text(metrics, total_steps(), left));
}

/// False if it was interrupted: what has been computed of it is lost.
bool SftRun::evaluate(std::int64_t steps) {
  if (data_.held_out.size() == 0 || evaluated_ == steps) return true;
  const Clock::time_point start = Clock::now();
  const auto seen =
      setup_.trainer().evaluate(data_.held_out, [this] { return runtime_.stop_wanted(); });
  if (!seen) return false;
  evaluated_ = steps;
  const EvalMetrics metrics{.step = steps,
                            .loss = seen->loss,
                            .trained_tokens = seen->trained_tokens,
                            .seconds = seconds_since(start),
                            .digest = held_out_digest_};
  if (metrics_) tell_of_disk(metrics_->add(metrics));
  runtime_.log().once(LogLevel::info, "held-out loss {:.4f} after step {}", seen->loss, steps);
  return true;
}

void SftRun::save(std::int64_t steps) {
  if (saved_ == steps) return;
  const Clock::time_point start = Clock::now();
  store_.save_checkpoint(steps, best_saved(steps));
  saved_ = steps;
  if (!metrics_) return;
  metrics_->write(JsonWriter()
                      .field("event", "save")
                      .field("step", steps)
                      .field("seconds", seconds_since(start))
                      .text());
  metrics_->write_plot();
}

void SftRun::end(std::int64_t steps, std::string_view reason) {
  save(steps);
  store_.save_adapter(options().output_dir);
  const PeakMemory peak = gather_peak_memory(runtime_);
  runtime_.log().once(LogLevel::info, "{}",
                      peak_memory_text(peak, static_cast<std::size_t>(runtime_.world().size())));
  if (!metrics_) return;
  JsonWriter line;
  line.field("event", "end")
      .field("reason", reason)
      .field("step", steps)
      .field("seconds", seconds_since(start_))
      .field("peak_bytes", peak.most);
  add_peak_memory(peak, line);
  metrics_->write(line.text());
  metrics_->write_plot();
}

void SftRun::run() {
  begin();
  try {
    train();
  } catch (...) {
    const std::string& out = options().output_dir;
    runtime_.log().once(
        LogLevel::warning, "{}",
        saved_ > 0 ? fmt::format("step {} is saved in {}; --resume goes on after it", saved_, out)
                   : fmt::format("no step is saved in {} yet; --resume begins there again", out));
    throw;
  }
}

void SftRun::end_early() {
  end(done_, "interrupted");
  runtime_.end_early(fmt::format("{} of {} steps are in {}; --resume goes on", done_, total_steps(),
                                 options().output_dir));
}

void SftRun::train() {
  while (done_ < total_steps()) {
    if (runtime_.stop_wanted()) return end_early();
    step(done_);
    if (is_due(done_, options().eval_every)) evaluate(done_);
    if (is_due(done_, options().save_every) && done_ < total_steps()) save(done_);
  }
  if (!evaluate(done_)) return end_early();
  end(done_, "done");
  tell_of_lowest();
  if (const std::int64_t updates = setup_.trainer().updates(); updates < done_) {
    runtime_.log().once(LogLevel::warning, "{} of {} steps were left out{}", done_ - updates, done_,
                        updates == 0 ? ": the adapter is what it began with" : "");
  }
  runtime_.log().once(LogLevel::info, "{}", end_text(options(), setup_));
}

}  // namespace

void check_run_options(const Options& options, bool is_first) {
  require(options.max_steps > 0 || options.epochs > 0, ErrorKind::usage,
          "--epochs 0 trains nothing, and no --max-steps says how much else");
  require(!options.resume || !options.overwrite, ErrorKind::usage,
          "--resume and --overwrite exclude each other: one goes on with what is in --output, the "
          "other replaces it");
  if (is_first) check_output(options);
}

void train(Runtime& runtime, const OpenModel& model, const SftData& data) {
  SftRun(runtime, model, data).run();
}

}  // namespace moesaic
