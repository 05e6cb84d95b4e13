#pragma once

#include <bit>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/gemm_kernel.h"
#include "kernels/weight_format.h"

// The truth for all kernels of the tile order. Packed rows are floats that hold bf16 values.

namespace moesaic {
namespace {

template <typename Element>
void pack_row(const std::byte* source, std::int64_t depth, float* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  for (std::int64_t k = 0; k < depth; ++k) out[k] = to_float(to_bfloat16(to_float(elements[k])));
  for (std::int64_t k = depth; k < round_up(depth, kStepDepth); ++k) out[k] = 0;
}

inline void pack_rounded_rows(const RowSource& source, std::byte* out) noexcept {
  for (std::int64_t i = 0; i < source.num_rows; ++i, out += float_row_bytes(source.depth)) {
    auto* row = reinterpret_cast<float*>(out);
    if (source.element == RowSource::Element::f32) {
      pack_row<float>(source.rows[i], source.depth, row);
    } else {
      pack_row<BFloat16>(source.rows[i], source.depth, row);
    }
  }
}

/// One step of 32 k for one row and the 16 columns of a panel.
[[gnu::always_inline]] inline void add_step(const float* row, const std::byte* lines, float* sums) {
  float even[kPanelColumns] = {};
  float odd[kPanelColumns] = {};
  for (std::int64_t k = 0; k < kStepDepth; k += 2, lines += 64) {
    std::uint32_t pairs[kPanelColumns];
    std::memcpy(pairs, lines, sizeof pairs);
    for (std::int64_t c = 0; c < kPanelColumns; ++c) {
      even[c] = std::fma(row[k], std::bit_cast<float>(pairs[c] << 16), even[c]);
      odd[c] = std::fma(row[k + 1], std::bit_cast<float>(pairs[c] & 0xffff0000U), odd[c]);
    }
  }
  for (std::int64_t c = 0; c < kPanelColumns; ++c) sums[c] += even[c] + odd[c];
}

[[gnu::always_inline]] inline void all_tiles(const TileArgs& args, DecodeSteps decode) {
  const PackedMatrix& matrix = *args.matrix;
  for (std::int64_t p = 0; p < args.num_panels; ++p) {
    float* const out = args.out + p * kPanelColumns;
    for (std::int64_t r = 0; r < args.num_rows && !args.resume; ++r) {
      std::memset(out + r * args.out_stride, 0, kPanelColumns * sizeof(float));
    }
    for (std::int64_t s = 0; s < step_count(matrix.layout.format, matrix.depth); ++s) {
      alignas(64) std::byte lines[kTileBytes];
      decode({&matrix, args.first_panel + p, s, 1}, lines);
      for (std::int64_t r = 0; r < args.num_rows; ++r) {
        const auto* row = reinterpret_cast<const float*>(
            args.packed_rows + static_cast<std::size_t>(r) * float_row_bytes(matrix.depth));
        add_step(row + s * kStepDepth, lines, out + r * args.out_stride);
      }
    }
    for (std::int64_t c = 0; c < kPanelColumns; ++c) {
      const std::int64_t column = (args.first_panel + p) * kPanelColumns + c;
      const float scale = column_scale(matrix, column);
      if (scale == 1) continue;
      for (std::int64_t r = 0; r < args.num_rows; ++r) out[r * args.out_stride + c] *= scale;
    }
  }
}

// The same source twice: std::fma is one instruction in the first and a call of the C library in
// the second, which obeys MXCSR too. Both round once.
[[gnu::noinline, gnu::target("fma")]] inline void tile_with_fma(const TileArgs& args,
                                                                DecodeSteps decode) {
  all_tiles(args, decode);
}
[[gnu::noinline]] inline void tile_without_fma(const TileArgs& args, DecodeSteps decode) {
  all_tiles(args, decode);
}

template <DecodeSteps Decode>
void tile_order_tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  is_supported(Isa::avx2) ? tile_with_fma(args, Decode) : tile_without_fma(args, Decode);
}

inline void decode_truth(const StepRange& steps, std::byte* out) noexcept {
  for (std::int64_t s = 0; s < steps.count; ++s) {
    decode_step(*steps.matrix, steps.panel, steps.first + s,
                reinterpret_cast<BFloat16*>(out + s * kTileBytes));
  }
}

/// The kernel of a format whose elements become bf16 as `Decode` says.
template <DecodeSteps Decode = decode_truth>
constexpr GemmKernel scalar_decoded_kernel(Format format, const char* name) {
  return {.isa = Isa::scalar,
          .format = format,
          .name = name,
          .packed_row_bytes = float_row_bytes,
          .pack_rows = pack_rounded_rows,
          .scratch_bytes = 0,
          .tile = tile_order_tile<Decode>,
          .decode = Decode};
}

}  // namespace
}  // namespace moesaic
