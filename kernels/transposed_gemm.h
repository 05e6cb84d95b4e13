#pragma once

#include <memory>
#include <span>

#include "kernels/grouped_gemm.h"

namespace moesaic {

/// An input, and what its rows are multiplied by.
struct TransposedProduct {
  RowSource input;
  std::span<const GemmGroup> groups;
};

class TransposedPlan;

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
  /// The sum of several such products: each one's sums go on from those of the one before, then
  /// come all LowRanks, then the addend of the first. Group i has the same rows in all of them, and
  /// matrices of the same depth and order, which are all f32 or none.
  void run(std::span<const TransposedProduct> products, const GemmOutput& output);

  /// What one such product of f32 rows packs at a time, at most, with a matrix [depth, columns]
  /// whose transposed panels `kernel` takes: for the product with an output matrix, which is deep.
  struct Size {
    std::int64_t rows = 0;
    std::int64_t depth = 0;
    std::int64_t columns = 0;
  };
  [[nodiscard]] static std::int64_t packed_bytes(const GemmKernel& kernel, const Size& size,
                                                 int threads);
  /// What the last product had room for.
  [[nodiscard]] std::int64_t scratch_bytes() const noexcept;

  /// Whether the first thing that happens to rows is that they are rounded to bf16.
  [[nodiscard]] static bool rounds_rows(const PackedMatrix& weights) noexcept;
  /// Whether a product with `weights` packs its rows as one with `projection` does, and so can make
  /// LowRank::inner.
  [[nodiscard]] static bool can_project(const PackedMatrix& weights,
                                        const PackedMatrix& projection) noexcept;

 private:
  std::unique_ptr<TransposedPlan> plan_;
};

}  // namespace moesaic
