#include "kernels/cpu/scalar/integers.h"

namespace moesaic {

extern const GemmKernel scalar_int4_kernel;
constinit const GemmKernel scalar_int4_kernel = scalar_integer_kernel(Format::int4, "scalar/int4");

}  // namespace moesaic
