#define MOESAIC_AVX512_VNNI
#include <array>
#include <utility>

#include "kernels/cpu/avx512/decoded.h"
#include "kernels/cpu/avx512/group_bytes.h"
#include "kernels/cpu/tile_environment.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

[[gnu::noinline]] void pack_all_rows(const RowSource& source, std::byte* out) {
  const std::int64_t codes = byte_group_count(source.depth) * kByteGroupDepth;
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += group_row_bytes(source.depth)) {
    pack_group_row(source, row, out, 64, reinterpret_cast<ByteGroup*>(out + codes));
  }
}

MOESAIC_END_TARGET

void pack_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and quotients round as MXCSR says
  pack_all_rows(source, out);
}

template <std::size_t... Indices>
constexpr auto multiply_functions(std::index_sequence<Indices...>) noexcept {
  return std::array{multiply_byte_groups<Indices + 1>...};
}

/// Whose sums and totals fit the registers.
constexpr std::int64_t kMaxRows = 8;
constexpr auto kMultiply = multiply_functions(std::make_index_sequence<kMaxRows>());

/// All rows meet a panel before the next one is read.
[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    for_each_row_block(args.num_rows, kMaxRows, [&](std::int64_t row, std::int64_t rows) {
      kMultiply[static_cast<std::size_t>(rows - 1)](args, panel, row);
    });
  }
  scale_columns(args);
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel avx512_int4_group_int8_kernel;
constinit const GemmKernel avx512_int4_group_int8_kernel{
    .isa = Isa::avx512,
    .format = Format::int4_group,
    .int4_activations = Int4Activations::int8,
    .name = "avx512/int4_group_int8",
    .packed_row_bytes = group_row_bytes,
    .pack_rows = pack_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
