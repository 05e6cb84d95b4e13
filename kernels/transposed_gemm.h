#pragma once

#include <memory>
#include <span>

#include "kernels/grouped_gemm.h"

namespace moesaic {

/// Products with transposed matrices, y[rows, k] = x[rows, n] W for W [n, k]: what the gradient of
/// a product's input is. The packed panels of the forward product are decoded and transposed on the
/// way, so that no second copy of the weights is kept. Sums run over n in the order that
/// GroupedGemm has for bf16 matrices (f32 matrices: one chain); x is multiplied by the scales of
/// W's rows, where the format has any, and rounded to bf16.
class TransposedGemm {
 public:
  explicit TransposedGemm(const Compute& compute);
  ~TransposedGemm();

  /// Input rows have group.weights.rows elements, output rows group.weights.depth. No two groups
  /// share a row. An addend [rows, k] may be the output itself, where gradients add up; besides it
  /// a LowRank of matrices without an order, and no other epilogue. Throws Error{internal} for
  /// groups that do not fit the input.
  void run(const RowSource& input, std::span<const GemmGroup> groups, const GemmOutput& output);

 private:
  class Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace moesaic
