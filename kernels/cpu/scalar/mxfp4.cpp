#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_mxfp4_kernel;
constinit const GemmKernel scalar_mxfp4_kernel =
    scalar_decoded_kernel(Format::mxfp4, "scalar/mxfp4");

}  // namespace moesaic
