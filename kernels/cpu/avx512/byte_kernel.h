#pragma once

#include "kernels/cpu/avx512/pack_bytes.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/formats/int4.h"
#include "kernels/formats/int8.h"

// What the int8 and the int4 kernel have in common: rows of int8 + 128, each followed by its scale.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

[[gnu::noinline]] inline void pack_all_byte_rows(const RowSource& source, std::byte* out) {
  const std::int64_t codes = round_up(source.depth, kIntStepDepth);
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += byte_row_bytes(source.depth)) {
    *reinterpret_cast<float*>(out + codes) = pack_byte_row(source, row, out, 64);
  }
}

/// Turns the int32 sums of a whole product into its results.
inline void finish_bytes(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t codes = round_up(matrix.depth, kIntStepDepth);
  const std::int64_t trailer = matrix.layout.format == Format::int8
                                   ? int8_format::scales_offset(matrix.depth)
                                   : int4_format::scales_offset(matrix.depth);
  for (std::int64_t row = 0; row < args.num_rows; ++row) {
    const std::byte* packed =
        args.packed_rows + static_cast<std::size_t>(row) * byte_row_bytes(matrix.depth);
    const float scale = *reinterpret_cast<const float*>(packed + codes);
    float* out = args.out + row * args.out_stride;
    for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
      finish_row(out + panel * kPanelColumns, matrix.panel(args.first_panel + panel) + trailer,
                 scale);
    }
  }
}

MOESAIC_END_TARGET

inline void pack_byte_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and quotients round as MXCSR says
  pack_all_byte_rows(source, out);
}

}  // namespace
}  // namespace moesaic
