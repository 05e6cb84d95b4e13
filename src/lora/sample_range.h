#pragma once

#include <cstdint>

namespace moesaic {

/// Rows [first_row, first_row + num_rows) belong to one sample: gradients of weights are summed
/// over them in one chain.
struct SampleRange {
  std::int64_t first_row = 0;
  std::int64_t num_rows = 0;
};

}  // namespace moesaic
