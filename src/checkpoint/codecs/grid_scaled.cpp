#include "src/checkpoint/codecs/grid_scaled.h"

#include <fmt/format.h>

namespace moesaic {

void GridScaledCodec::fill(const RowRange& rows, QuantizedRows& out) const {
  for (std::int64_t i = 0; i < rows.count; ++i) {
    const std::int64_t row = rows.at(i);
    fill_codes(row, out.codes.data() + i * cols());
    for (std::int64_t g = 0; g < num_groups(); ++g) {
      out.scales[out.group_index(i, g)] = grid_.scales.at(grid_.row(row), grid_.col(g * group()));
    }
  }
}

void GridScaledCodec::for_each_bytes(const RowRange& range, const BytesCall& call) const {
  if (range.count == 0) return;
  const std::int64_t rows_a_line = rows() / codes_.shape[0];  // 2 in ModelOpt's 4-bit integers
  call(codes_.row_bytes(range.first / rows_a_line, (range.end() - 1) / rows_a_line + 1));
  call(grid_.scales.row_bytes(grid_.row(range.first), grid_.row(range.end() - 1) + 1));
}

}  // namespace moesaic
