#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/row_layout.h"
#include "kernels/cpu/tile_environment.h"
#include "kernels/cpu/token_scale.h"
#include "kernels/formats/int4_group.h"
#include "kernels/gemm_kernel.h"

// The truth for int8 activations with a scale for each token and group: exact sums over a group,
// times both scales, added up group by group.

namespace moesaic {
namespace {

template <typename Element>
void pack_row(const std::byte* source, std::int64_t depth, std::byte* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  auto* codes = reinterpret_cast<std::int8_t*>(out);
  auto* groups = reinterpret_cast<ByteGroup*>(out + byte_group_count(depth) * kByteGroupDepth);
  for (std::int64_t first = 0; first < depth; first += kByteGroupDepth) {
    const std::int64_t end = std::min(first + kByteGroupDepth, depth);
    std::uint32_t largest = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const auto bits = std::bit_cast<std::uint32_t>(to_float(elements[k]));
      largest = std::max(largest, bits & 0x7fffffffU);
    }
    const TokenScale token = token_scale(largest);
    ByteGroup group{.scale = token.scale, .sum = 0};
    for (std::int64_t k = first; k < first + kByteGroupDepth; ++k) {
      const bool zero = k >= end || token.inverse == 0;
      codes[k] =
          zero ? std::int8_t{0}
               : static_cast<std::int8_t>(std::nearbyint(to_float(elements[k]) * token.inverse));
      group.sum += codes[k];
    }
    *groups++ = group;
  }
}

[[gnu::noinline]] void pack_all_rows(const RowSource& source, std::byte* out) {
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += group_row_bytes(source.depth)) {
    source.element == RowSource::Element::f32
        ? pack_row<float>(source.rows[row], source.depth, out)
        : pack_row<BFloat16>(source.rows[row], source.depth, out);
  }
}

void pack_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // nearbyint and the products round as MXCSR says
  pack_all_rows(source, out);
}

/// One result.
float multiply(const std::byte* row, const PackedMatrix& matrix, const std::byte* panel,
               std::int64_t column) {
  const std::int64_t num_groups = byte_group_count(matrix.depth);
  const auto* codes = reinterpret_cast<const std::int8_t*>(row);
  const auto* groups = reinterpret_cast<const ByteGroup*>(row + num_groups * kByteGroupDepth);
  const std::byte* scales = panel + int4_group_format::scales_offset(matrix.depth);
  float total = 0;
  for (std::int64_t group = 0; group < num_groups; ++group) {
    const int4_group_format::GroupScale weight =
        int4_group_format::load_scale(matrix.layout, scales, column);
    const std::int64_t first = group * kByteGroupDepth;
    const std::int64_t end = std::min(first + kByteGroupDepth, matrix.depth);
    std::int32_t sum = 0;
    for (std::int64_t k = first; k < end; ++k) {
      const std::byte* step = panel + k / kStepDepth * int4_group_format::kStepBytes;
      sum += (int4_group_format::load_code(step, column, k % kStepDepth) - weight.zero) * codes[k];
    }
    total = std::fma(static_cast<float>(sum), weight.scale * groups[group].scale, total);
    scales += int4_group_format::scale_bytes(matrix.layout);
  }
  return total * matrix.scale;
}

[[gnu::noinline]] void product(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const std::byte* row = args.packed_rows;
  for (std::int64_t r = 0; r < args.num_rows; ++r, row += group_row_bytes(matrix.depth)) {
    for (std::int64_t p = 0; p < args.num_panels; ++p) {
      float* const out = args.out + r * args.out_stride + p * kPanelColumns;
      const std::byte* panel = matrix.panel(args.first_panel + p);
      for (std::int64_t c = 0; c < kPanelColumns; ++c) out[c] = multiply(row, matrix, panel, c);
    }
  }
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel scalar_int4_group_int8_kernel;
constinit const GemmKernel scalar_int4_group_int8_kernel{
    .isa = Isa::scalar,
    .format = Format::int4_group,
    .int4_activations = Int4Activations::int8,
    .name = "scalar/int4_group_int8",
    .packed_row_bytes = group_row_bytes,
    .pack_rows = pack_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
