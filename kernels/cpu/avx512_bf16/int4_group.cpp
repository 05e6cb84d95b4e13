#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/decoders/int4_group.h"

#include <bit>

#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Sums are those of activations times (code - 8); where a group has a zero point of its own, 8
/// less that times the sum of the activations is added.
template <bool Wide>
class Int4Groups {
 public:
  using Sum = ParitySum;
  static constexpr bool kOffsets = Wide;
  static constexpr std::int64_t kStepBytes = int4_group_format::kStepBytes;

  Int4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : panel_(matrix, panel),
        group_shift_(std::countr_zero(static_cast<unsigned>(matrix.layout.group / kStepDepth))) {}

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    // -8 to 7, twice: the look-up takes five bits.
    const __m512i values = _mm512_set4_epi64(0x40e040c040a04080, 0x404040003f800000,
                                             static_cast<long long>(0xbf80c000c040c080),
                                             static_cast<long long>(0xc0a0c0c0c0e0c100));
    const std::byte* at = panel_.codes(step);
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
    return panel_.scales(step >> group_shift_);
  }
  [[nodiscard]] __m512 offsets(std::int64_t step) const {
    const __m512i eight = _mm512_set1_epi32(int4_group_format::kCompactZero);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(eight, panel_.zeros(step >> group_shift_)));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return panel_.scales_at(step >> group_shift_);
  }

 private:
  Int4Panel panel_;
  int group_shift_;
};

MOESAIC_END_TARGET

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
