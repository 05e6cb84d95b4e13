#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/nvfp4.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_nvfp4_kernel;
constinit const GemmKernel avx512_bf16_nvfp4_kernel =
    avx512_bf16_decoded_kernel<Nvfp4Decoder>(Format::nvfp4, "avx512_bf16/nvfp4");

}  // namespace moesaic
