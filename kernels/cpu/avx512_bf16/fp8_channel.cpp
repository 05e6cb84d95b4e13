#define MOESAIC_RICH_AVX512
#include "kernels/formats/fp8_channel.h"

#include "kernels/cpu/avx512/decoders/fp8_channel.h"
#include "kernels/cpu/avx512_bf16/e4m3_codes.h"
#include "kernels/cpu/avx512_bf16/group_kernel.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET(MOESAIC_AVX512)

/// The scales of rows multiply at the end; until then they are 1.
class Fp8ChannelGroups : public E4m3Codes {
 public:
  Fp8ChannelGroups(const PackedMatrix& matrix, std::int64_t panel)
      : E4m3Codes(matrix.panel(panel)) {}

  [[nodiscard]] static __m512 scales(std::int64_t /*step*/, int /*group*/) {
    return _mm512_set1_ps(1);
  }
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx512_bf16_fp8_channel_kernel;
constinit const GemmKernel avx512_bf16_fp8_channel_kernel =
    group_kernel<Fp8ChannelGroups, Fp8ChannelDecoder>(Format::fp8_channel,
                                                      "avx512_bf16/fp8_channel");

}  // namespace moesaic
