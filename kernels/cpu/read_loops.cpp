#include "kernels/cpu/read_loops.h"

#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"

// Every load goes to a chain of its own, so that none waits for another.

namespace moesaic {
namespace {

constexpr int kChains = 8;

void prefetch_lines(const std::byte* first, int lines, const Prefetch& prefetch) noexcept {
  if (prefetch.bytes_ahead == 0) return;
  const char* line = reinterpret_cast<const char*>(first) + prefetch.bytes_ahead;
  for (int i = 0; i < lines; ++i, line += 64) {
    if (prefetch.to_l1) {
      _mm_prefetch(line, _MM_HINT_T0);
    } else {
      _mm_prefetch(line, _MM_HINT_T1);
    }
  }
}

std::uint64_t read_scalar(const std::byte* data, std::int64_t bytes,
                          const Prefetch& prefetch) noexcept {
  __m128i sum = _mm_setzero_si128();
  for (std::int64_t i = 0; i < bytes; i += 64) {
    prefetch_lines(data + i, 1, prefetch);
    const auto* line = reinterpret_cast<const __m128i*>(data + i);
    const __m128i low = _mm_xor_si128(_mm_loadu_si128(line), _mm_loadu_si128(line + 1));
    const __m128i high = _mm_xor_si128(_mm_loadu_si128(line + 2), _mm_loadu_si128(line + 3));
    sum = _mm_xor_si128(sum, _mm_xor_si128(low, high));
  }
  return static_cast<std::uint64_t>(_mm_cvtsi128_si64(sum));
}

MOESAIC_BEGIN_TARGET("avx2,fma")

std::uint64_t read_avx2(const std::byte* data, std::int64_t bytes,
                        const Prefetch& prefetch) noexcept {
  __m256i sums[kChains] = {};
  for (std::int64_t i = 0; i < bytes; i += kChains * 32) {
    prefetch_lines(data + i, kChains / 2, prefetch);
    MOESAIC_UNROLL
    for (int c = 0; c < kChains; ++c) {
      const auto* at = reinterpret_cast<const __m256i*>(data + i) + c;
      sums[c] = _mm256_xor_si256(sums[c], _mm256_loadu_si256(at));
    }
  }
  __m256i total = _mm256_setzero_si256();
  for (const __m256i sum : sums) total = _mm256_xor_si256(total, sum);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(total, 0));
}

MOESAIC_END_TARGET

MOESAIC_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq")

std::uint64_t read_avx512(const std::byte* data, std::int64_t bytes,
                          const Prefetch& prefetch) noexcept {
  __m512i sums[kChains] = {};
  for (std::int64_t i = 0; i < bytes; i += kChains * 64) {
    prefetch_lines(data + i, kChains, prefetch);
    MOESAIC_UNROLL
    for (int c = 0; c < kChains; ++c) {
      sums[c] = _mm512_xor_si512(sums[c], _mm512_loadu_si512(data + i + std::int64_t{64} * c));
    }
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i sum : sums) total = _mm512_xor_si512(total, sum);
  return static_cast<std::uint64_t>(_mm512_reduce_or_epi64(total));
}

MOESAIC_END_TARGET

}  // namespace

ReadLoop find_read_loop(Isa isa) noexcept {
  if (isa >= Isa::avx512) return read_avx512;
  return isa == Isa::avx2 ? read_avx2 : read_scalar;
}

}  // namespace moesaic
