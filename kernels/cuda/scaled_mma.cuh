#pragma once

#include <cstdint>

// The instruction of tensor cores that multiplies numbers in nvfp4 as they are (sm_120, sm_121).

namespace moesaic::cuda {

/// The scales of an operand, a byte for 16 k, the first the lowest, in the lanes that `lanes` says.
struct ScaleWord {
  std::uint32_t word;
  int lanes;
};

/// d[16 columns, 8 rows] += a[16, 64] b[64, 8] of one warp, e2m1 with a scale for 16 k. Lane 4 g +
/// t has of a the rows g (0, 2) and g + 8 (1, 3), k 8 t to 8 t + 7 (0, 1) and 8 t + 32 to 8 t + 39
/// (2, 3); of b column g, the same k. The scales of row g are those of lane 4 g + 2 lanes (lanes
/// is 0 or 1), of row g + 8 those of the next lane, of column g those of lane 4 g + lanes (0 to 3).
__device__ __forceinline__ void mma_nvfp4(float (&d)[4], const std::uint32_t (&a)[4],
                                          const ScaleWord& scales_a, const std::uint32_t (&b)[2],
                                          const ScaleWord& scales_b) {
  asm volatile(
      "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
      ".f32.e2m1.e2m1.f32.ue4m3 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {0, %11}, %12, {0, "
      "%13};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales_a.word),
        "h"(static_cast<std::uint16_t>(scales_a.lanes)), "r"(scales_b.word),
        "h"(static_cast<std::uint16_t>(scales_b.lanes)));
}

}  // namespace moesaic::cuda
