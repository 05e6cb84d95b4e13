#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "kernels/vector_kernels.h"
#include "src/generate/logit_adjustment.h"
#include "src/generate/sampling_options.h"

namespace moesaic {

/// Draws tokens for one sequence. The same options, stream, text and logits give the same tokens on
/// every machine and rank.
class Sampler {
 public:
  /// `stream` tells sequences apart (the request's index). The options are in range
  /// (check_sampling).
  Sampler(const SamplingOptions& options, std::uint64_t stream, const VectorKernels& vector);

  /// The token after `text`, which may only grow from call to call; none if a logit is not a
  /// number, or the largest is infinite. Throws Error{usage} if the bias forbids every token.
  [[nodiscard]] std::optional<std::int32_t> sample(std::span<const float> logits,
                                                   const TextSoFar& text);

 private:
  /// `best`: the largest of the logits.
  [[nodiscard]] std::int32_t draw(std::span<const float> logits, float best);
  [[nodiscard]] std::int32_t draw_from_all(std::span<const float> logits, float best,
                                           double random);
  /// The token that `random` in [0, 1) falls on, among the shortest head of the list that reaches
  /// top-p. `others`: the probability of all tokens that are not candidates; none if it is one of
  /// these.
  [[nodiscard]] std::optional<std::int32_t> choose(double random, double others) const;
  void drop_unlikely();
  void compute_probabilities(std::span<const float> logits);

  SamplingOptions options_;
  LogitAdjustment adjustment_;
  const VectorKernels* vector_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> candidates_;  // the likeliest first
  std::vector<float> probabilities_;      // of them
  std::vector<float> all_probabilities_;  // [vocabulary]
};

}  // namespace moesaic
