#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const GemmKernel scalar_int4_group_kernel;
constinit const GemmKernel scalar_int4_group_kernel =
    scalar_decoded_kernel(Format::int4_group, "scalar/int4_group");

}  // namespace moesaic
