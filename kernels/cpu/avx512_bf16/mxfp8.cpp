#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/mxfp8.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_mxfp8_kernel;
constinit const GemmKernel avx512_bf16_mxfp8_kernel =
    avx512_bf16_decoded_kernel<Mxfp8Decoder>(Format::mxfp8, "avx512_bf16/mxfp8");

}  // namespace moesaic
