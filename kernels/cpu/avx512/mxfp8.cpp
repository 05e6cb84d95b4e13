#include "kernels/cpu/avx512/decoders/mxfp8.h"
#include "kernels/cpu/avx512/fma_kernel.h"

namespace moesaic {

extern const GemmKernel avx512_mxfp8_kernel;
constinit const GemmKernel avx512_mxfp8_kernel =
    avx512_decoded_kernel<Mxfp8Decoder>(Format::mxfp8, "avx512/mxfp8");

}  // namespace moesaic
