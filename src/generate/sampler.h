#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/vector_kernels.h"

namespace moesaic {

/// temperature 0 is greedy: the largest logit, the lowest id among equals.
struct SamplingOptions {
  double temperature = 0.8;
  std::int64_t top_k = 40;  // 0: no limit
  double top_p = 0.95;      // 1: no limit
  std::uint64_t seed = 0;
};

/// Throws Error{usage} for options out of range.
void check_sampling(const SamplingOptions& options);

/// Draws tokens for one sequence. The same options, stream and logits give the same tokens on every
/// machine and rank.
class Sampler {
 public:
  /// `stream` tells sequences apart (the request's index). Throws Error{usage} for options out of
  /// range.
  Sampler(const SamplingOptions& options, std::uint64_t stream, const VectorKernels& vector);

  /// Temperature, then top-k, then top-p, as transformers orders them. Throws Error{internal} if no
  /// logit is a finite number.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits);

 private:
  [[nodiscard]] std::int32_t draw(std::span<const float> logits);

  SamplingOptions options_;
  const VectorKernels* vector_;
  std::mt19937_64 random_;
  std::vector<std::int32_t> candidates_;
  std::vector<float> probabilities_;
};

}  // namespace moesaic
