#define MOESAIC_RICH_AVX512
#include "kernels/formats/mxfp4.h"

#include "kernels/cpu/avx512/decoders/mxfp4.h"
#include "kernels/cpu/avx512_bf16/e2m1_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"
#include "kernels/cpu/avx512_bf16/power_scales.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

class Mxfp4Groups : public PowerScales {
 public:
  using Sum = PairSum;
  static constexpr bool kOffsets = false;
  static constexpr std::int64_t kStepBytes = e2m1_body::kStepBytes;

  Mxfp4Groups(const PackedMatrix& matrix, std::int64_t panel)
      : PowerScales(matrix.panel(panel) + mxfp4_format::scales_offset(matrix.depth)),
        codes_(matrix.panel(panel)) {}

  template <typename Emit>
  [[gnu::always_inline]] void codes(std::int64_t step, const Emit& emit) const {
    for_each_e2m1_code(codes_ + step * kStepBytes, emit);
  }

 private:
  const std::byte* codes_;
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_mxfp4_kernel;
constinit const GemmKernel avx512_bf16_mxfp4_kernel =
    group_kernel<Mxfp4Groups, Mxfp4Decoder>(Format::mxfp4, "avx512_bf16/mxfp4");

}  // namespace moesaic
