#include "kernels/formats/mxfp8.h"

#include "kernels/cpu/avx2/e4m3_lines.h"
#include "kernels/cpu/avx2/one_row.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Words without the bias of an exponent but for kRaise, so that only that of code 0 is zero.
constexpr int kRaise = 3;
inline E4m3Tables unscaled_tables() {
  const __m256i raise = _mm256_set1_epi32(kRaise << 7);
  return make_tables(without_first(_mm256_add_epi32(subnormal_words(), raise)),
                     _mm256_add_epi32(mantissa_words(), raise));
}

/// Brings the scales of a step into words: the exponent less the bias of e4m3. It may wrap below
/// zero, from where the codes bring it back: none has a subnormal value in the packed form.
class AddExponents {
 public:
  /// `scales`: of 16 columns.
  explicit AddExponents(const std::byte* scales)
      : offsets_{load_offsets(scales), load_offsets(scales + 8)} {}

  [[gnu::always_inline]] __m256i operator()(__m256i words, int side) const {
    const __m256i is_zero = _mm256_cmpeq_epi16(words, _mm256_setzero_si256());
    return _mm256_andnot_si256(is_zero, _mm256_add_epi16(words, offsets_[side]));
  }

 private:
  /// Of eight columns, each twice.
  static __m256i load_offsets(const std::byte* scales) {
    const __m256i exponents =
        _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(scales)));
    const __m256i twice = _mm256_or_si256(exponents, _mm256_slli_epi32(exponents, 16));
    return _mm256_slli_epi16(_mm256_sub_epi16(twice, _mm256_set1_epi16(7 + kRaise)), 7);
  }

  __m256i offsets_[2];
};

inline const std::byte* scales_of(const PackedMatrix& matrix, std::int64_t panel) {
  return matrix.panel(panel) + mxfp8_format::scales_offset(matrix.depth);
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * e4m3_body::kStepBytes;
  const std::byte* scales = scales_of(*steps.matrix, steps.panel) + steps.first * kPanelColumns;
  const E4m3Tables tables = unscaled_tables();
  for (std::int64_t step = 0; step < steps.count; ++step) {
    prefetch_lines(codes + kPrefetchBytes, 8);
    decode_e4m3_step(codes, tables, out, AddExponents(scales));
    codes += e4m3_body::kStepBytes;
    scales += kPanelColumns;
    out += kTileBytes;
  }
}

class RowDecoder : public E4m3RowDecoder {
 public:
  RowDecoder(const PackedMatrix& matrix, std::int64_t panel) : scales_(scales_of(matrix, panel)) {}

  [[gnu::always_inline]] void sum_step(std::int64_t step, const std::byte* codes, const float* row,
                                       __m256 (&chains)[4]) const {
    sum_e4m3_step(codes, tables_, row, chains, AddExponents(scales_ + step * kPanelColumns));
  }

 private:
  const std::byte* scales_;
  E4m3Tables tables_ = unscaled_tables();
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_mxfp8_kernel;
constinit const GemmKernel avx2_mxfp8_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::mxfp8, "avx2/mxfp8");

}  // namespace moesaic
