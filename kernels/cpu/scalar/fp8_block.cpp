#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_fp8_block_kernel;
constinit const GemmKernel scalar_fp8_block_kernel =
    scalar_decoded_kernel(Format::fp8_block, "scalar/fp8_block");

}  // namespace moesaic
