#include "kernels/cpu/avx512/decoders/fp8_block.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_fp8_block_kernel;
constinit const GemmKernel avx512_fp8_block_kernel =
    avx512_decoded_kernel<Fp8BlockDecoder>(Format::fp8_block, "avx512/fp8_block");

}  // namespace moesaic
