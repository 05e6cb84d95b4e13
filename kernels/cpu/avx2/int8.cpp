#include "kernels/formats/int8.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx2/integer_sums.h"
#include "kernels/cpu/avx2/pack_words.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/tile_environment.h"

// Bytes widened to words, VPMADDWD: exact sums of two products in each of 8 lanes.

namespace moesaic {
namespace {

/// Steps that many rows meet half by half.
constexpr std::int64_t kHalfSteps = 4;

MOESAIC_BEGIN_TARGET("avx2,fma")

// A line is 16 columns of 4 k: four times 4 columns of 2 sums each.
[[gnu::always_inline]] inline __m256i load_words(const std::byte* quarter) {
  return _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(quarter)));
}
[[gnu::always_inline]] inline __m256i load_value(const std::byte* row) {
  return _mm256_set1_epi64x(*reinterpret_cast<const long long*>(row));
}

/// Stores the sums of 8 columns, or adds them to what is there.
[[gnu::always_inline]] inline void store_columns(const Block& args, std::size_t row,
                                                 std::size_t half, const __m256i (&sums)[2]) {
  float* const row_sums = args.out + static_cast<std::int64_t>(row) * args.out_stride;
  auto* const out = reinterpret_cast<__m256i*>(row_sums) + half;
  const __m256i pairs = _mm256_hadd_epi32(sums[0], sums[1]);
  __m256i total = _mm256_permute4x64_epi64(pairs, 0xd8);  // columns in their order
  if (args.resume) total = _mm256_add_epi32(total, _mm256_loadu_si256(out));
  _mm256_storeu_si256(out, total);
}

/// One row or two by a panel, which is read once.
template <std::size_t Rows>
void few_rows(const Block& args) noexcept {
  const std::byte* lines = args.panels;
  const std::byte* rows = args.rows;
  __m256i sums[Rows][2][2] = {};
  for (std::int64_t line = 0; line < args.steps * 16; ++line, lines += 64, rows += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(lines + 1024), _MM_HINT_T1);
    MOESAIC_UNROLL
    for (std::size_t q = 0; q < 4; ++q) {
      const __m256i weights = load_words(lines + 16 * q);
      MOESAIC_UNROLL
      for (std::size_t r = 0; r < Rows; ++r) {
        add_word_products(sums[r][q / 2][q % 2], weights, load_value(rows + r * args.row_bytes));
      }
    }
  }
  MOESAIC_UNROLL
  for (std::size_t r = 0; r < Rows; ++r) {
    store_columns(args, r, 0, sums[r][0]);
    store_columns(args, r, 1, sums[r][1]);
  }
}

/// More rows by some steps of one half of a panel's columns: 12 sums, 2 weights, a value and a
/// product are 16 registers.
template <std::size_t Rows>
[[gnu::always_inline]] inline void add_half(const Block& args, const std::byte* line,
                                            const std::byte* rows, std::int64_t num_lines,
                                            __m256i (&sums)[Rows][2]) {
  __m256i in_registers[Rows][2];
  MOESAIC_UNROLL
  for (std::size_t r = 0; r < Rows; ++r) {
    in_registers[r][0] = sums[r][0];
    in_registers[r][1] = sums[r][1];
  }
  for (std::int64_t i = 0; i < num_lines; ++i, line += 64, rows += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(line + kHalfSteps * kTileBytes), _MM_HINT_T1);
    const __m256i weights[2] = {load_words(line), load_words(line + 16)};
    MOESAIC_UNROLL
    for (std::size_t r = 0; r < Rows; ++r) {
      const __m256i value = load_value(rows + r * args.row_bytes);
      add_word_products(in_registers[r][0], weights[0], value);
      add_word_products(in_registers[r][1], weights[1], value);
    }
  }
  MOESAIC_UNROLL
  for (std::size_t r = 0; r < Rows; ++r) {
    sums[r][0] = in_registers[r][0];
    sums[r][1] = in_registers[r][1];
  }
}

/// The halves in turn, so that the steps after these arrive meanwhile.
template <std::size_t Rows>
void rows_by_halves(const Block& args) noexcept {
  __m256i sums[2][Rows][2] = {};
  for (std::int64_t step = 0; step < args.steps; step += kHalfSteps) {
    const std::int64_t lines = std::min(kHalfSteps, args.steps - step) * 16;
    for (std::size_t half = 0; half < 2; ++half) {
      add_half(args, args.panels + step * kTileBytes + 32 * half,
               args.rows + step * kIntStepDepth * 2, lines, sums[half]);
    }
  }
  MOESAIC_UNROLL
  for (std::size_t r = 0; r < Rows; ++r) {
    store_columns(args, r, 0, sums[0][r]);
    store_columns(args, r, 1, sums[1][r]);
  }
}

/// Turns the int32 sums of a whole product into its results.
void scale_integers(const TileArgs& args) {
  const PackedMatrix& matrix = *args.matrix;
  const std::int64_t offset = int8_format::scales_offset(matrix.depth);
  for (std::int64_t half = 0; half < 2 * args.num_panels; ++half) {
    const std::byte* trailer = matrix.panel(args.first_panel + half / 2) + offset;
    const __m256 scales = _mm256_loadu_ps(reinterpret_cast<const float*>(trailer) + half % 2 * 8);
    for (std::int64_t row = 0; row < args.num_rows; ++row) {
      float* out = args.out + row * args.out_stride + half * 8;
      const __m256i sums = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(out));
      const __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(sums), scales);
      _mm256_storeu_ps(out, _mm256_mul_ps(scaled, _mm256_set1_ps(word_row_scale(args, row))));
    }
  }
}

MOESAIC_END_TARGET

constexpr BlockFunction kFunctions[] = {few_rows<1>,       few_rows<2>,       rows_by_halves<3>,
                                        rows_by_halves<4>, rows_by_halves<5>, rows_by_halves<6>};
constexpr BlockTable kBlocks{.max_rows = 6, .max_panels = 1, .functions = kFunctions};

[[gnu::noinline]] void product(const TileArgs& args) noexcept {
  run_raw(args, {word_row_bytes(args.matrix->depth), kIntStepDepth * 2}, kBlocks);
  scale_integers(args);
}

void tile(const TileArgs& args) noexcept {
  const TileEnvironment environment;
  product(args);
}

}  // namespace

extern const GemmKernel avx2_int8_kernel;
constinit const GemmKernel avx2_int8_kernel{
    .isa = Isa::avx2,
    .format = Format::int8,
    .name = "avx2/int8",
    .packed_row_bytes = word_row_bytes,
    .pack_rows = pack_word_rows,
    .scratch_bytes = 0,
    .tile = tile,
    .decode = copy_steps,
};

}  // namespace moesaic
