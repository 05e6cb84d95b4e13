#include "kernels/cpu/avx2/lanes.h"

#include "kernels/cpu/vector_functions.h"

namespace moesaic {

extern const VectorKernels avx2_vector_kernels;
constinit const VectorKernels avx2_vector_kernels = make_vector_kernels(Isa::avx2, "avx2");

}  // namespace moesaic
