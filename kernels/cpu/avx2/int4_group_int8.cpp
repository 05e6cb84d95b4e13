#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/int4_columns.h"
#include "kernels/cpu/avx2/pack_words.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/prefetch.h"

// int4_group in groups of 128 times int8 activations with a scale for each token and group.
// VPMADDUBSW adds two products of a code and an activation in 16 bits; four of its results still
// fit, and VPMADDWD by ones adds those of two neighbours.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

using Codes = std::int8_t[kByteGroupDepth];

/// The codes of one group in the order of group_row_bytes().
template <typename Element>
ByteGroup pack_byte_group(const Element* source, std::int64_t count, Codes& out) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (std::int64_t k = 0; k < count; k += 8) {
    const __m256i bits = load_bits_padded(source, k, count);
    largest = _mm256_max_epu32(largest, _mm256_and_si256(bits, magnitude));
  }
  std::uint32_t lanes[8];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), largest);
  const TokenScale token = token_scale(*std::max_element(lanes, lanes + 8));
  const __m256 inverse = _mm256_set1_ps(token.inverse);
  const __m256i valid = _mm256_set1_epi32(token.inverse == 0 ? 0 : -1);
  ByteGroup group{.scale = token.scale, .sum = 0};
  for (std::int64_t k = 0; k < kByteGroupDepth; k += 8) {
    const __m256 values = _mm256_castsi256_ps(load_bits_padded(source, k, count));
    std::int32_t codes[8];
    _mm256_storeu_si256(
        reinterpret_cast<__m256i*>(codes),
        _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(values, inverse)), valid));
    for (std::int64_t i = 0; i < 8; ++i) {
      const std::int64_t at = (k + i) % 16;
      out[k / 16 * 16 + at % 4 * 4 + at / 4] = static_cast<std::int8_t>(codes[i]);
      group.sum += codes[i];
    }
  }
  return group;
}

template <typename Element>
void pack_group_row(const std::byte* source, std::int64_t depth, std::byte* out) {
  const auto* elements = reinterpret_cast<const Element*>(source);
  auto* codes = reinterpret_cast<Codes*>(out);
  auto* groups = reinterpret_cast<ByteGroup*>(out + byte_group_count(depth) * kByteGroupDepth);
  for (std::int64_t k = 0; k < depth; k += kByteGroupDepth) {
    *groups++ = pack_byte_group(elements + k, std::min(kByteGroupDepth, depth - k), *codes++);
  }
}

[[gnu::noinline]] void pack_all_group_rows(const RowSource& source, std::byte* out) {
  for (std::int64_t row = 0; row < source.num_rows; ++row, out += group_row_bytes(source.depth)) {
    source.element == RowSource::Element::f32
        ? pack_group_row<float>(source.rows[row], source.depth, out)
        : pack_group_row<BFloat16>(source.rows[row], source.depth, out);
  }
}

/// Adds one step to the sums of `Rows` rows: four vectors a row, of 4 columns times 2 parities.
template <std::size_t Rows>
[[gnu::always_inline]] inline void add_step(const std::byte* codes, const std::byte* rows,
                                            std::size_t row_bytes, __m256i (&sums)[Rows][4]) {
  const __m256i low = _mm256_set1_epi8(0x0f);
  const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 4
  for (std::size_t q = 0; q < 4; ++q) {
    __m256i words[Rows] = {};
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      const auto* from = reinterpret_cast<const __m256i*>(codes + half * 128 + q * 32);
      const __m256i bytes = _mm256_loadu_si256(from);
      const __m256i nibbles[2] = {_mm256_and_si256(bytes, low),
                                  _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low)};
#pragma GCC unroll 2
      for (std::size_t i = 0; i < 2; ++i) {
#pragma GCC unroll 2
        for (std::size_t r = 0; r < Rows; ++r) {
          const auto* eight =
              reinterpret_cast<const long long*>(rows + r * row_bytes + half * 16 + i * 8);
          words[r] = _mm256_add_epi16(words[r],
                                      _mm256_maddubs_epi16(nibbles[i], _mm256_set1_epi64x(*eight)));
        }
      }
    }
#pragma GCC unroll 2
    for (std::size_t r = 0; r < Rows; ++r) {
      sums[r][q] = _mm256_add_epi32(sums[r][q], _mm256_madd_epi16(words[r], ones));
    }
  }
}

/// `Rows` rows times one panel.
template <std::size_t Rows>
void multiply(const TileArgs& args, std::int64_t panel_index, std::int64_t first_row) {
  using int4_group_format::kStepBytes;
  const PackedMatrix& matrix = *args.matrix;
  const std::size_t row_bytes = group_row_bytes(matrix.depth);
  const std::byte* rows = args.packed_rows + static_cast<std::size_t>(first_row) * row_bytes;
  const std::int64_t num_groups = byte_group_count(matrix.depth);
  const std::byte* row_groups = rows + num_groups * kByteGroupDepth;
  const std::byte* codes = matrix.panel(args.first_panel + panel_index);
  const std::byte* scales = codes + int4_group_format::scales_offset(matrix.depth);
  const std::int64_t scale_bytes = int4_group_format::scale_bytes(matrix.layout);
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  __m256 totals[Rows][2] = {};
  std::int64_t step = 0;
  for (std::int64_t group = 0; group < num_groups; ++group, scales += scale_bytes) {
    __m256i sums[Rows][4] = {};
    const std::int64_t end = std::min(step + kByteGroupDepth / kStepDepth, steps);
    for (; step < end; ++step, codes += kStepBytes, rows += kStepDepth) {
      prefetch_lines(codes + kPrefetchBytes, kStepBytes / 64);
      add_step<Rows>(codes, rows, row_bytes, sums);
    }
#pragma GCC unroll 2
    for (std::size_t side = 0; side < 2; ++side) {  // columns 0 to 7, 8 to 15
      const Int4Columns columns = load_int4_columns(
          matrix.layout, scales + static_cast<std::int64_t>(side) * scale_bytes / 2);
#pragma GCC unroll 2
      for (std::size_t r = 0; r < Rows; ++r) {
        const ByteGroup& row =
            reinterpret_cast<const ByteGroup*>(row_groups + r * row_bytes)[group];
        const __m256i pairs = _mm256_hadd_epi32(sums[r][2 * side], sums[r][2 * side + 1]);
        const __m256i sum = _mm256_permute4x64_epi64(pairs, 0xd8);  // columns in their order
        const __m256i offset = _mm256_mullo_epi32(columns.zero, _mm256_set1_epi32(row.sum));
        totals[r][side] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_sub_epi32(sum, offset)),
                                          _mm256_mul_ps(columns.scale, _mm256_set1_ps(row.scale)),
                                          totals[r][side]);
      }
    }
  }
  const __m256 scale = _mm256_set1_ps(matrix.scale);
  float* out = args.out + first_row * args.out_stride + panel_index * kPanelColumns;
  for (std::size_t r = 0; r < Rows; ++r, out += args.out_stride) {
    _mm256_store_ps(out, _mm256_mul_ps(totals[r][0], scale));
    _mm256_store_ps(out + 8, _mm256_mul_ps(totals[r][1], scale));
  }
}

MOESAIC_END_TARGET

void pack_group_rows(const RowSource& source, std::byte* out) noexcept {
  const TileEnvironment environment;  // products and conversions round as MXCSR says
  pack_all_group_rows(source, out);
}

/// All rows meet a panel before the next one is read.
[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  for (std::int64_t panel = 0; panel < args.num_panels; ++panel) {
    for_each_row_block(args.num_rows, 2, [&](std::int64_t row, std::int64_t rows) {
      rows == 2 ? multiply<2>(args, panel, row) : multiply<1>(args, panel, row);
    });
  }
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel avx2_int4_group_int8_kernel;
constinit const GemmKernel avx2_int4_group_int8_kernel{
    .isa = Isa::avx2,
    .format = Format::int4_group,
    .int4_activations = Int4Activations::int8,
    .name = "avx2/int4_group_int8",
    .packed_row_bytes = group_row_bytes,
    .pack_rows = pack_group_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = nullptr,
};

}  // namespace moesaic
