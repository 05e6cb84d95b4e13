#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/mxfp8.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_mxfp8_kernel;
constinit const GemmKernel amx_mxfp8_kernel =
    amx_decoded_kernel<Mxfp8Decoder>(Format::mxfp8, "amx/mxfp8");

}  // namespace moesaic
