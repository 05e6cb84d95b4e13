#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/buffer.h"
#include "kernels/gemm_kernel.h"
#include "launch/shapes/cold_weights.h"

namespace moesaic {

/// Rows of random activations, of deviation 1.
class SampleRows {
 public:
  SampleRows(RowSource::Element element, std::int64_t num_rows, std::int64_t depth);

  /// The first `num_rows` of them.
  [[nodiscard]] RowSource source(std::int64_t num_rows) const noexcept;
  [[nodiscard]] const std::byte* data() const noexcept { return elements_.data(); }
  /// Row `row` as numbers [depth].
  [[nodiscard]] std::vector<float> values(std::int64_t row) const;

 private:
  RowSource::Element element_;
  std::int64_t depth_;
  Buffer<std::byte> elements_;  // [num_rows, depth]
  std::vector<const std::byte*> rows_;
};

/// An element of a product's result.
using ResultAt = std::function<double(std::int64_t row, std::int64_t column)>;

/// What a row of a product's input counts, [depth].
using RowValues = std::function<std::vector<float>(std::int64_t row)>;

/// mean |result - exact| / mean |exact| over some of the first `num_rows` rows and the first
/// `columns` columns (as far as the weights do not repeat), exact in fp64 from what the packed
/// weights stand for.
[[nodiscard]] double product_error(const SampleWeights& weights, const RowValues& rows,
                                   std::int64_t num_rows, std::int64_t columns,
                                   const ResultAt& result);
[[nodiscard]] double product_error(const SampleWeights& weights, const SampleRows& rows,
                                   std::int64_t num_rows, std::int64_t columns,
                                   const ResultAt& result);

/// A row of an exact result.
using ExactRow = std::function<std::vector<double>(std::int64_t row)>;

/// The same for any result [num_rows, columns]: over three of its rows, and as many columns.
[[nodiscard]] double sampled_error(std::int64_t num_rows, std::int64_t columns,
                                   const ExactRow& exact, const ResultAt& result);

}  // namespace moesaic
