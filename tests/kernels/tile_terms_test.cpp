// Terms with which the sums of a product go on, for kernels that take some.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/kernels/gemm_case.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

/// Some of the depth of a case.
GemmCase part_of(const GemmCase& whole, std::int64_t first, std::int64_t depth) {
  GemmCase part{
      .num_rows = whole.num_rows, .num_panels = whole.num_panels, .depth = depth, .x = {}, .w = {}};
  const auto copy = [&](const std::vector<float>& from, std::vector<float>& to) {
    for (auto row = from.begin(); row != from.end(); row += whole.depth) {
      to.insert(to.end(), row + first, row + first + depth);
    }
  };
  copy(whole.x, part.x);
  copy(whole.w, part.w);
  return part;
}

/// Operands of a part as a kernel takes them.
struct Operands {
  Operands(const GemmKernel& kernel, const GemmCase& part)
      : weights(part.pack_weights({.format = kernel.format})),
        rows(
            lines(part.num_rows * static_cast<std::int64_t>(kernel.packed_row_bytes(part.depth)))) {
    const GemmCase::Rows source = part.rows(part.num_rows, RowSource::Element::f32);
    const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(part.depth));
    for (std::int64_t row = 0; row < part.num_rows; row += kRowBlock) {
      RowSource block = source.source;
      block.rows += row;
      block.num_rows = std::min(kRowBlock, part.num_rows - row);
      kernel.pack_rows(block, rows.span().data() + row * row_bytes);
    }
  }
  static std::size_t lines(std::int64_t bytes) {
    return static_cast<std::size_t>(bytes + 63) / 64 * 64;
  }

  OwnedMatrix weights;
  GuardedArray<std::byte> rows;
};

std::vector<float> run(const GemmKernel& kernel, const GemmCase& part, const Operands& main,
                       std::span<const TileTerms> terms) {
  const GuardedArray<float> out(static_cast<std::size_t>(part.num_rows * part.columns()));
  const GuardedArray<std::byte> scratch(Operands::lines(kernel.scratch_bytes));
  const PackedMatrix matrix = main.weights.matrix;
  kernel.tile({.packed_rows = main.rows.span().data(),
               .num_rows = part.num_rows,
               .matrix = &matrix,
               .first_panel = 0,
               .num_panels = part.num_panels,
               .out = out.span().data(),
               .out_stride = part.columns(),
               .scratch = scratch.span().data(),
               .terms = terms});
  return {out.span().begin(), out.span().end()};
}

TEST(TileTerms, are_the_end_of_a_longer_depth) {
  constexpr std::int64_t kDepth = 96;
  std::mt19937 random(9);
  std::normal_distribution<float> normal;
  int kernels = 0;
  for (const GemmKernel* kernel : all_gemm_kernels()) {
    if (!kernel->takes_terms || !is_usable(*kernel)) continue;
    ++kernels;
    for (const std::int64_t num_rows : {1, 15, 16, 17, 40, 48, 64, 100}) {
      for (const std::int64_t panels : {1, 2, 5}) {
        const GemmCase whole =
            make_gemm_case(num_rows, panels, kDepth + 32 + 64, [&] { return normal(random); });
        const GemmCase main = part_of(whole, 0, kDepth);
        const Operands rows(*kernel, main);
        const Operands first(*kernel, part_of(whole, kDepth, 32));
        const Operands second(*kernel, part_of(whole, kDepth + 32, 64));
        const PackedMatrix matrices[] = {first.weights.matrix, second.weights.matrix};
        const TileTerms terms[] = {{first.rows.span().data(), &matrices[0]},
                                   {second.rows.span().data(), &matrices[1]}};
        EXPECT_EQ(run(*kernel, main, rows, terms), whole.run(*kernel))
            << kernel->name << " " << num_rows << " rows, " << panels << " panels";
        const GemmCase shorter = part_of(whole, 0, kDepth + 32);
        EXPECT_EQ(run(*kernel, main, rows, std::span(terms).first(1)), shorter.run(*kernel))
            << kernel->name << " " << num_rows << " rows, " << panels << " panels";
      }
    }
  }
  if (kernels == 0) GTEST_SKIP() << "no kernel of this CPU takes terms";
}

}  // namespace
}  // namespace moesaic
