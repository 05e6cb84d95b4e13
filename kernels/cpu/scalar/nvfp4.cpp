#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_nvfp4_kernel;
constinit const GemmKernel scalar_nvfp4_kernel =
    scalar_decoded_kernel(Format::nvfp4, "scalar/nvfp4");

}  // namespace moesaic
