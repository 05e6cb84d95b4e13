#include <gtest/gtest.h>

#include "kernels/cpu/tile_environment.h"
#include "kernels/kernel_table.h"
#include "kernels/weight_format.h"
#include "tests/kernels/format_case.h"
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

INSTANTIATE_TEST_SUITE_P(, Decoders, testing::ValuesIn(quantized_layouts()),
                         [](const auto& layout) { return layout_name(layout.param); });

}  // namespace
}  // namespace moesaic
