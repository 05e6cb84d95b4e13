#pragma once

#include <cstdint>

namespace moesaic {

/// Numbers in fixed point: integers that count units.
struct FixedPoint {
  double per_one;  ///< units that make 1: a power of two
  float limit;     ///< numbers from here on do not fit
};

/// One step of AdamW over some parameters, its numbers as torch rounds them when they meet tensors
/// of f32. The gradient of parameter i is (float)(sums[i] * scale).
struct AdamUpdate {
  float decay;         ///< what weight decay leaves of a parameter
  float first_share;   ///< 1 - beta1
  float second_kept;   ///< beta2
  float second_share;  ///< 1 - beta2
  float second_root;   ///< sqrt(1 - beta2^step)
  float epsilon;
  float step_size;  ///< -learning rate / (1 - beta1^step)
  double scale;
};

/// What AdamW reads and changes, all of as many elements.
struct AdamRows {
  const std::int64_t* sums;
  float* parameters;
  float* first;   // moment
  float* second;  // moment
};

/// Work on sums of gradients, which are in fixed point so that their order does not matter. The
/// same bits with every instruction set.
struct GradientKernels {
  /// sums[i] += x[i], rounded to the nearest unit (halves away from zero). False: an |x[i]| is not
  /// below the limit, or NaN, and was left out, or a sum has left the 64 bits.
  bool (*add_fixed)(const FixedPoint& form, const float* x, std::int64_t n,
                    std::int64_t* sums) noexcept;
  /// Whether an |x[i]| is greater than `limit`.
  bool (*any_beyond)(const std::int64_t* x, std::int64_t n, std::int64_t limit) noexcept;
  /// Of x[i]^2: element i in lane i % 16, then the lanes, ascending.
  double (*sum_of_squares)(const std::int64_t* x, std::int64_t n) noexcept;
  void (*adam)(const AdamUpdate& by, const AdamRows& rows, std::int64_t n) noexcept;
};

}  // namespace moesaic
