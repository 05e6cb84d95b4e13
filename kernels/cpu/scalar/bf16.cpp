#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_bf16_kernel;
constinit const GemmKernel scalar_bf16_kernel =
    scalar_decoded_kernel<copy_steps>(Format::bf16, "scalar/bf16");

}  // namespace moesaic
