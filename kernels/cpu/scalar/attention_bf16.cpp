#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/block_products.h"
#include "kernels/cpu/scalar/decoded.h"

namespace moesaic {

extern const BlockTable scalar_attention_blocks;
extern const AttentionKernel scalar_attention_bf16_kernel;

namespace {

[[gnu::always_inline]] inline void one_row(const Block& block) {
  float sums[kPanelColumns] = {};
  if (block.resume) std::memcpy(sums, block.out, sizeof sums);
  const auto* row = reinterpret_cast<const float*>(block.rows);
  for (std::int64_t step = 0; step < block.steps; ++step) {
    add_step(row + step * kStepDepth, block.panels + step * kTileBytes, sums);
  }
  std::memcpy(block.out, sums, sizeof sums);
}
// The same source twice: decoded.h says why.
[[gnu::noinline, gnu::target("fma")]] void one_row_with_fma(const Block& block) {
  one_row(block);
}
[[gnu::noinline]] void one_row_without_fma(const Block& block) {
  one_row(block);
}
void one_row_one_panel(const Block& block) noexcept {
  is_supported(Isa::avx2) ? one_row_with_fma(block) : one_row_without_fma(block);
}

constexpr BlockFunction kFunctions[] = {one_row_one_panel};

}  // namespace

constinit const BlockTable scalar_attention_blocks{
    .max_rows = 1, .max_panels = 1, .functions = kFunctions};

constinit const AttentionKernel scalar_attention_bf16_kernel =
    make_bf16_attention<BlockProducts<FloatWeights, scalar_attention_blocks>>(Isa::scalar,
                                                                              "scalar/bf16");

}  // namespace moesaic
