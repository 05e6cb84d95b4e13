#pragma once

#include "kernels/cpu/avx512/pack_bytes.h"
#include "kernels/cpu/tile_environment.h"

namespace moesaic {
namespace {

/// 64 bytes a step, no gaps: a block of m rows is [steps][m][64].
inline std::size_t bf16_tile_row_bytes(std::int64_t depth) noexcept {
  return static_cast<std::size_t>(round_up(depth, kStepDepth)) * 2;
}

inline void pack_bf16_tiles(const RowSource& source, std::byte* out) noexcept {
  for (std::int64_t row = 0; row < source.num_rows; ++row) {
    pack_row<RowForm::bf16>(source, row, out + row * 64,
                            static_cast<std::size_t>(source.num_rows) * 64);
  }
}

/// The same, and behind the tiles of each block its rows' scales.
inline std::size_t byte_tile_row_bytes(std::int64_t depth) noexcept {
  return static_cast<std::size_t>(round_up(depth, kIntStepDepth)) + 64;
}

[[gnu::noinline]] inline void pack_all_byte_tiles(const RowSource& source, std::byte* out) {
  const std::int64_t codes = round_up(source.depth, kIntStepDepth);
  auto* scales = reinterpret_cast<float*>(out + source.num_rows * codes);
  for (std::int64_t row = 0; row < source.num_rows; ++row) {
    scales[row] =
        pack_byte_row(source, row, out + row * 64, static_cast<std::size_t>(source.num_rows) * 64);
  }
}

inline void pack_byte_tiles(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and quotients round as MXCSR says
  pack_all_byte_tiles(source, out);
}

}  // namespace
}  // namespace moesaic
