#include "kernels/formats/fp8_channel.h"

#include "kernels/cpu/avx2/e4m3_lines.h"
#include "kernels/cpu/avx2/one_row.h"
#include "kernels/cpu/prefetch.h"

namespace moesaic {
namespace {

MOESAIC_BEGIN_TARGET("avx2,fma")

/// Exponent e is 120 + e in bf16.
inline E4m3Tables channel_tables() {
  const __m256i bias = _mm256_set1_epi32(120 << 7);
  return make_tables(without_first(_mm256_add_epi32(subnormal_words(), bias)),
                     _mm256_add_epi32(mantissa_words(), bias));
}

void decode(const StepRange& steps, std::byte* out) noexcept {
  const std::byte* codes = steps.matrix->panel(steps.panel) + steps.first * e4m3_body::kStepBytes;
  const E4m3Tables tables = channel_tables();
  for (std::int64_t step = 0; step < steps.count; ++step) {
    prefetch_lines(codes + kPrefetchBytes, 8);
    decode_e4m3_step(codes, tables, out, AsDecoded{});
    codes += e4m3_body::kStepBytes;
    out += kTileBytes;
  }
}

class RowDecoder : public E4m3RowDecoder {
 public:
  RowDecoder(const PackedMatrix& /*matrix*/, std::int64_t /*panel*/) {}

  [[gnu::always_inline]] void sum_step(std::int64_t /*step*/, const std::byte* codes,
                                       const float* row, __m256 (&chains)[4]) const {
    sum_e4m3_step(codes, tables_, row, chains, AsDecoded{});
  }

 private:
  E4m3Tables tables_ = channel_tables();
};

MOESAIC_END_TARGET

}  // namespace

extern const GemmKernel avx2_fp8_channel_kernel;
constinit const GemmKernel avx2_fp8_channel_kernel =
    avx2_decoded_kernel<RowDecoder, decode>(Format::fp8_channel, "avx2/fp8_channel");

}  // namespace moesaic
