#define MOESAIC_RICH_AVX512
#include "kernels/formats/int4_group.h"

#include <bit>

#include "kernels/cpu/avx512/decoders/int4_group.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

BEGIN_TARGET(MOESAIC_AVX512)

/// Sums are those of activations times (code - 8); where a group has a zero point of its own, 8
/// less that times the sum of the activations is added.
template <bool Wide>
class Int4Groups {
 public:
  using Sum = ParitySum;
  static constexpr bool kOffsets = Wide;
  static constexpr std::int64_t kStepBytes = int4_group_format::kStepBytes;

  Int4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)),
        scales_(codes_ + int4_group_format::scales_offset(matrix.depth)),
        group_shift_(std::countr_zero(static_cast<unsigned>(matrix.layout.group / kStepDepth))) {}

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    // -8 to 7, twice: the look-up takes five bits.
    const __m512i values = _mm512_set4_epi64(0x40e040c040a04080, 0x404040003f800000,
                                             static_cast<long long>(0xbf80c000c040c080),
                                             static_cast<long long>(0xc0a0c0c0c0e0c100));
    const std::byte* at = codes_ + step * kStepBytes;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half, at += kStepBytes / 2) {
      const __m512i left = _mm512_loadu_si512(at);
      const __m512i right = _mm512_loadu_si512(at + 64);
#pragma GCC unroll 4
      for (unsigned r = 0; r < 4; ++r) {
        const int line = 8 * half + 2 * static_cast<int>(r);
        emit(line, _mm512_permutexvar_epi16(_mm512_srli_epi16(left, 4 * r), values));
        emit(line + 1, _mm512_permutexvar_epi16(_mm512_srli_epi16(right, 4 * r), values));
      }
    }
  }
  [[nodiscard]] __m512 scales(std::int64_t step, int /*group*/) const {
    if constexpr (Wide) {
      return _mm512_castsi512_ps(_mm512_andnot_si512(_mm512_set1_epi32(0xff), words(step)));
    } else {
      const auto* words = reinterpret_cast<const __m256i*>(scales_at(step));
      const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(words));
      return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
    }
  }
  [[nodiscard]] __m512 offsets(std::int64_t step) const {
    const __m512i zeros = _mm512_and_si512(words(step), _mm512_set1_epi32(0xff));
    return _mm512_cvtepi32_ps(
        _mm512_sub_epi32(_mm512_set1_epi32(int4_group_format::kCompactZero), zeros));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + (step >> group_shift_) * (Wide ? 64 : 32);
  }

 private:
  [[nodiscard]] __m512i words(std::int64_t step) const {
    return _mm512_loadu_si512(scales_at(step));
  }

  const std::byte* codes_;
  const std::byte* scales_;
  int group_shift_;
};

END_TARGET

void tile(const TileArgs& args) noexcept {
  args.matrix->layout.wide_scales ? group_tile<Int4Groups<true>>(args)
                                  : group_tile<Int4Groups<false>>(args);
}

}  // namespace

extern const GemmKernel avx512_bf16_int4_group_kernel;
constinit const GemmKernel avx512_bf16_int4_group_kernel = [] {
  GemmKernel kernel = group_kernel<Int4Groups<false>, Int4GroupDecoder>(Format::int4_group,
                                                                        "avx512_bf16/int4_group");
  kernel.tile = tile;
  return kernel;
}();

}  // namespace moesaic
