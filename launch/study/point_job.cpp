#include "launch/study/point_job.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "base/rounding.h"
#include "launch/bench/model_feed.h"
#include "launch/bench/stored_model.h"
#include "launch/job/agreement.h"
#include "launch/results/run_statistics.h"
#include "launch/sft/sft_setup.h"
#include "launch/shapes/job_options.h"
#include "launch/shapes/shape_point.h"
#include "launch/study/shape_jobs.h"
#include "src/generate/request_feed.h"

namespace moesaic {
namespace {

/// Work of a transformer, its own or another's.
class TransformerWork final : public PointWork {
 public:
  using Run = std::function<void(Transformer&)>;
  TransformerWork(Transformer& transformer, Run run)
      : transformer_(transformer), run_(std::move(run)) {}
  TransformerWork(std::unique_ptr<Transformer> own, Run run)
      : own_(std::move(own)), transformer_(*own_), run_(std::move(run)) {}

  void run() override { run_(transformer_); }
  void reset_counts() override { transformer_.reset_statistics(); }
  [[nodiscard]] PointCounts counts() const override {
    return {transformer_.times(), transformer_.load(), transformer_.expert_rows(),
            transformer_.traffic()};
  }

 private:
  std::unique_ptr<Transformer> own_;
  Transformer& transformer_;
  Run run_;
};

/// A job of a whole model.
class ModelJob : public PointJob {
 public:
  ModelJob(const Runtime& runtime, OpenModel model)
      : runtime_(runtime), model_(std::move(model)), tokens_(runtime, model_) {}

  [[nodiscard]] PointFacts facts() const override {
    const LoadSummary& load = engine().load();
    return {.experts = model_.config.num_experts,
            .experts_per_token = model_.config.experts_per_token,
            .layers = model_.config.num_layers(),
            .hidden = model_.config.hidden_size,
            .expert_format = std::string(format_name(StoredModel::main_format(load.experts))),
            .routing = std::string(routing_text(tokens_.fed())),
            .load_seconds = load.seconds,
            .planned_node_bytes = engine().planned_node_bytes()};
  }
  [[nodiscard]] PointWork& work() override {
    if (!work_) {
      work_ = std::make_unique<TransformerWork>(
          engine().transformer(), [this](Transformer& transformer) { run_on(transformer); });
    }
    return *work_;
  }
  [[nodiscard]] std::unique_ptr<PointWork> work_over(Communicator& experts) override {
    ExpertGroup group(experts, expert_group(runtime_).options);
    group.options.half_batches = HalfBatches::off;  // whose exchanges wait for each other
    return std::make_unique<TransformerWork>(
        std::make_unique<Transformer>(model_.config, engine().weights(), group, runtime_.compute()),
        [this](Transformer& transformer) { run_on(transformer); });
  }
  [[nodiscard]] std::map<Format, double> multiplied() const override {
    return StoredModel(runtime_, engine().load()).multiplied(model_.config, facts_of(model_));
  }

 protected:
  [[nodiscard]] virtual const Engine& engine() const = 0;
  [[nodiscard]] virtual Engine& engine() = 0;
  virtual void run_on(Transformer& transformer) = 0;
  [[nodiscard]] const Runtime& runtime() const noexcept { return runtime_; }
  [[nodiscard]] const OpenModel& model() const noexcept { return model_; }
  [[nodiscard]] const FeedTokens& feed() const noexcept { return tokens_; }
  [[nodiscard]] const Options& options() const noexcept { return runtime_.options(); }

 private:
  const Runtime& runtime_;
  const OpenModel model_;
  const FeedTokens tokens_;
  std::unique_ptr<TransformerWork> work_;
};

/// Sequences that ranks take as they become free: prompts, or tokens one at a time.
class SequenceJob final : public ModelJob {
 public:
  SequenceJob(const Runtime& runtime, OpenModel opened)
      : ModelJob(runtime, std::move(opened)), engine_(runtime, model(), workload()) {}

  [[nodiscard]] std::int64_t tokens() const override { return sequences() * sequence_tokens(); }
  [[nodiscard]] double least_seconds(const Roofs& roofs) const override;

 private:
  [[nodiscard]] const Engine& engine() const override { return engine_; }
  [[nodiscard]] Engine& engine() override { return engine_; }
  void run_on(Transformer& transformer) override;
  [[nodiscard]] bool is_prompt() const noexcept { return options().job == StudyJob::prompt; }
  [[nodiscard]] std::int64_t sequences() const noexcept { return options().sequences; }
  [[nodiscard]] std::int64_t sequence_tokens() const noexcept {
    return moesaic::sequence_tokens(options());
  }
  [[nodiscard]] std::int64_t sequences_of_rank() const {
    const std::int64_t ranks = runtime().world().size();
    return divide_up(sequences(), ranks);
  }
  [[nodiscard]] Workload workload() const;
  [[nodiscard]] Request request(std::int64_t sequence) const;

  Engine engine_;
};

Workload SequenceJob::workload() const {
  const std::int64_t rows = is_prompt() ? options().batch_size : sequences_of_rank();
  return {.sequences = is_prompt() ? 1 : sequences_of_rank(),
          .capacity = sequence_tokens() + 1,
          .batch_tokens = std::min(rows, std::max(sequence_tokens(), sequences_of_rank())),
          .logits_rows = is_prompt() ? 1 : sequences_of_rank()};
}

Request SequenceJob::request(std::int64_t sequence) const {
  Request request;
  request.tokens = feed().take(static_cast<int>(sequence), is_prompt() ? sequence_tokens() : 1);
  request.sampling.temperature = 0;
  if (is_prompt()) {
    request.logits_from = sequence_tokens() - 1;
  } else {
    request.max_new_tokens = sequence_tokens();
  }
  return request;
}

void SequenceJob::run_on(Transformer& transformer) {
  StepEngine steps(transformer, runtime().world(),
                   {.batch_tokens = is_prompt() ? options().batch_size : sequences_of_rank(),
                    .parallel = workload().sequences,
                    .share_prefixes = false,
                    .stop_wanted = [this] { return runtime().interruption().wanted(); }});
  std::int64_t made = 0;
  const auto next = [&] {
    return made < sequences() ? std::optional(request(made++)) : std::optional<Request>();
  };
  const auto name = [](RequestId id) { return fmt::format("sequence {}", id + 1); };
  const bool is_whole =
      run_requests(steps, {.next = next, .on_token = {}, .on_finished = {}, .name = name});
  if (!is_whole) runtime().leave_if_stop_wanted();
}

/// Operations of prompts; reads of weights where tokens come one at a time, by each rank for its
/// sequences.
double SequenceJob::least_seconds(const Roofs& roofs) const {
  const std::int64_t n = sequence_tokens();
  if (is_prompt()) {
    const double flops = sequence_flops(model().config, facts_of(model()), n, 1);
    return static_cast<double>(sequences()) * flops / roofs.flops_per_second;
  }
  const StoredModel stored(runtime(), engine_.load());
  const auto readers = std::min<std::int64_t>(sequences(), runtime().world().size());
  const double bytes = sequence_bytes(model().config, stored, runtime().precision(), n);
  return static_cast<double>(readers) * bytes / roofs.bytes_per_second;
}

/// Steps of fine-tuning over the same samples.
class TrainingJob final : public ModelJob {
 public:
  TrainingJob(const Runtime& runtime, OpenModel opened)
      : ModelJob(runtime, std::move(opened)),
        data_(make_data()),
        setup_(runtime, model(), data_),
        samples_(static_cast<std::size_t>(data_.train.size())) {
    std::iota(samples_.begin(), samples_.end(), 0);
  }

  [[nodiscard]] std::int64_t tokens() const override { return data_.train.tokens(); }
  [[nodiscard]] double least_seconds(const Roofs& roofs) const override {
    return training_flops(model(), data_.train) / roofs.flops_per_second;
  }

 private:
  [[nodiscard]] const Engine& engine() const override { return setup_.engine(); }
  [[nodiscard]] Engine& engine() override { return setup_.engine(); }
  void run_on(Transformer& transformer) override {
    if (&transformer == &engine().transformer()) {
      (void)setup_.trainer().step(steps_++, data_.train, samples_);
      return;
    }
    SamplePass pass = setup_.pass_on(transformer);
    (void)setup_.trainer_on(pass)->step(steps_++, data_.train, samples_);
  }
  [[nodiscard]] SftData make_data() const {
    SftData data;
    for (std::int64_t i = 0; runtime().is_first() && i < options().sequences; ++i) {
      const std::vector<std::int32_t> tokens =
          feed().take(static_cast<int>(i), options().point_prompt);
      data.train.add(tokens, tokens);
    }
    share_samples(runtime().world(), data.train);
    return data;
  }

  SftData data_;
  SftSetup setup_;
  std::vector<std::int64_t> samples_;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<PointJob> make_point_job(const Runtime& runtime) {
  const Options& options = runtime.options();
  agree(runtime.world(), [&] { require_point(runtime.command()); });
  if (options.shape) {
    announce(runtime);
    return make_shape_job(runtime);
  }
  OpenModel model = open_model(runtime);
  announce(runtime);
  const std::string note = sequence_note(options, model.config);
  if (!note.empty()) runtime.log().once(LogLevel::warning, "{}", note);
  if (options.job == StudyJob::sft) {
    return std::make_unique<TrainingJob>(runtime, std::move(model));
  }
  return std::make_unique<SequenceJob>(runtime, std::move(model));
}

}  // namespace moesaic
