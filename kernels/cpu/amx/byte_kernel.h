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

/// Turns int32 sums into results.
class ByteFinish {
 public:
  explicit ByteFinish(const TileArgs& args)
      : args_(args),
        trailer_(args.matrix->layout.format == Format::int8
                     ? int8_format::scales_offset(args.matrix->depth)
                     : int4_format::scales_offset(args.matrix->depth)) {}

  void operator()(std::int64_t first_row, std::int64_t rows, std::int64_t panel,
                  std::int64_t panels) const {
    for (std::int64_t p = panel; p < panel + panels; ++p) {
      const std::byte* const trailer = args_.matrix->panel(args_.first_panel + p) + trailer_;
      for (std::int64_t row = 0; row < rows; row += kRowBlock) {
        finish_block(first_row + row, std::min(kRowBlock, rows - row), p, trailer);
      }
    }
  }

 private:
  /// Rows of one block, whose scales lie behind its tiles.
  void finish_block(std::int64_t first_row, std::int64_t rows, std::int64_t panel,
                    const std::byte* trailer) const {
    const std::int64_t depth = args_.matrix->depth;
    const std::byte* const packed =
        args_.packed_rows + first_row * static_cast<std::int64_t>(byte_tile_row_bytes(depth));
    const auto* scales =
        reinterpret_cast<const float*>(packed + rows * round_up(depth, kIntStepDepth));
    float* out = args_.out + first_row * args_.out_stride + panel * kPanelColumns;
    for (std::int64_t row = 0; row < rows; ++row, out += args_.out_stride) {
      finish_row(out, trailer, scales[row]);
    }
  }

  const TileArgs& args_;
  std::int64_t trailer_;  // where a panel has its scales
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
