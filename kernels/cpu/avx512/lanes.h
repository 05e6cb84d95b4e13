#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/avx512/target.h"
#include "kernels/cpu_features.h"

// Sixteen f32 lanes in one AVX-512 register; kernels/cpu/scalar/lanes.h says what each function
// means.

#define MOESAIC_BEGIN_LANES MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)
#define MOESAIC_END_LANES MOESAIC_END_TARGET

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline constexpr Isa kLanesIsa = Isa::avx512;
inline constexpr std::int64_t kLanes = 16;
inline constexpr int kTileRows = 8;
inline constexpr int kTileAccumulators = 16;

struct Lanes {
  __m512 v;
};
struct LaneMask {
  __mmask16 v;
};

struct AllLanes {};
struct FirstLanes {
  std::int64_t count;  // 1..15

  [[nodiscard]] __mmask16 mask() const { return static_cast<__mmask16>((1U << count) - 1); }
};

inline Lanes broadcast(float x) {
  return {_mm512_set1_ps(x)};
}

inline Lanes widen(__m256i bf16) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bf16), 16))};
}
inline Lanes load(const float* p, AllLanes = {}) {
  return {_mm512_loadu_ps(p)};
}
inline Lanes load(const float* p, FirstLanes part) {
  return {_mm512_maskz_loadu_ps(part.mask(), p)};
}
inline Lanes load(const BFloat16* p, AllLanes = {}) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline Lanes load(const BFloat16* p, FirstLanes part) {
  return widen(_mm256_maskz_loadu_epi16(part.mask(), p));
}

inline __m256i narrow(Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i high = _mm512_srli_epi32(bits, 16);
  const __m512i odd = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i nearest = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_or_epi32(nearest, nan, high, _mm512_set1_epi32(0x40)));
}
inline void store(float* p, Lanes a, AllLanes = {}) {
  _mm512_storeu_ps(p, a.v);
}
inline void store(float* p, Lanes a, FirstLanes part) {
  _mm512_mask_storeu_ps(p, part.mask(), a.v);
}
inline void store(BFloat16* p, Lanes a, AllLanes = {}) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(a));
}
inline void store(BFloat16* p, Lanes a, FirstLanes part) {
  _mm256_mask_storeu_epi16(p, part.mask(), narrow(a));
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {_mm512_add_ps(a.v, b.v)};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {_mm512_div_ps(a.v, b.v)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {_mm512_max_ps(a.v, b.v)};
}
inline Lanes min(Lanes a, Lanes b) {
  return {_mm512_min_ps(a.v, b.v)};
}
inline Lanes minus_nearest(Lanes a) {
  return {_mm512_reduce_ps(a.v, _MM_FROUND_TO_NEAREST_INT)};
}
inline Lanes scale_by_power(Lanes a, Lanes n) {
  return {_mm512_scalef_ps(a.v, n.v)};
}
inline Lanes add_to_exponent(Lanes a, Lanes n) {
  return {_mm512_castsi512_ps(
      _mm512_add_epi32(_mm512_castps_si512(a.v), _mm512_slli_epi32(_mm512_castps_si512(n.v), 23)))};
}
inline Lanes round_to_bf16(Lanes a) {
  const __m512i bits = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return {
      _mm512_castsi512_ps(_mm512_and_si512(sum, _mm512_set1_epi32(static_cast<int>(0xffff0000U))))};
}
inline void store_pairs(BFloat16* p, Lanes even, Lanes odd) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(round_to_bf16(even).v), 16);
  _mm512_storeu_si512(p, _mm512_or_si512(low, _mm512_castps_si512(round_to_bf16(odd).v)));
}
inline Lanes add_pairs(Lanes a, Lanes b) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  return {
      _mm512_add_ps(_mm512_permutex2var_ps(a.v, even, b.v), _mm512_permutex2var_ps(a.v, odd, b.v))};
}

inline std::uint32_t lanes_below(std::int64_t bound) {
  return (1U << (bound < 0 ? 0 : bound > kLanes ? kLanes : bound)) - 1;
}
inline LaneMask lanes_between(std::int64_t first, std::int64_t end) {
  return {static_cast<__mmask16>(lanes_below(end) & ~lanes_below(first))};
}
/// a < b; not where one of them is NaN.
inline LaneMask less(Lanes a, Lanes b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
inline Lanes select(LaneMask mask, Lanes a, Lanes b) {
  return {_mm512_mask_blend_ps(mask.v, b.v, a.v)};
}

inline __m256 lower_half(__m512 a) {
  return _mm512_castps512_ps256(a);
}
inline __m256 upper_half(__m512 a) {
  return _mm512_extractf32x8_ps(a, 1);
}
inline float sum_lanes(Lanes a) {
  const __m256 eight = _mm256_add_ps(lower_half(a.v), upper_half(a.v));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lanes(Lanes a) {
  const __m256 eight = _mm256_max_ps(lower_half(a.v), upper_half(a.v));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

}  // namespace
}  // namespace moesaic
MOESAIC_END_LANES
