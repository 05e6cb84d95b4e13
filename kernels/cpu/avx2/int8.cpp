#include "kernels/formats/int8.h"
#include "kernels/cpu/avx2/pack_words.h"
#include "kernels/cpu/block_loop.h"
#include "kernels/cpu/copy_steps.h"
#include "kernels/cpu/tile_environment.h"

// Bytes widened to words, VPMADDWD: exact sums of two products in each of 8 lanes.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// `Rows` rows by a panel. A line is 16 columns of 4 k: four times 4 columns of 2 sums each.
template <std::size_t Rows>
void block(const Block& args) noexcept {
  const std::byte* lines = args.panels;
  const std::byte* rows = args.rows;
  __m256i sums[Rows][4] = {};
  for (std::int64_t line = 0; line < args.steps * 16; ++line, lines += 64, rows += 8) {
    _mm_prefetch(reinterpret_cast<const char*>(lines + (Rows <= 2 ? 1024 : 4096)), _MM_HINT_T1);
    __m256i values[Rows];
#pragma GCC unroll 4
    for (std::size_t r = 0; r < Rows; ++r) {
      values[r] =
          _mm256_set1_epi64x(*reinterpret_cast<const long long*>(rows + r * args.row_bytes));
    }
#pragma GCC unroll 4
    for (std::size_t q = 0; q < 4; ++q) {
      const __m256i weights =
          _mm256_cvtepi8_epi16(_mm_load_si128(reinterpret_cast<const __m128i*>(lines + 16 * q)));
#pragma GCC unroll 4
      for (std::size_t r = 0; r < Rows; ++r) {
        sums[r][q] = _mm256_add_epi32(sums[r][q], _mm256_madd_epi16(weights, values[r]));
      }
    }
  }
#pragma GCC unroll 4
  for (std::size_t r = 0; r < Rows; ++r) {
    auto* out =
        reinterpret_cast<__m256i*>(args.out + static_cast<std::int64_t>(r) * args.out_stride);
#pragma GCC unroll 2
    for (std::size_t half = 0; half < 2; ++half) {
      const __m256i pairs = _mm256_hadd_epi32(sums[r][2 * half], sums[r][2 * half + 1]);
      __m256i total = _mm256_permute4x64_epi64(pairs, 0xd8);  // columns in their order
      if (args.resume) total = _mm256_add_epi32(total, _mm256_loadu_si256(out + half));
      _mm256_storeu_si256(out + half, total);
    }
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

constexpr BlockFunction kFunctions[] = {block<1>, block<2>, block<3>};
constexpr BlockTable kBlocks{.max_rows = 3, .max_panels = 1, .functions = kFunctions};

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
