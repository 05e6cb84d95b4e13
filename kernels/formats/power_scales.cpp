#include "kernels/formats/power_scales.h"

#include "base/error.h"

namespace moesaic {

std::uint8_t power_scale(const QuantizedRows& rows, std::int64_t row, std::int64_t step) {
  if (row >= rows.num_rows) return kE8m0One;
  const std::uint8_t scale = rows.scale_codes[rows.group_index(row, step)];
  require(scale != kE8m0Nan, ErrorKind::file,
          "row {} of a panel, k {}: the scale's e8m0 code 0xff is no number", row,
          step * kStepDepth);
  return scale;
}

}  // namespace moesaic
