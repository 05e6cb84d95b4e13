#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/int4.h"

#include "kernels/cpu/amx/byte_kernel.h"
#include "kernels/cpu/amx/decoded_tiles.h"
#include "kernels/cpu/amx/turned_tiles.h"
#include "kernels/cpu/avx512/byte_rows.h"

namespace moesaic {
namespace {

/// One row asks for its codes earlier than ByteRows, whose distance is that of CPUs without tiles.
struct EarlyByteRows : ByteRows {
  static constexpr std::int64_t ahead_bytes(std::size_t /*num_rows*/) { return 4096; }
};

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  if (run_fused<Int4Decoder, EarlyByteRows, 1>(args)) {
    ByteFinish finish(args);
    finish(0, 1, 0, args.num_panels);
  } else {
    run_decoded_tiles<ByteProduct, ByteFinish, Int4Decoder>(
        args, byte_tile_row_bytes(args.matrix->depth));
  }
}

void tile(const TileArgs& args) noexcept {
  if (args.num_rows == 0 || args.num_panels == 0) return;
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel amx_int4_kernel;
constinit const GemmKernel amx_int4_kernel{
    .isa = Isa::amx,
    .format = Format::int4,
    .name = "amx/int4",
    .packed_row_bytes = byte_tile_row_bytes,
    .pack_rows = pack_byte_tiles,
    .scratch_bytes = kPairRingBytes,
    .tile = tile,
    .streams_results = true,
    .turned_tile = turned_tile<Int4Lines>,
    .decode = decode_steps<Int4Decoder>,
};

}  // namespace moesaic
