#define MOESAIC_RICH_AVX512
#include "kernels/cpu/avx512/lanes.h"

#include "kernels/cpu/avx512/bf16_weights.h"
#include "kernels/cpu/avx512/blocks.h"
#include "kernels/cpu/block_products.h"

namespace moesaic {

extern const AttentionKernel avx512_bf16_attention_bf16_kernel;

MOESAIC_BEGIN_LANES
namespace {

struct Bf16Weights {
  using Element = BFloat16;
  static std::size_t row_bytes(std::int64_t depth) { return bf16_row_bytes(depth); }
  static Lanes rounded(Lanes a) { return a; }  // stores round
  static const std::byte* weights(const Pass& pass, std::int64_t row) {
    return pass.weights + static_cast<std::size_t>(row) * kWeightRowBytes;
  }
  static constexpr std::size_t kWeightStride = kWeightRowBytes;
  static Bf16WeightRow<64> weight_row(const Pass& pass, std::int64_t row) {
    return {pass.weights + static_cast<std::size_t>(row) * kWeightRowBytes};
  }
  static Bf16WeightRow<64> row_writer(std::byte* row) { return {row}; }
};

}  // namespace
MOESAIC_END_LANES

constinit const AttentionKernel avx512_bf16_attention_bf16_kernel =
    make_bf16_attention<BlockProducts<Bf16Weights, avx512_bf16_blocks>>(Isa::avx512_bf16,
                                                                        "avx512_bf16/bf16");

}  // namespace moesaic
