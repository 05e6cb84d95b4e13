#include "kernels/formats/int4.h"

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/cpu/avx2/integer_sums.h"
#include "kernels/cpu/avx2/pack_words.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/prefetch.h"
#include "kernels/cpu/tile_environment.h"

// Codes + 8, which are 0 to 15, times int8 activations. VPMADDUBSW adds two products in 16 bits, in
// which eight of its results fit (8 * 2 * 15 * 127 = 30,480); VPMADDWD by ones adds the two of a
// column. 8 times the sum of the row is subtracted at the end: sums are exact.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Codes of a row as bytes, and their sum.
struct StoreBytes {
  std::byte* out;
  __m128i sums;

  void operator()(std::int64_t k, __m128i words) {
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + k), _mm_packs_epi16(words, words));
    sums = _mm_add_epi32(sums, _mm_madd_epi16(words, _mm_set1_epi16(1)));
  }
};

template <typename Element>
void pack_row(const std::byte* source, std::int64_t depth, std::byte* out) {
  StoreBytes store{.out = out, .sums = _mm_setzero_si128()};
  const float scale = quantize_row(reinterpret_cast<const Element*>(source), depth, store);
  const __m128i pairs = _mm_hadd_epi32(store.sums, store.sums);
  *reinterpret_cast<ByteGroup*>(out + round_up(depth, kIntStepDepth)) = {
      .scale = scale, .sum = _mm_cvtsi128_si32(_mm_hadd_epi32(pairs, pairs))};
}

[[gnu::noinline]] void pack_all_rows(const RowSource& source, std::byte* out) {
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += signed_row_bytes(source.depth)) {
    source.element == RowSource::Element::f32
        ? pack_row<float>(source.rows[row], source.depth, out)
        : pack_row<BFloat16>(source.rows[row], source.depth, out);
  }
}

/// Four lines of codes, of 8 k each, times `Rows` rows: left and right half of the columns.
template <std::size_t Rows>
[[gnu::always_inline]] inline void add_lines(const std::byte* codes, const std::byte* rows,
                                             std::size_t row_bytes, __m256i (&sums)[Rows][2]) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const __m256i plus_eight = _mm256_set1_epi8(static_cast<char>(0x88));
  __m256i words[Rows][2] = {};
  MOESAIC_UNROLL
  for (std::size_t line = 0; line < 4; ++line, codes += 64) {
    const auto* from = reinterpret_cast<const __m256i*>(codes);
    const __m256i left = _mm256_xor_si256(_mm256_loadu_si256(from), plus_eight);
    const __m256i right = _mm256_xor_si256(_mm256_loadu_si256(from + 1), plus_eight);
    MOESAIC_UNROLL
    for (std::size_t nibble = 0; nibble < 2; ++nibble) {  // k 0 to 3, 4 to 7
      const __m256i shifted[2] = {nibble == 0 ? left : _mm256_srli_epi16(left, 4),
                                  nibble == 0 ? right : _mm256_srli_epi16(right, 4)};
      const __m256i weights[2] = {_mm256_and_si256(shifted[0], low),
                                  _mm256_and_si256(shifted[1], low)};
      MOESAIC_UNROLL
      for (std::size_t r = 0; r < Rows; ++r) {
        const auto* four =
            reinterpret_cast<const int*>(rows + r * row_bytes + 8 * line + 4 * nibble);
        const __m256i values = _mm256_set1_epi32(*four);
        add_byte_products(words[r][0], weights[0], values);
        add_byte_products(words[r][1], weights[1], values);
      }
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  MOESAIC_UNROLL
  for (std::size_t r = 0; r < Rows; ++r) {
    add_word_products(sums[r][0], words[r][0], ones);
    add_word_products(sums[r][1], words[r][1], ones);
  }
}

/// `Rows` rows from `first_row` on times one panel.
template <std::size_t Rows>
void multiply(const TileArgs& args, std::int64_t panel, std::int64_t first_row) {
  const PackedMatrix& matrix = *args.matrix;
  const std::size_t row_bytes = signed_row_bytes(matrix.depth);
  const std::byte* const rows = args.packed_rows + static_cast<std::size_t>(first_row) * row_bytes;
  const std::byte* const codes = matrix.panel(args.first_panel + panel);
  const std::byte* const trailer = codes + int4_format::scales_offset(matrix.depth);
  const std::int64_t depth = round_up(matrix.depth, kIntStepDepth);
  __m256i sums[Rows][2] = {};
  for (std::int64_t k = 0; k < depth; k += 32) {
    prefetch_lines(codes + k * 8 + kPrefetchBytes, 4);
    add_lines<Rows>(codes + k * 8, rows + k, row_bytes, sums);
  }
  float* out = args.out + first_row * args.out_stride + panel * kPanelColumns;
  for (std::size_t r = 0; r < Rows; ++r, out += args.out_stride) {
    const auto& row = *reinterpret_cast<const ByteGroup*>(rows + r * row_bytes + depth);
    const __m256i surplus = _mm256_set1_epi32(8 * row.sum);
    for (std::size_t half = 0; half < 2; ++half) {
      const __m256 scales = _mm256_loadu_ps(reinterpret_cast<const float*>(trailer) + half * 8);
      // Scales are for 16 times the codes.
      const __m256i sum = _mm256_slli_epi32(_mm256_sub_epi32(sums[r][half], surplus), 4);
      const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sum), scales);
      _mm256_storeu_ps(out + half * 8, _mm256_mul_ps(scaled, _mm256_set1_ps(row.scale)));
    }
  }
}

/// 16 times the codes: two lines of a tile from 64 bytes.
void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * int4_format::kStepBytes;
  const __m256i upper = _mm256_set1_epi8(static_cast<char>(0xf0));
  for (std::int64_t pair = 0; pair < 8 * steps.count; ++pair, codes += 64, out += 128) {
    prefetch_lines(codes + kPrefetchBytes, 1);
    for (int half = 0; half < 2; ++half) {
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(codes) + half);
      auto* const lines = reinterpret_cast<__m256i*>(out) + half;
      _mm256_store_si256(lines, _mm256_and_si256(_mm256_slli_epi16(bytes, 4), upper));
      _mm256_store_si256(lines + 2, _mm256_and_si256(bytes, upper));
    }
  }
}

MOESAIC_END_TARGET

void pack_rows_as_bytes(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and conversions round as MXCSR says
  pack_all_rows(source, out);
}

using Multiply = void (*)(const TileArgs&, std::int64_t, std::int64_t);
constexpr Multiply kMultiply[] = {multiply<1>, multiply<2>, multiply<3>, multiply<4>};

/// All rows meet a panel before the next one is read.
[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    for_each_row_block(
        args.num_rows, std::size(kMultiply),
        [&](std::int64_t row, std::int64_t rows) { kMultiply[rows - 1](args, panel, row); });
  }
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel avx2_int4_kernel;
constinit const GemmKernel avx2_int4_kernel{
    .isa = Isa::avx2,
    .format = Format::int4,
    .name = "avx2/int4",
    .packed_row_bytes = signed_row_bytes,
    .pack_rows = pack_rows_as_bytes,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = decode,
};

}  // namespace moesaic
