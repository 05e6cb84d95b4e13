#define MOESAIC_RICH_AVX512
#include "kernels/formats/mxfp8.h"

#include "kernels/cpu/avx512/decoders/mxfp8.h"
#include "kernels/cpu/avx512_bf16/e4m3_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"
#include "kernels/cpu/avx512_bf16/power_scales.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp8Groups : public PowerScales {
 public:
  using Sum = PairSum;
  static constexpr bool kOffsets = false;
  static constexpr std::int64_t kStepBytes = e4m3_body::kStepBytes;

  Mxfp8Groups(const PackedMatrix& matrix, std::int64_t panel)
      : PowerScales(matrix.panel(panel) + mxfp8_format::scales_offset(matrix.depth)),
        codes_(matrix.panel(panel)) {}

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    for_each_e4m3_code(codes_ + step * kStepBytes, emit);
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_mxfp8_kernel;
constinit const GemmKernel avx512_bf16_mxfp8_kernel =
    group_kernel<Mxfp8Groups, Mxfp8Decoder>(Format::mxfp8, "avx512_bf16/mxfp8");

}  // namespace moesaic
