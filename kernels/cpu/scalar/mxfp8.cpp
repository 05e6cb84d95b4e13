#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_mxfp8_kernel;
constinit const GemmKernel scalar_mxfp8_kernel =
    scalar_decoded_kernel(Format::mxfp8, "scalar/mxfp8");

}  // namespace moesaic
