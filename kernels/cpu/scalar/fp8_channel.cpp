#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_fp8_channel_kernel;
constinit const GemmKernel scalar_fp8_channel_kernel =
    scalar_decoded_kernel(Format::fp8_channel, "scalar/fp8_channel");

}  // namespace moesaic
