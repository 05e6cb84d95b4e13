#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/fp8_block.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_fp8_block_kernel;
constinit const GemmKernel amx_fp8_block_kernel =
    amx_decoded_kernel<Fp8BlockDecoder>(Format::fp8_block, "amx/fp8_block");

}  // namespace moesaic
