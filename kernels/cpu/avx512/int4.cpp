#define MOESAIC_AVX512_VNNI
#include "kernels/cpu/avx512/decoders/int4.h"

#include "kernels/cpu/avx512/byte_kernel.h"
#include "kernels/cpu/avx512/byte_rows.h"
#include "kernels/cpu/avx512/decoded.h"

namespace moesaic {
namespace {

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  run_fused_blocks<Int4Decoder, ByteRows, 12>(args);
  finish_bytes(args);
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel avx512_int4_kernel;
constinit const GemmKernel avx512_int4_kernel{
    .isa = Isa::avx512,
    .format = Format::int4,
    .name = "avx512/int4",
    .packed_row_bytes = byte_row_bytes,
    .pack_rows = pack_byte_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = decode_steps<Int4Decoder>,
};

}  // namespace moesaic
