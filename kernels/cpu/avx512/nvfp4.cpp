#include "kernels/cpu/avx512/decoders/nvfp4.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_nvfp4_kernel;
constinit const GemmKernel avx512_nvfp4_kernel =
    avx512_decoded_kernel<Nvfp4Decoder>(Format::nvfp4, "avx512/nvfp4");

}  // namespace moesaic
