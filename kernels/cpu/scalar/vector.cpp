#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/vector_functions.h"

namespace moesaic {

extern const VectorKernels scalar_vector_kernels;
constinit const VectorKernels scalar_vector_kernels = make_vector_kernels(Isa::scalar, "scalar");

}  // namespace moesaic
