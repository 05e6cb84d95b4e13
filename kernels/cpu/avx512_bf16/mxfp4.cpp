#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/mxfp4.h"
#include "kernels/cpu/avx512_bf16/dot_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_bf16_mxfp4_kernel;
constinit const GemmKernel avx512_bf16_mxfp4_kernel =
    avx512_bf16_decoded_kernel<Mxfp4Decoder>(Format::mxfp4, "avx512_bf16/mxfp4");

}  // namespace moesaic
