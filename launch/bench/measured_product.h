#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/grouped_gemm.h"
#include "launch/bench/sample_rows.h"
#include "launch/options/option_values.h"
#include "launch/shapes/cold_weights.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {

/// A product that is run again and again, with several numbers of rows.
class MeasuredProduct {
 public:
  virtual ~MeasuredProduct() = default;
  /// Gets ready for products of so many rows.
  virtual void prepare(std::int64_t num_rows) = 0;
  virtual void run() = 0;
  /// Mean |result - exact| / mean |exact| of the last product, exact in fp64 from what the packed
  /// weights stand for.
  [[nodiscard]] virtual double error() const = 0;
  /// Of the weights, or of the results where these are the matrix.
  [[nodiscard]] virtual std::int64_t matrix_bytes() const = 0;
};

/// What the products of a shape and a format have in common. `memory` is what weights (or results)
/// rotate over; all must outlive the products.
struct ProductBed {
  MatrixShape shape;
  const SampleWeights* weights;  // [n, k], not of outer products
  const SampleRows* inputs;      // [rows, k], not of transposed products
  const SampleRows* gradients;   // [rows, n], not of forward products
  ColdMatrices* matrices;        // of the weights
  std::span<std::byte> memory;
};

/// Of our own kernels, as users get them.
[[nodiscard]] std::unique_ptr<MeasuredProduct> make_product(ProductOp op, const ProductBed& bed,
                                                            const Compute& compute);

}  // namespace moesaic
