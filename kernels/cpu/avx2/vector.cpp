#include "kernels/vector_kernels.h"

#include <cmath>
#include <cstdint>

#include "kernels/cpu/avx2/lanes.h"
#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/target_region.h"
#include "kernels/format.h"

BEGIN_TARGET(MOESAIC_AVX2)
namespace moesaic {
namespace {
#include "kernels/cpu/vector_kernels.inc"
}  // namespace
}  // namespace moesaic
END_TARGET

namespace moesaic {

extern const VectorKernels avx2_vector_kernels;
constinit const VectorKernels avx2_vector_kernels = make_vector_kernels(Isa::avx2, "avx2");

}  // namespace moesaic
