#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/slopes.h"

namespace moesaic {

/// A low-rank addition to rows [first_row, first_row + rows) of a matrix.
struct NaiveAdapter {
  std::size_t matrix = 0;  // its place in the layer's WeightSet
  std::int64_t first_row = 0;
  std::int64_t rows = 0;
  std::int64_t rank = 0;
  double scale = 0;
  Doubles a{};  // [rank, in]
  Doubles b{};  // [rows, rank]
};

}  // namespace moesaic
