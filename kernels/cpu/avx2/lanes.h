#pragma once

#include <cstdint>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/cpu_features.h"

// Sixteen f32 lanes in two AVX registers; kernels/cpu/scalar/lanes.h says what each function means.

#define MOESAIC_AVX2 "avx2,fma"

#define MOESAIC_BEGIN_LANES MOESAIC_BEGIN_TARGET(MOESAIC_AVX2)
#define MOESAIC_END_LANES MOESAIC_END_TARGET

MOESAIC_BEGIN_LANES
namespace moesaic {
namespace {

inline constexpr Isa kLanesIsa = Isa::avx2;
inline constexpr std::int64_t kLanes = 16;
inline constexpr int kTileRows = 6;
inline constexpr int kTileAccumulators = 4;

struct Lanes {
  __m256 low;
  __m256 high;
};
struct LaneMask {
  __m256i low;  // all ones or all zeros in a lane
  __m256i high;
};

inline __m256i clamped_bound(std::int64_t bound) {
  return _mm256_set1_epi32(static_cast<int>(bound < 0 ? 0 : bound > kLanes ? kLanes : bound));
}
inline LaneMask lanes_between(std::int64_t first, std::int64_t end) {
  const __m256i from = clamped_bound(first);
  const __m256i to = clamped_bound(end);
  const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i next = _mm256_add_epi32(index, _mm256_set1_epi32(8));
  return {_mm256_andnot_si256(_mm256_cmpgt_epi32(from, index), _mm256_cmpgt_epi32(to, index)),
          _mm256_andnot_si256(_mm256_cmpgt_epi32(from, next), _mm256_cmpgt_epi32(to, next))};
}
/// a < b; not where one of them is NaN.
inline LaneMask less(Lanes a, Lanes b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ))};
}
inline Lanes select(LaneMask mask, Lanes a, Lanes b) {
  return {_mm256_blendv_ps(b.low, a.low, _mm256_castsi256_ps(mask.low)),
          _mm256_blendv_ps(b.high, a.high, _mm256_castsi256_ps(mask.high))};
}

struct AllLanes {};
struct FirstLanes {
  std::int64_t count;  // 1..15

  [[nodiscard]] LaneMask mask() const { return lanes_between(0, count); }
};

inline Lanes broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

inline __m256 widen(const BFloat16* p) {
  const __m128i bf16 = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16));
}
inline Lanes load(const float* p, AllLanes = {}) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline Lanes load(const float* p, FirstLanes part) {
  const LaneMask mask = part.mask();
  return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
}
inline Lanes load(const BFloat16* p, AllLanes = {}) {
  return {widen(p), widen(p + 8)};
}
inline Lanes load(const BFloat16* p, FirstLanes part) {
  BFloat16 padded[kLanes] = {};
  std::memcpy(padded, p, static_cast<std::size_t>(part.count) * sizeof(BFloat16));
  return load(padded);
}

inline __m256i narrow(__m256 a) {  // 32-bit lanes
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i high = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i nearest = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i quiet = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(nearest, quiet, nan);
}
inline void store(float* p, Lanes a, AllLanes = {}) {
  _mm256_storeu_ps(p, a.low);
  _mm256_storeu_ps(p + 8, a.high);
}
inline void store(float* p, Lanes a, FirstLanes part) {
  const LaneMask mask = part.mask();
  _mm256_maskstore_ps(p, mask.low, a.low);
  _mm256_maskstore_ps(p + 8, mask.high, a.high);
}
inline void store(BFloat16* p, Lanes a, AllLanes = {}) {
  const __m256i packed = _mm256_packus_epi32(narrow(a.low), narrow(a.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm256_permute4x64_epi64(packed, 0b11'01'10'00));  // undoes the interleaving
}
inline void store(BFloat16* p, Lanes a, FirstLanes part) {
  BFloat16 all[kLanes];
  store(all, a);
  std::memcpy(p, all, static_cast<std::size_t>(part.count) * sizeof(BFloat16));
}

inline Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
inline Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
inline Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
inline Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
inline Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
inline Lanes max(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
inline Lanes min(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}

inline __m256 power_of_two(__m256i exponent) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(exponent, _mm256_set1_epi32(127)), 23));
}
inline Lanes minus_nearest(Lanes a) {
  const Lanes round = broadcast(0x1.8p23F);
  return a - ((a + round) - round);
}
/// In two factors, since 2^n itself may leave the range of f32: the first product is exact.
inline __m256 scale_by_power(__m256 a, __m256 n) {
  const __m256i power = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(power, 1);
  const __m256i rest = _mm256_sub_epi32(power, half);
  return _mm256_mul_ps(_mm256_mul_ps(a, power_of_two(half)), power_of_two(rest));
}
inline Lanes scale_by_power(Lanes a, Lanes n) {
  return {scale_by_power(a.low, n.low), scale_by_power(a.high, n.high)};
}
inline __m256 add_to_exponent(__m256 a, __m256 n) {
  return _mm256_castsi256_ps(
      _mm256_add_epi32(_mm256_castps_si256(a), _mm256_slli_epi32(_mm256_castps_si256(n), 23)));
}
inline Lanes add_to_exponent(Lanes a, Lanes n) {
  return {add_to_exponent(a.low, n.low), add_to_exponent(a.high, n.high)};
}
inline __m256 round_to_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
  return _mm256_castsi256_ps(
      _mm256_and_si256(sum, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}
inline Lanes round_to_bf16(Lanes a) {
  return {round_to_bf16(a.low), round_to_bf16(a.high)};
}
inline __m256i pair_up(__m256 even, __m256 odd) {
  return _mm256_or_si256(_mm256_srli_epi32(_mm256_castps_si256(round_to_bf16(even)), 16),
                         _mm256_castps_si256(round_to_bf16(odd)));
}
inline void store_pairs(BFloat16* p, Lanes even, Lanes odd) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), pair_up(even.low, odd.low));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 16), pair_up(even.high, odd.high));
}
inline __m256 add_pairs(__m256 a, __m256 b) {
  const __m256d sums = _mm256_castps_pd(_mm256_hadd_ps(a, b));
  return _mm256_castpd_ps(_mm256_permute4x64_pd(sums, 0b11'01'10'00));
}
inline Lanes add_pairs(Lanes a, Lanes b) {
  return {add_pairs(a.low, a.high), add_pairs(b.low, b.high)};
}

inline float sum_lanes(Lanes a) {
  const __m256 eight = _mm256_add_ps(a.low, a.high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float max_lanes(Lanes a) {
  const __m256 eight = _mm256_max_ps(a.low, a.high);
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
