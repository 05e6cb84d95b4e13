#include "launch/study/point_job.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "launch/bench/model_feed.h"
#include "launch/bench/stored_model.h"
#include "launch/sft/sft_setup.h"
#include "src/generate/step_engine.h"

namespace moesaic {
namespace {

/// Sequences that ranks take as they become free: prompts, or tokens one at a time.
class SequenceJob final : public PointJob {
 public:
  SequenceJob(const Runtime& runtime, const OpenModel& model)
      : runtime_(runtime),
        model_(model),
        tokens_(runtime, model),
        engine_(runtime, model, work()) {}

  [[nodiscard]] Engine& engine() noexcept override { return engine_; }
  [[nodiscard]] std::int64_t tokens() const override { return sequences() * sequence_tokens(); }
  void run() override { run_on(engine_.transformer()); }
  void run_on(Transformer& transformer) override;
  [[nodiscard]] double least_seconds(const Roofs& roofs) const override;

 private:
  [[nodiscard]] const Options& options() const noexcept { return runtime_.options(); }
  [[nodiscard]] bool is_prompt() const noexcept { return options().job == StudyJob::prompt; }
  [[nodiscard]] std::int64_t sequences() const noexcept { return options().sequences; }
  [[nodiscard]] std::int64_t sequence_tokens() const noexcept {
    return is_prompt() ? options().point_prompt : options().point_gen;
  }
  [[nodiscard]] std::int64_t sequences_of_rank() const {
    const std::int64_t ranks = runtime_.world().size();
    return (sequences() + ranks - 1) / ranks;
  }
  [[nodiscard]] Workload work() const;
  [[nodiscard]] Request request(std::int64_t sequence) const;

  const Runtime& runtime_;
  const OpenModel& model_;
  FeedTokens tokens_;
  Engine engine_;
};

Workload SequenceJob::work() const {
  const std::int64_t rows = is_prompt() ? options().batch_size : sequences_of_rank();
  return {.sequences = is_prompt() ? 1 : sequences_of_rank(),
          .capacity = sequence_tokens() + 1,
          .batch_tokens = std::min(rows, std::max(sequence_tokens(), sequences_of_rank())),
          .logits_rows = is_prompt() ? 1 : sequences_of_rank()};
}

Request SequenceJob::request(std::int64_t sequence) const {
  Request request;
  request.tokens = tokens_.take(static_cast<int>(sequence), is_prompt() ? sequence_tokens() : 1);
  request.sampling.temperature = 0;
  if (is_prompt()) {
    request.logits_from = sequence_tokens() - 1;
  } else {
    request.max_new_tokens = sequence_tokens();
  }
  return request;
}

void SequenceJob::run_on(Transformer& transformer) {
  StepEngine engine(transformer, runtime_.world(),
                    {.batch_tokens = is_prompt() ? options().batch_size : sequences_of_rank(),
                     .parallel = work().sequences,
                     .share_prefixes = false});
  for (std::int64_t i = 0; engine.submits() && i < sequences(); ++i) engine.submit(request(i));
  do {
    engine.step();
  } while (engine.under_way());
}

/// Operations of prompts; reads of weights where tokens come one at a time, by each rank for its
/// sequences.
double SequenceJob::least_seconds(const Roofs& roofs) const {
  const std::int64_t n = sequence_tokens();
  if (is_prompt()) {
    const double flops = sequence_flops(model_.config, facts_of(model_), n, 1);
    return static_cast<double>(sequences()) * flops / roofs.flops_per_second;
  }
  const StoredModel stored(runtime_, engine_.load());
  const auto readers = std::min<std::int64_t>(sequences(), runtime_.world().size());
  const double bytes = sequence_bytes(model_.config, stored, runtime_.precision(), n);
  return static_cast<double>(readers) * bytes / roofs.bytes_per_second;
}

/// Steps of fine-tuning over the same samples.
class TrainingJob final : public PointJob {
 public:
  TrainingJob(const Runtime& runtime, const OpenModel& model)
      : model_(model), data_(make_data(runtime, model)), setup_(runtime, model, data_) {
    samples_.resize(static_cast<std::size_t>(data_.train.size()));
    std::iota(samples_.begin(), samples_.end(), 0);
  }

  [[nodiscard]] Engine& engine() noexcept override { return setup_.engine(); }
  [[nodiscard]] std::int64_t tokens() const override { return data_.train.tokens(); }
  void run() override { (void)setup_.trainer().step(steps_++, data_.train, samples_); }
  void run_on(Transformer& transformer) override {
    SamplePass pass = setup_.pass_on(transformer);
    (void)setup_.trainer_on(pass)->step(steps_++, data_.train, samples_);
  }
  [[nodiscard]] double least_seconds(const Roofs& roofs) const override {
    return training_flops(model_, data_.train) / roofs.flops_per_second;
  }

 private:
  static SftData make_data(const Runtime& runtime, const OpenModel& model) {
    const Options& options = runtime.options();
    const FeedTokens feed(runtime, model);
    SftData data;
    for (std::int64_t i = 0; runtime.is_first() && i < options.sequences; ++i) {
      const std::vector<std::int32_t> tokens = feed.take(static_cast<int>(i), options.point_prompt);
      data.train.add(tokens, tokens);
    }
    share_samples(runtime.world(), data.train);
    return data;
  }

  const OpenModel& model_;
  SftData data_;
  SftSetup setup_;
  std::vector<std::int64_t> samples_;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<PointJob> make_point_job(const Runtime& runtime, const OpenModel& model) {
  if (runtime.options().job == StudyJob::sft) return std::make_unique<TrainingJob>(runtime, model);
  return std::make_unique<SequenceJob>(runtime, model);
}

}  // namespace moesaic
