#include "kernels/formats/fp8_block.h"

#include <bit>

#include "kernels/cpu/avx2/e4m3_lines.h"
#include "kernels/cpu/avx2/one_row.h"
#include "kernels/cpu/avx2/round_bf16.h"
#include "kernels/cpu/prefetch.h"

// A block has one scale for all of a panel's columns, so that mantissas times the scale, rounded to
// bf16, come from a table that is made once for a block. Powers of two do not change the rounding:
// the table is made with a scale of 1 to 2, and the rest of it goes into the exponent.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// `factors` times `scale` and 2^exponent. The exponent's field may wrap: in the packed form no
/// code's value is subnormal, and of a scale that is zero all codes are zero.
inline __m256i scaled_words(__m256 factors, float scale, int exponent) {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const auto significand = std::bit_cast<float>((bits & 0x7fffffU) | 0x3f800000U);
  const int raise = static_cast<int>(bits >> 23) - 127 + exponent;
  const __m256 products = _mm256_mul_ps(factors, _mm256_set1_ps(significand));
  return _mm256_add_epi32(_mm256_srli_epi32(round_to_bf16(products), 16),
                          _mm256_set1_epi32(raise * 128));
}

inline E4m3Tables block_tables(float scale) {
  const __m256 mantissas = _mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256 normal = _mm256_add_ps(mantissas, _mm256_set1_ps(8));
  return make_tables(without_first(scaled_words(mantissas, scale, -9)),
                     scaled_words(normal, scale, -10));
}

/// Those of a panel, for steps in turn.
class BlockTables {
 public:
  BlockTables(const PackedMatrix& matrix, std::int64_t panel, std::int64_t first_step = 0)
      : scales_(reinterpret_cast<const float*>(matrix.panel(panel) +
                                               fp8_block_format::scales_offset(matrix.depth))),
        steps_per_block_(matrix.layout.group / kStepDepth) {
    if (first_step % steps_per_block_ != 0) {  // at() makes those of blocks that begin
      tables_ = block_tables(scales_[first_step / steps_per_block_]);
    }
  }

  /// Of steps in turn from the first.
  [[gnu::always_inline]] const E4m3Tables& at(std::int64_t step) {
    if (step % steps_per_block_ == 0) tables_ = block_tables(scales_[step / steps_per_block_]);
    return tables_;
  }

 private:
  const float* scales_;
  std::int64_t steps_per_block_;
  E4m3Tables tables_{};
};

void decode(const StepRange& steps, std::byte* out) noexcept {
  const PackedMatrix& matrix = *steps.matrix;
  const std::byte* codes = matrix.panel(steps.panel) + steps.first * e4m3_body::kStepBytes;
  BlockTables tables(matrix, steps.panel, steps.first);
  for (std::int64_t step = steps.first; step < steps.first + steps.count; ++step) {
    prefetch_lines(codes + kPrefetchBytes, 8);
    decode_e4m3_step(codes, tables.at(step), out, AsDecoded{});
    codes += e4m3_body::kStepBytes;
    out += kTileBytes;
  }
}

class RowDecoder : public E4m3RowDecoder {
 public:
  RowDecoder(const PackedMatrix& matrix, std::int64_t panel) : tables_(matrix, panel) {}

  [[gnu::always_inline]] void sum_step(std::int64_t step, const std::byte* codes, const float* row,
                                       __m256 (&chains)[4]) {
    sum_e4m3_step(codes, tables_.at(step), row, chains, AsDecoded{});
  }

 private:
  BlockTables tables_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_fp8_block_kernel;
constinit const GemmKernel avx2_fp8_block_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::fp8_block, "avx2/fp8_block");

}  // namespace moesaic
