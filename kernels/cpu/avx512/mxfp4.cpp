#include "kernels/cpu/avx512/decoders/mxfp4.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_mxfp4_kernel;
constinit const GemmKernel avx512_mxfp4_kernel =
    avx512_decoded_kernel<Mxfp4Decoder>(Format::mxfp4, "avx512/mxfp4");

}  // namespace moesaic
