#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/gemm_kernel.h"

// The truth for all f32 kernels: one chain of fused multiply-adds in ascending k.

namespace moesaic {
namespace {

template <typename Element>
void pack_row(const std::byte* source, std::int64_t depth, float* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  for (std::int64_t k = 0; k < depth; ++k) out[k] = to_float(elements[k]);
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

[[gnu::always_inline]] inline void all_tiles(const TileArgs& args) {
  const std::int64_t depth = args.matrix->depth;
  for (std::int64_t p = 0; p < args.num_panels; ++p) {
    const auto* panel = reinterpret_cast<const float*>(args.matrix->panel(args.first_panel + p));
    for (std::int64_t r = 0; r < args.num_rows; ++r) {
      const auto* row = reinterpret_cast<const float*>(
          args.packed_rows + static_cast<std::size_t>(r) * float_row_bytes(depth));
      float* const out = args.out + r * args.out_stride + p * kPanelColumns;
      float sums[kPanelColumns] = {};
      if (args.resume) std::memcpy(sums, out, sizeof sums);
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::int64_t c = 0; c < kPanelColumns; ++c) {
          sums[c] = std::fma(row[k], panel[k * kPanelColumns + c], sums[c]);
        }
      }
      std::memcpy(out, sums, sizeof sums);
    }
  }
}

// The same source twice: std::fma is one instruction in the first and a call of the C library in
// the second. Both round once.
[[gnu::target("fma")]] void tile_with_fma(const TileArgs& args) {
  all_tiles(args);
}
void tile_without_fma(const TileArgs& args) {
  all_tiles(args);
}

void tile(const TileArgs& args) noexcept {
  is_supported(Isa::avx2) ? tile_with_fma(args) : tile_without_fma(args);
}

}  // namespace

extern const GemmKernel scalar_f32_kernel;
constinit const GemmKernel scalar_f32_kernel{
    .isa = Isa::scalar,
    .format = Format::f32,
    .name = "scalar/f32",
    .packed_row_bytes = float_row_bytes,
    .pack_rows = pack_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
