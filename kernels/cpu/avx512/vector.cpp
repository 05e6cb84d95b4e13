#include "kernels/cpu/avx512/lanes.h"

#include "kernels/cpu/vector_functions.h"

namespace moesaic {

extern const VectorKernels avx512_vector_kernels;
constinit const VectorKernels avx512_vector_kernels = make_vector_kernels(Isa::avx512, "avx512");

}  // namespace moesaic
