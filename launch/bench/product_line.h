#pragma once

#include <cstdint>
#include <string>

#include "launch/options/option_values.h"
#include "launch/results/result_table.h"
#include "launch/shapes/named_shapes.h"

namespace moesaic {

/// A product as it was measured, on whatever computes.
struct ProductFigures {
  ProductOp op = ProductOp::forward;
  MatrixShape shape;
  Layout layout;
  std::int64_t rows = 0;
  double seconds = 0;
  std::int64_t matrix_bytes = 0;
  double error = 0;  // mean |result - exact| / mean |exact|
};

/// What it ran on, and what that does at most.
struct ProductRoofs {
  std::string isa;
  int threads = 0;
  double operations_per_second = 0;
  double bytes_per_second = 0;
};

/// Its line in the table of moesaic bench kernels.
[[nodiscard]] ResultLine product_line(const ProductFigures& measured, const ProductRoofs& roofs);

}  // namespace moesaic
