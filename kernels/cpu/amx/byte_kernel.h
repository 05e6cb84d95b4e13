#pragma once

#include <algorithm>

#include "kernels/cpu/amx/pack_tiles.h"
#include "kernels/cpu/amx/raw_tiles.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/int4.h"
#include "kernels/formats/int8.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Turns the int32 sums of a whole product into its results.
inline void finish_tiles(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t codes = round_up(matrix.depth, kIntStepDepth);
  const std::int64_t trailer = matrix.layout.format == Format::int8
                                   ? int8_format::scales_offset(matrix.depth)
                                   : int4_format::scales_offset(matrix.depth);
  const std::size_t row_bytes = byte_tile_row_bytes(matrix.depth);
  for (std::int64_t first = 0; first < args.num_rows; first += kRowBlock) {
    const std::int64_t rows = std::min(kRowBlock, args.num_rows - first);
    const std::byte* block = args.packed_rows + static_cast<std::size_t>(first) * row_bytes;
    const auto* scales = reinterpret_cast<const float*>(block + rows * codes);
    for (std::int64_t row = 0; row < rows; ++row) {
      float* out = args.out + (first + row) * args.out_stride;
      for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
        finish_row(out + panel * kPanelColumns, matrix.panel(args.first_panel + panel) + trailer,
                   scales[row]);
      }
    }
  }
}

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
