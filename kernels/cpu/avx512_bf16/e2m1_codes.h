#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/avx512_bf16/group_sums.h"
#include "kernels/formats/e2m1_body.h"

// Codes of kernels/formats/e2m1_body.h as bf16. Internal to each kernel that has them.

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// Codes that a panel starts with, as `Groups` of group_kernel.h have them.
class E2m1Codes {
 public:
  using Sum = PairSum;
  static constexpr bool kOffsets = false;
  static constexpr std::int64_t kStepBytes = e2m1_body::kStepBytes;

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    const std::byte* const from = codes_ + step * kStepBytes;
    // 0, 0.5, 1.5, 1, 3, 2, 6, 4 and their negatives, twice: the look-up takes five bits.
    const __m512i values = _mm512_set4_epi64(static_cast<long long>(0xc080c0c0c000c040),
                                             static_cast<long long>(0xbf80bfc0bf008000),
                                             0x408040c040004040, 0x3f803fc03f000000);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const __m512i packed = _mm512_loadu_si512(from + 64 * v);
#pragma GCC unroll 4
      for (unsigned r = 0; r < 4; ++r) {
        const __m512i index = r == 0 ? packed : _mm512_srli_epi16(packed, 4 * r);
        emit(4 * v + static_cast<int>(r), _mm512_permutexvar_epi16(index, values));
      }
    }
  }

 protected:
  explicit E2m1Codes(const std::byte* panel) : codes_(panel) {}
  [[nodiscard]] const std::byte* start() const {
    return codes_;
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace
}  // namespace moesaic
