#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/nvfp4.h"

#include "kernels/cpu/amx/decoded_kernel.h"

namespace moesaic {

extern const GemmKernel amx_nvfp4_kernel;
constinit const GemmKernel amx_nvfp4_kernel =
    amx_decoded_kernel<Nvfp4Decoder>(Format::nvfp4, "amx/nvfp4");

}  // namespace moesaic
