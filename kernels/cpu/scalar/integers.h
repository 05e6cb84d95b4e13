#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/cpu/token_scale.h"
#include "kernels/gemm_kernel.h"
#include "kernels/weight_format.h"

// The truth for the integer kernels: exact sums of products of int8 codes, times both scales. The
// sums wrap as those of the vector instructions do, beyond about 130,000 k.

namespace moesaic {
namespace {

template <typename Element>
float pack_integer_row(const std::byte* source, std::int64_t depth, std::int16_t* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  std::uint32_t largest = 0;
  for (std::int64_t k = 0; k < depth; ++k) {
    largest = std::max(largest, std::bit_cast<std::uint32_t>(to_float(elements[k])) & 0x7fffffffU);
  }
  const TokenScale token = token_scale(largest);
  for (std::int64_t k = 0; k < round_up(depth, kIntStepDepth); ++k) {
    const bool zero = k >= depth || token.inverse == 0;
    out[k] = zero
                 ? std::int16_t{0}
                 : static_cast<std::int16_t>(std::nearbyint(to_float(elements[k]) * token.inverse));
  }
  return token.scale;
}

inline void pack_all_integer_rows(const RowSource& source, std::byte* out) {
  const std::int64_t codes = round_up(source.depth, kIntStepDepth);
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += word_row_bytes(source.depth)) {
    auto* words = reinterpret_cast<std::int16_t*>(out);
    const float scale = source.element == RowSource::Element::f32
                            ? pack_integer_row<float>(source.rows[row], source.depth, words)
                            : pack_integer_row<BFloat16>(source.rows[row], source.depth, words);
    std::memcpy(out + codes * 2, &scale, sizeof scale);
  }
}

/// Integers as int16, then the row's scale.
inline void pack_integer_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // nearbyint and the products round as MXCSR says
  pack_all_integer_rows(source, out);
}

[[gnu::noinline]] inline void integer_tiles(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  // int4 kernels sum 16 times the codes, and its scales are a 16th: powers of two change no bits.
  for (std::int64_t p = 0; p < args.num_panels; ++p) {
    for (std::int64_t r = 0; r < args.num_rows; ++r) {
      const std::byte* packed =
          args.packed_rows + static_cast<std::size_t>(r) * word_row_bytes(matrix.depth);
      const auto* row = reinterpret_cast<const std::int16_t*>(packed);
      std::uint32_t sums[kPanelColumns] = {};
      for (std::int64_t s = 0; s < steps; ++s) {
        std::int8_t codes[kTileBytes];
        decode_int_step(matrix, args.first_panel + p, s, codes);
        for (std::int64_t i = 0; i < kTileBytes; ++i) {
          const std::int64_t k = s * kIntStepDepth + i / 64 * 4 + i % 4;
          sums[i / 4 % 16] += static_cast<std::uint32_t>(std::int32_t{codes[i]} * row[k]);
        }
      }
      float scale;
      std::memcpy(&scale, packed + round_up(matrix.depth, kIntStepDepth) * 2, sizeof scale);
      float* const out = args.out + r * args.out_stride + p * kPanelColumns;
      for (std::int64_t c = 0; c < kPanelColumns; ++c) {
        const auto sum = static_cast<float>(static_cast<std::int32_t>(sums[c]));
        out[c] = sum * column_scale(matrix, (args.first_panel + p) * kPanelColumns + c) * scale;
      }
    }
  }
}

inline void integer_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  integer_tiles(args);
}

inline void decode_integer_truth(const StepRange& steps, std::byte* out) noexcept {
  for (std::int64_t s = 0; s < steps.count; ++s) {
    decode_int_step(*steps.matrix, steps.panel, steps.first + s,
                    reinterpret_cast<std::int8_t*>(out + s * kTileBytes));
  }
}

constexpr GemmKernel scalar_integer_kernel(Format format, const char* name) {
  return {.isa = Isa::scalar,
          .format = format,
          .name = name,
          .packed_row_bytes = word_row_bytes,
          .pack_rows = pack_integer_rows,
          .scratch_bytes = 0,
          .tile = integer_tile,
          .decode = decode_integer_truth};
}

}  // namespace
}  // namespace moesaic
