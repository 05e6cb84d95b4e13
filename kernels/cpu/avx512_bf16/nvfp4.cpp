#define MOESAIC_RICH_AVX512
#include "kernels/formats/nvfp4.h"

#include "kernels/cpu/avx512/decoders/nvfp4.h"
#include "kernels/cpu/avx512_bf16/e2m1_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Nvfp4Groups {
 public:
  using Sum = PairSum;
  static constexpr bool kOffsets = false;
  static constexpr std::int64_t kStepBytes = e2m1_body::kStepBytes;

  Nvfp4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : codes_(matrix.panel(panel)), scales_(codes_ + nvfp4_format::scales_offset(matrix.depth)) {}

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    for_each_e2m1_code(codes_ + step * kStepBytes, emit);
  }
  [[nodiscard]] __m512 scales(std::int64_t step, int group) const {
    const std::byte* at = scales_at(step) + group * kPanelColumns;
    return e4m3_to_floats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
  }
  [[nodiscard]] const std::byte* scales_at(std::int64_t step) const {
    return scales_ + step * 2 * kPanelColumns;
  }

 private:
  const std::byte* codes_;
  const std::byte* scales_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_nvfp4_kernel;
constinit const GemmKernel avx512_bf16_nvfp4_kernel =
    group_kernel<Nvfp4Groups, Nvfp4Decoder>(Format::nvfp4, "avx512_bf16/nvfp4");

}  // namespace moesaic
