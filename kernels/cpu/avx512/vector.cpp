#include "kernels/vector_kernels.h"

#include <cmath>
#include <cstdint>

#include "kernels/cpu/avx512/lanes.h"
#include "kernels/cpu/natural_log.h"
#include "kernels/cpu/target_region.h"
#include "kernels/format.h"

BEGIN_TARGET(MOESAIC_AVX512)
namespace moesaic {
namespace {
#include "kernels/cpu/vector_kernels.inc"
}  // namespace
}  // namespace moesaic
END_TARGET

namespace moesaic {

extern const VectorKernels avx512_vector_kernels;
constinit const VectorKernels avx512_vector_kernels = make_vector_kernels(Isa::avx512, "avx512");

}  // namespace moesaic
