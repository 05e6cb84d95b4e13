#include <array>
#include <bit>
#include <cstdint>

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/roof.h"

// 12 independent chains hide the latency of two multiply-add units (4 to 5 cycles each). Each
// starts from a value that the compiler cannot see, or it would compute equal chains once.

namespace moesaic {
namespace {

constexpr int kChains = 12;
constexpr int kReadChains = 8;
constexpr float kFactor = 1.0F / 1024;  // sums stay far from overflow

void prefetch_line(const std::byte* line) noexcept {
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

// --- baseline x86-64: multiply, then add, 4 lanes -------------------------------------------

float multiply_add_scalar(std::int64_t rounds) noexcept {
  __m128 sums[kChains] = {};
  for (__m128& sum : sums) asm("" : "+x"(sum));
  __m128 a = _mm_set1_ps(kFactor);
  __m128 b = _mm_set1_ps(kFactor);
  for (std::int64_t i = 0; i < rounds; ++i) {
    asm("" : "+x"(a), "+x"(b));  // the product is not to be taken out of the loop
    MOESAIC_UNROLL
    for (__m128& sum : sums) sum = _mm_add_ps(sum, _mm_mul_ps(a, b));
  }
  float total = 0;
  for (const __m128 sum : sums) total += _mm_cvtss_f32(sum);
  return total;
}

std::uint64_t read_scalar(const std::byte* data, std::int64_t bytes, std::int64_t ahead) noexcept {
  __m128i sum = _mm_setzero_si128();
  for (std::int64_t i = 0; i < bytes; i += 64) {
    if (ahead != 0) prefetch_line(data + i + ahead);
    const auto* line = reinterpret_cast<const __m128i*>(data + i);
    const __m128i low = _mm_xor_si128(_mm_loadu_si128(line), _mm_loadu_si128(line + 1));
    const __m128i high = _mm_xor_si128(_mm_loadu_si128(line + 2), _mm_loadu_si128(line + 3));
    sum = _mm_xor_si128(sum, _mm_xor_si128(low, high));
  }
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum));
}

// --- AVX2 with FMA --------------------------------------------------------------------------

BEGIN_TARGET("avx2,fma")

float multiply_add_avx2(std::int64_t rounds) noexcept {
  __m256 sums[kChains] = {};
  for (__m256& sum : sums) asm("" : "+x"(sum));
  const __m256 a = _mm256_set1_ps(kFactor);
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, a, sum);
  }
  __m256 total = _mm256_setzero_ps();
  for (const __m256 sum : sums) total = _mm256_add_ps(total, sum);
  return _mm256_cvtss_f32(total);
}

std::uint64_t read_avx2(const std::byte* data, std::int64_t bytes, std::int64_t ahead) noexcept {
  __m256i sums[kReadChains] = {};
  for (std::int64_t i = 0; i < bytes; i += kReadChains * 32) {
    if (ahead != 0) {
      for (int line = 0; line < kReadChains / 2; ++line) {
        prefetch_line(data + i + ahead + std::int64_t{64} * line);
      }
    }
    MOESAIC_UNROLL
    for (int c = 0; c < kReadChains; ++c) {
      const auto* at = reinterpret_cast<const __m256i*>(data + i) + c;
      sums[c] = _mm256_xor_si256(sums[c], _mm256_loadu_si256(at));
    }
  }
  __m256i total = _mm256_setzero_si256();
  for (const __m256i sum : sums) total = _mm256_xor_si256(total, sum);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(total, 0));
}

END_TARGET

// --- AVX-512 --------------------------------------------------------------------------------

BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq")

float multiply_add_avx512(std::int64_t rounds) noexcept {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) asm("" : "+v"(sum));
  const __m512 a = _mm512_set1_ps(kFactor);
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512 sum : sums) total = _mm512_add_ps(total, sum);
  return _mm512_cvtss_f32(total);
}

std::uint64_t read_avx512(const std::byte* data, std::int64_t bytes, std::int64_t ahead) noexcept {
  __m512i sums[kReadChains] = {};
  for (std::int64_t i = 0; i < bytes; i += kReadChains * 64) {
    if (ahead != 0) {
      for (int line = 0; line < kReadChains; ++line) {
        prefetch_line(data + i + ahead + std::int64_t{64} * line);
      }
    }
    MOESAIC_UNROLL
    for (int c = 0; c < kReadChains; ++c) {
      sums[c] = _mm512_xor_si512(sums[c], _mm512_loadu_si512(data + i + std::int64_t{64} * c));
    }
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i sum : sums) total = _mm512_xor_si512(total, sum);
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(total));
}

END_TARGET

// --- AVX-512 with BF16 dot products: two multiply-adds a lane -------------------------------

BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

float multiply_add_avx512_bf16(std::int64_t rounds) noexcept {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) asm("" : "+v"(sum));
  const auto a = (__m512bh)_mm512_set1_epi32(0x3a803a80);  // 1/1024 twice
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512 sum : sums) total = _mm512_add_ps(total, sum);
  return _mm512_cvtss_f32(total);
}

END_TARGET

constexpr std::array kLoops = {
    RoofLoops{Isa::scalar, kChains * 4 * 2, multiply_add_scalar, read_scalar},
    RoofLoops{Isa::avx2, kChains * 8 * 2, multiply_add_avx2, read_avx2},
    RoofLoops{Isa::avx512, kChains * 16 * 2, multiply_add_avx512, read_avx512},
    RoofLoops{Isa::avx512_bf16, kChains * 32 * 2, multiply_add_avx512_bf16, read_avx512},
};

}  // namespace

const RoofLoops& find_roof_loops(Isa isa) noexcept {
  return kLoops[static_cast<std::size_t>(isa)];
}

}  // namespace moesaic
