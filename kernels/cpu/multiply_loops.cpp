#include <cstdint>

#include "kernels/cpu/amx/tiles.h"
#include "kernels/cpu/avx2/integer_sums.h"
#include "kernels/cpu/intrinsics.h"
#include "kernels/cpu/target_region.h"
#include "kernels/roof.h"

// 12 independent chains hide the latency of two units (4 to 5 cycles each). Each starts from a
// value that the compiler cannot see, or it would compute equal chains once.

namespace moesaic {
namespace {

constexpr int kChains = 12;
constexpr float kFactor = 1.0F / 1024;   // sums stay far from overflow
constexpr int kFactorPair = 0x3a803a80;  // the same, two bf16
constexpr int kFourBytes = 0x03fe05fb;   // four int8
constexpr int kTwoWords = 0x0003fffb;    // two int16

// --- baseline x86-64: multiply, then add, 4 lanes -------------------------------------------

float multiply_then_add(std::int64_t rounds) noexcept {
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

// --- AVX2 with FMA --------------------------------------------------------------------------

MOESAIC_BEGIN_TARGET("avx2,fma")

float fma_ymm(std::int64_t rounds) noexcept {
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

template <auto Add>
float madd_ymm(std::int64_t rounds, int factors) noexcept {
  __m256i sums[kChains] = {};
  __m256i a = _mm256_set1_epi32(factors);
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (int chain = 0; chain < kChains; ++chain) {
      asm("" : "+x"(a));  // each product is computed anew
      Add(sums[chain], a, a);
    }
  }
  __m256i total = _mm256_setzero_si256();
  MOESAIC_UNROLL
  for (int chain = 0; chain < kChains; ++chain) total = _mm256_xor_si256(total, sums[chain]);
  return static_cast<float>(_mm256_extract_epi32(total, 0));
}
float madd_words_ymm(std::int64_t rounds) noexcept {
  return madd_ymm<add_word_products>(rounds, kTwoWords);
}
float madd_bytes_ymm(std::int64_t rounds) noexcept {
  return madd_ymm<add_byte_products>(rounds, kFourBytes);
}

MOESAIC_END_TARGET

// --- AVX-512 --------------------------------------------------------------------------------

MOESAIC_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq")

float fma_zmm(std::int64_t rounds) noexcept {
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

MOESAIC_END_TARGET

MOESAIC_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")

float dot_bytes_zmm(std::int64_t rounds) noexcept {
  __m512i sums[kChains] = {};
  for (__m512i& sum : sums) asm("" : "+v"(sum));
  const __m512i a = _mm512_set1_epi32(kFourBytes);
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, a);
  }
  __m512i total = _mm512_setzero_si512();
  for (const __m512i sum : sums) total = _mm512_xor_si512(total, sum);
  return static_cast<float>(_mm512_cvtsi512_si32(total));
}

MOESAIC_END_TARGET

MOESAIC_BEGIN_TARGET("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")

float dot_bf16_zmm(std::int64_t rounds) noexcept {
  __m512 sums[kChains] = {};
  for (__m512& sum : sums) asm("" : "+v"(sum));
  const auto a = (__m512bh)_mm512_set1_epi32(kFactorPair);
  for (std::int64_t i = 0; i < rounds; ++i) {
    MOESAIC_UNROLL
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  __m512 total = _mm512_setzero_ps();
  for (const __m512 sum : sums) total = _mm512_add_ps(total, sum);
  return _mm512_cvtss_f32(total);
}

MOESAIC_END_TARGET

// --- AMX ------------------------------------------------------------------------------------

/// Products of tiles of numbers that differ in sign and size (zeros are multiplied faster).
template <typename Product>
float multiply_tiles(std::int64_t rounds, std::uint32_t mask) noexcept {
  alignas(64) std::uint32_t lines[16][16];
  std::uint32_t random = 1;
  for (auto& line : lines) {
    for (std::uint32_t& words : line) {
      random = random * 1664525 + 1013904223;
      words = random & mask;
    }
  }
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    config.rows[tile] = 16;
    config.row_bytes[tile] = 64;
  }
  load_config(config);
  zero_tile<0>();
  zero_tile<1>();
  zero_tile<2>();
  zero_tile<3>();
  load_tile<4>(lines, 64);
  load_tile<5>(lines, 64);
  load_tile<6>(lines, 64);
  load_tile<7>(lines, 64);
  for (std::int64_t i = 0; i < rounds; ++i) {
    Product::template add<0, 4, 6>();
    Product::template add<1, 4, 7>();
    Product::template add<2, 5, 6>();
    Product::template add<3, 5, 7>();
  }
  store_tile<0>(lines, 64);
  release_tiles();
  return static_cast<float>(lines[0][0]);
}

float dot_bf16_tiles(std::int64_t rounds) noexcept {
  return multiply_tiles<Bf16Product>(rounds, 0xbfffbfff);  // below 2
}
float dot_byte_tiles(std::int64_t rounds) noexcept {
  return multiply_tiles<ByteProduct>(rounds, 0xffffffff);
}

constexpr std::int64_t kTileProducts = 4 * 16 * 16;  // of one round, for each k

constexpr MultiplyLoop kMultiplyThenAdd{"MULPS and ADDPS", kChains * 4 * 2, multiply_then_add};
constexpr MultiplyLoop kFmaYmm{"VFMADD ymm", kChains * 8 * 2, fma_ymm};
constexpr MultiplyLoop kMaddWordsYmm{"VPMADDWD and VPADDD ymm", kChains * 16 * 2, madd_words_ymm};
constexpr MultiplyLoop kMaddBytesYmm{"VPMADDUBSW and VPADDW ymm", kChains * 32 * 2, madd_bytes_ymm};
constexpr MultiplyLoop kFmaZmm{"VFMADD zmm", kChains * 16 * 2, fma_zmm};
constexpr MultiplyLoop kDotBytesZmm{"VPDPBUSD zmm", kChains * 64 * 2, dot_bytes_zmm};
constexpr MultiplyLoop kDotBf16Zmm{"VDPBF16PS zmm", kChains * 32 * 2, dot_bf16_zmm};
constexpr MultiplyLoop kDotBf16Tiles{"TDPBF16PS", kTileProducts * 32 * 2, dot_bf16_tiles};
constexpr MultiplyLoop kDotByteTiles{"TDPBUSD", kTileProducts * 64 * 2, dot_byte_tiles};

}  // namespace

const MultiplyLoop& find_multiply_loop(Isa isa, Format format) noexcept {
  const bool integer = is_integer(format);
  switch (isa) {
    case Isa::scalar:
      return kMultiplyThenAdd;
    case Isa::avx2:
      if (format == Format::int4) return kMaddBytesYmm;
      return integer ? kMaddWordsYmm : kFmaYmm;
    case Isa::avx512:
      return integer ? kDotBytesZmm : kFmaZmm;
    case Isa::avx512_bf16:
      return integer ? kDotBytesZmm : kDotBf16Zmm;
    case Isa::amx:
      return integer ? kDotByteTiles : kDotBf16Tiles;
  }
  return kMultiplyThenAdd;
}

const MultiplyLoop& find_multiply_loop(const GemmKernel& kernel) noexcept {
  const bool of_int8 = kernel.int4_activations == Int4Activations::int8;
  return find_multiply_loop(kernel.isa, of_int8 ? Format::int4 : kernel.format);
}

}  // namespace moesaic
