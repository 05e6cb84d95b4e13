#define MOESAIC_RICH_AVX512
#include "kernels/cpu/amx/byte_kernel.h"
#include "kernels/cpu/amx/turned_tiles.h"
#include "kernels/cpu/copy_steps.h"

// TDPBUSD on activations + 128, whose surplus is subtracted at the end. Sums are exact.

namespace moesaic {
namespace {

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  run_raw_tiles<ByteProduct, ByteFinish>(args, byte_tile_row_bytes(args.matrix->depth));
}

void tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel amx_int8_kernel;
constinit const GemmKernel amx_int8_kernel{
    .isa = Isa::amx,
    .format = Format::int8,
    .name = "amx/int8",
    .packed_row_bytes = byte_tile_row_bytes,
    .pack_rows = pack_byte_tiles,
    .scratch_bytes = 0,
    .tile = tile,
    .streams_results = true,
    .turned_tile = turned_tile<Int8Lines>,
    .decode = copy_steps,
};

}  // namespace moesaic
