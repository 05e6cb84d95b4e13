#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/cpu/tile_environment.h"
#include "kernels/kernel_table.h"
#include "kernels/weight_format.h"
#include "tests/kernels/format_case.h"
#include "tests/kernels/gemm_case.h"
#include "tests/kernels/quantized_case.h"

// The decoder of every instruction set against decode_step(), on scales of the whole range.

namespace moesaic {
namespace {

class Decoders : public testing::TestWithParam<Layout> {
 protected:
  [[nodiscard]] static std::vector<std::byte> truth(const PackedMatrix& matrix) {
    const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
    std::vector<std::byte> lines(static_cast<std::size_t>(steps * kTileBytes));
    for (std::int64_t step = 0; step < steps; ++step) {
      std::byte* const out = lines.data() + step * kTileBytes;
      if (is_integer(matrix.layout.format)) {
        decode_int_step(matrix, 0, step, reinterpret_cast<std::int8_t*>(out));
      } else {
        decode_step(matrix, 0, step, reinterpret_cast<BFloat16*>(out));
      }
    }
    return lines;
  }

  static void expect_truth(const GemmKernel& kernel, const PackedMatrix& matrix,
                           std::int64_t first) {
    const std::int64_t steps = step_count(matrix.layout.format, matrix.depth) - first;
    Buffer<std::byte> found(steps * kTileBytes);
    {
      const TileEnvironment environment;
      kernel.decode({&matrix, 0, first, steps}, found.data());
    }
    std::vector<std::byte> expected = truth(matrix);
    expected.erase(expected.begin(), expected.begin() + first * kTileBytes);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(found.data()[i], expected[i])
          << kernel.name << ", depth " << matrix.depth << ", step "
          << first + static_cast<std::int64_t>(i) / kTileBytes << " of " << steps << ", line "
          << i % kTileBytes / 64 << ", byte " << i % 64;
    }
  }
};

/// Whether a product with 1 is the weight. Where groups are summed by themselves no product of code
/// and scale is rounded to bf16, and a scale of 2^-127 counts as zero (docs/numerics.md).
bool is_weight(const GemmKernel& kernel, float product, float weight) {
  if (result_bits(product) == result_bits(weight)) return true;
  if (kernel.isa != Isa::avx512_bf16) return false;
  if (kernel.format == Format::mxfp4 || kernel.format == Format::mxfp8) {
    constexpr float kGreatestOfLeastScale = 448 * 0x1p-127F;  // e4m3's greatest code
    return product == 0 && std::abs(weight) <= kGreatestOfLeastScale;
  }
  if (kernel.format != Format::int4_group && kernel.format != Format::fp8_block) return false;
  constexpr float kGreatest = 0x1.fep127F;  // of bf16
  if (std::isinf(weight)) return std::copysign(1.0F, weight) * product >= kGreatest;
  return std::abs(double{product} - weight) <= std::abs(weight) * 0x1p-8;
}

TEST_P(Decoders, give_the_bits_of_the_truth) {
  RandomRows random(GetParam(), 11);
  for (const std::int64_t depth : {1, 33, 64, 300, 1000, 4096}) {
    const OnePanel panel(GetParam(), random.draw(16, depth));
    const std::int64_t steps = step_count(GetParam().format, depth);
    for (const GemmKernel* kernel : all_gemm_kernels()) {
      if (kernel->format != GetParam().format || !is_usable(*kernel)) continue;
      if (kernel->decode == nullptr) continue;
      for (const std::int64_t first : {std::int64_t{0}, steps / 3, steps - 1}) {
        expect_truth(*kernel, panel.matrix(), first);
      }
    }
  }
}

// Rows with a single one: a product is a row of weights. Kernels for few rows have decoders of
// their own, and none may be wrong where scales are at an end of their range.
TEST_P(Decoders, products_take_the_weights_of_the_truth) {
  constexpr std::int64_t kDepth = 1100;
  constexpr std::int64_t kRows = 150;
  RandomRows random(GetParam(), 12);
  const OnePanel panel(GetParam(), random.draw(kPanelColumns, kDepth));
  GemmCase product = make_gemm_case(kRows, 1, kDepth, [] { return 0.0F; });
  for (std::int64_t row = 0; row < kRows; ++row) {
    product.x[static_cast<std::size_t>(row * kDepth + row * 37 % kDepth)] = 1;
  }
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (kernel->format != GetParam().format || !is_usable(*kernel)) continue;
    if (kernel->int4_activations == Int4Activations::int8 && !allows_int8_groups(GetParam())) {
      continue;
    }
    const std::vector<float> expected = product.run(
        find_gemm_kernel(Isa::scalar, kernel->format, kernel->int4_activations), panel.matrix());
    for (const std::int64_t at_once : {1, 2, 5, 50}) {
      for (std::int64_t first = 0; first < kRows; first += at_once) {
        GemmCase some = product;
        some.num_rows = at_once;
        some.x.assign(product.x.begin() + first * kDepth,
                      product.x.begin() + (first + at_once) * kDepth);
        const std::vector<float> found = some.run(*kernel, panel.matrix());
        for (std::size_t i = 0; i < found.size(); ++i) {
          const float wanted = expected[static_cast<std::size_t>(first) * kPanelColumns + i];
          ASSERT_TRUE(is_weight(*kernel, found[i], wanted))
              << kernel->name << ", " << at_once << " rows: " << found[i] << " for " << wanted
              << " at row " << first + static_cast<std::int64_t>(i) / kPanelColumns << ", column "
              << i % kPanelColumns;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, Decoders, testing::ValuesIn(quantized_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

}  // namespace
}  // namespace moesaic
