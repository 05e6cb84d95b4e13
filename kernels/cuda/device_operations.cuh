#pragma once

#include <cstdint>

// Instructions that CUDA C++ has no words for, or none that say how subnormal numbers count.

namespace moesaic::cuda {

// The tile order (docs/numerics.md): subnormal numbers count as zero and are flushed.
__device__ __forceinline__ float tile_fma(float a, float b, float c) {
  float d;
  asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c));
  return d;
}
__device__ __forceinline__ float tile_add(float a, float b) {
  float d;
  asm("add.rn.ftz.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}
__device__ __forceinline__ float tile_multiply(float a, float b) {
  float d;
  asm("mul.rn.ftz.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b));
  return d;
}

/// Two products of bf16, subnormal numbers kept: a * b + (-0), the form that sm_80 has.
__device__ __forceinline__ std::uint32_t multiply_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(0x80008000U));
  return d;
}

/// Two sums of bf16: a * 1 + b.
__device__ __forceinline__ std::uint32_t add_pairs(std::uint32_t a, std::uint32_t b) {
  std::uint32_t d;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(0x3f803f80U), "r"(b));
  return d;
}

/// Nearest bf16 of two numbers, even at ties.
__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}

/// d[16 columns, 8 rows] += a[16, 16] b[16, 8] of one warp. Lane 4 g + t has of a the rows g (0, 2)
/// and g + 8 (1, 3), k 2 t, 2 t + 1 (0, 1) and 2 t + 8, 2 t + 9 (2, 3); of b column g, the same k;
/// of d rows g (0, 1) and g + 8 (2, 3), columns 2 t and 2 t + 1.
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// 16 bytes, which are zeros if `is_there` is not; `global` is then not read.
__device__ __forceinline__ void copy_16_async(void* shared, const void* global, bool is_there) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(global),
               "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ __forceinline__ void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
/// Of all groups but the last `Pending`.
template <int Pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
/// Of all.
__device__ __forceinline__ void wait_for_copies() {
  commit_copies();
  wait_for_copies<0>();
}

/// Two matrices of 8 rows of 16 bytes in shared memory, or four: lane 4 g + t gets word t of row g
/// of each; lane i says where row i % 8 of matrix i / 8 is.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[2], const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices(std::uint32_t (&first)[2], std::uint32_t (&second)[2],
                                              const void* row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(first[0]), "=r"(first[1]), "=r"(second[0]), "=r"(second[1])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ float low_of_pair(std::uint32_t pair) {
  return __uint_as_float(pair << 16);
}
__device__ __forceinline__ float high_of_pair(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}
/// Nearest, even at ties; a NaN stays one.
__device__ __forceinline__ std::uint16_t to_bf16(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if (value != value) return static_cast<std::uint16_t>(bits >> 16 | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
}

}  // namespace moesaic::cuda
