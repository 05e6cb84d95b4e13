#include <bit>
#include <cmath>
#include <cstring>

#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/gemm_kernel.h"
#include "src/base/dtype.h"

// The truth for all bf16 kernels of the tile order. Packed rows are floats that hold bf16 values.

namespace moesaic {
namespace {

template <typename Element>
void pack_row(const std::byte* source, std::int64_t depth, float* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  for (std::int64_t k = 0; k < depth; ++k) out[k] = to_float(to_bfloat16(to_float(elements[k])));
  for (std::int64_t k = depth; k < round_up(depth, kStepDepth); ++k) out[k] = 0;
}

void pack_rows(const RowSource& source, std::byte* out) noexcept {
  for (std::int64_t i = 0; i < source.num_rows; ++i, out += float_row_bytes(source.depth)) {
    auto* row = reinterpret_cast<float*>(out);
    if (source.element == RowSource::Element::f32) {
      pack_row<float>(source.rows[i], source.depth, row);
    } else {
      pack_row<BFloat16>(source.rows[i], source.depth, row);
    }
  }
}

// One step of 32 k for one row and the 16 columns of a panel.
[[gnu::always_inline]] inline void step(const float* row, const std::byte* lines, float* sums) {
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

[[gnu::always_inline]] inline void all_tiles(const TileArgs& args) {
  const std::int64_t steps = round_up(args.depth, kStepDepth) / kStepDepth;
  const std::byte* panel = args.panels;
  for (std::int64_t p = 0; p < args.num_panels; ++p, panel += steps * 1024) {
    for (std::int64_t r = 0; r < args.num_rows; ++r) {
      const auto* row = reinterpret_cast<const float*>(
          args.packed_rows + static_cast<std::size_t>(r) * float_row_bytes(args.depth));
      float sums[kPanelColumns] = {};
      for (std::int64_t s = 0; s < steps; ++s) {
        step(row + s * kStepDepth, panel + s * 1024, sums);
      }
      std::memcpy(args.out + r * args.out_stride + p * kPanelColumns, sums, sizeof sums);
    }
  }
}

// The same source twice: std::fma is one instruction in the first and a call of the C library in
// the second, which obeys MXCSR too. Both round once.
[[gnu::noinline, gnu::target("fma")]] void tile_with_fma(const TileArgs& args) {
  all_tiles(args);
}
[[gnu::noinline]] void tile_without_fma(const TileArgs& args) {
  all_tiles(args);
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  is_supported(Isa::avx2) ? tile_with_fma(args) : tile_without_fma(args);
}

}  // namespace

extern const GemmKernel scalar_bf16_kernel;
constinit const GemmKernel scalar_bf16_kernel{
    .isa = Isa::scalar,
    .format = Format::bf16,
    .name = "scalar/bf16",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows,
    .tile = tile,
};

}  // namespace moesaic
