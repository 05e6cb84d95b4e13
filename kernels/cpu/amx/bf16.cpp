#define MOESAIC_RICH_AVX512
#include "kernels/cpu/amx/pack_tiles.h"
#include "kernels/cpu/amx/raw_tiles.h"
#include "kernels/cpu/amx/turned_tiles.h"
#include "kernels/cpu/copy_steps.h"

// TDPBF16PS: the tile order itself.

namespace moesaic {
namespace {

void tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  run_raw_tiles<Bf16Product, NoFinish>(args, bf16_tile_row_bytes(args.matrix->depth));
}

}  // namespace

extern const GemmKernel amx_bf16_kernel;
constinit const GemmKernel amx_bf16_kernel{
    .isa = Isa::amx,
    .format = Format::bf16,
    .name = "amx/bf16",
    .packed_row_bytes = bf16_tile_row_bytes,
    .pack_rows = pack_bf16_tiles,
    .scratch_bytes = kPairRingBytes,
    .tile = tile,
    .takes_terms = true,
    .streams_results = true,
    .turned_tile = turned_tile<RawLines>,
    .decode = copy_steps,
};

}  // namespace moesaic
