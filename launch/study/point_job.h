#pragma once

#include <cstdint>

#include "launch/bench/model_feed.h"
#include "launch/job/runtime.h"
#include "src/generate/step_engine.h"

namespace moesaic {

/// What a point does with a model, again and again.
class PointJob {
 public:
  /// All must outlive this.
  PointJob(const Runtime& runtime, const FeedTokens& tokens);

  /// What it keeps in memory on a rank.
  [[nodiscard]] Workload workload() const;
  /// Tokens of one run, over all ranks.
  [[nodiscard]] std::int64_t tokens() const;
  /// Of one sequence.
  [[nodiscard]] std::int64_t sequence_tokens() const;
  [[nodiscard]] bool is_prompt() const noexcept;
  [[nodiscard]] std::int64_t sequences() const noexcept { return runtime_->options().sequences; }

  /// One run, from the first step to the last. Collective.
  void run(Transformer& transformer) const;

 private:
  [[nodiscard]] std::int64_t sequences_of_rank() const;
  [[nodiscard]] Request request(std::int64_t sequence) const;

  const Runtime* runtime_;
  const FeedTokens* tokens_;
};

}  // namespace moesaic
