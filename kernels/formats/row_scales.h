#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/panel_steps.h"
#include "kernels/formats/quantize_groups.h"

// What the formats with one scale a row share.

namespace moesaic {

/// Shapes `out`; quantize(FloatGroup) writes a row's codes and gives its scale.
template <typename Quantize>
void quantize_rows_whole(const FloatRows& rows, QuantizedRows& out, const Quantize& quantize) {
  out.scales.assign(static_cast<std::size_t>(rows.depth > 0 ? rows.num_rows : 0), 0);
  quantize_groups(rows, std::max<std::int64_t>(rows.depth, 1), out,
                  [&](const FloatGroup& row) { out.scales[row.index] = quantize(row); });
}

/// f32 [16]: the rows' scales times `factor`, a power of two.
void store_row_scales(const QuantizedRows& rows, float factor, std::byte* out);

/// int32 [16]: the sums of the rows' int8 codes times `factor`.
void store_code_sums(const QuantizedRows& rows, std::int32_t factor, std::byte* out);

}  // namespace moesaic
