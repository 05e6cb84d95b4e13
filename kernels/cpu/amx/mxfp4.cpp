#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/mxfp4.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_mxfp4_kernel;
constinit const GemmKernel amx_mxfp4_kernel =
    amx_decoded_kernel<Mxfp4Decoder>(Format::mxfp4, "amx/mxfp4");

}  // namespace moesaic
