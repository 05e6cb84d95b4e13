#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/fp8_block.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_fp8_block_kernel;
constinit const GemmKernel avx512_bf16_fp8_block_kernel =
    avx512_bf16_decoded_kernel<Fp8BlockDecoder>(Format::fp8_block, "avx512_bf16/fp8_block");

}  // namespace moesaic
