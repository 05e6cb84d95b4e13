#include "kernels/cpu/scalar/integers.h"

namespace moesaic {

extern const GemmKernel scalar_int8_kernel;
constinit const GemmKernel scalar_int8_kernel = scalar_integer_kernel(Format::int8, "scalar/int8");

}  // namespace moesaic
