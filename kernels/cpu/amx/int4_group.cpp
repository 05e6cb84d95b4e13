#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/int4_group.h"

#include "kernels/cpu/amx/column_tiles.h"
#include "kernels/cpu/amx/decoded_kernel.h"
#include "kernels/cpu/avx512/decoders/int4_columns.h"

namespace moesaic {
namespace {

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  if (multiply_by_columns<Int4Columns>(args)) return;
  tile_product<Int4GroupDecoder>(args);
}

void tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  product(args);
}

constexpr GemmKernel kernel() {
  GemmKernel of_format = amx_decoded_kernel<Int4GroupDecoder>(Format::int4_group, "amx/int4_group");
  of_format.tile = tile;
  return of_format;
}

}  // namespace

extern const GemmKernel amx_int4_group_kernel;
constinit const GemmKernel amx_int4_group_kernel = kernel();

}  // namespace moesaic
