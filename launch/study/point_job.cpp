#include "launch/study/point_job.h"

#include <algorithm>
#include <utility>

namespace moesaic {

PointJob::PointJob(const Runtime& runtime, const FeedTokens& tokens)
    : runtime_(&runtime), tokens_(&tokens) {}

bool PointJob::is_prompt() const noexcept {
  return runtime_->options().job == StudyJob::prompt;
}

std::int64_t PointJob::sequence_tokens() const {
  const Options& options = runtime_->options();
  return is_prompt() ? options.point_prompt : options.point_gen;
}

std::int64_t PointJob::tokens() const {
  return sequences() * sequence_tokens();
}

std::int64_t PointJob::sequences_of_rank() const {
  const std::int64_t ranks = runtime_->world().size();
  return (sequences() + ranks - 1) / ranks;
}

Workload PointJob::workload() const {
  const std::int64_t rows = is_prompt() ? runtime_->options().batch_size : sequences_of_rank();
  return {.sequences = is_prompt() ? 1 : sequences_of_rank(),
          .capacity = sequence_tokens() + 1,
          .batch_tokens = std::min(rows, std::max(sequence_tokens(), sequences_of_rank())),
          .logits_rows = is_prompt() ? 1 : sequences_of_rank()};
}

Request PointJob::request(std::int64_t sequence) const {
  Request request;
  request.tokens = tokens_->take(static_cast<int>(sequence), is_prompt() ? sequence_tokens() : 1);
  request.sampling.temperature = 0;
  if (is_prompt()) {
    request.logits_from = sequence_tokens() - 1;
  } else {
    request.max_new_tokens = sequence_tokens();
  }
  return request;
}

void PointJob::run(Transformer& transformer) const {
  const Workload work = workload();
  StepEngine engine(
      transformer, runtime_->world(),
      {.batch_tokens = is_prompt() ? runtime_->options().batch_size : sequences_of_rank(),
       .parallel = work.sequences,
       .share_prefixes = false});
  for (std::int64_t i = 0; engine.submits() && i < sequences(); ++i) engine.submit(request(i));
  do {
    engine.step();
  } while (engine.under_way());
}

}  // namespace moesaic
