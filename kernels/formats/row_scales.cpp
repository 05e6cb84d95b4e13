#include "kernels/formats/row_scales.h"

#include <cmath>

#include "base/error.h"

namespace moesaic {

void store_row_scales(const QuantizedRows& rows, float factor, std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    float scale = 0;
    if (r < rows.num_rows && rows.num_groups > 0) {
      scale = rows.scales[rows.group_index(r, 0)] * factor;
      require(std::isfinite(scale), ErrorKind::file,
              "row {} of a panel: the scale {} is too large or no number", r, scale / factor);
    }
    store_as(out + r * 4, scale);
  }
}

void store_code_sums(const QuantizedRows& rows, std::int32_t factor, std::byte* out) {
  for (std::int64_t r = 0; r < kPanelColumns; ++r) {
    std::int32_t sum = 0;
    if (r < rows.num_rows) {
      const std::uint8_t* const codes = rows.row_codes(r);
      for (std::int64_t k = 0; k < rows.depth; ++k) sum += static_cast<std::int8_t>(codes[k]);
    }
    // Wraps beyond 2^31 as the kernels' sums do.
    store_as(out + r * 4, static_cast<std::uint32_t>(sum) * static_cast<std::uint32_t>(factor));
  }
}

}  // namespace moesaic
