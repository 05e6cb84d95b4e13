#include "kernels/vector_kernels.h"

#include <cmath>
#include <cstdint>

#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/scalar/lanes.h"
#include "kernels/cpu/target_region.h"
#include "kernels/format.h"

namespace moesaic {
namespace {
#include "kernels/cpu/vector_kernels.inc"
}  // namespace

extern const VectorKernels scalar_vector_kernels;
constinit const VectorKernels scalar_vector_kernels = make_vector_kernels(Isa::scalar, "scalar");

}  // namespace moesaic
