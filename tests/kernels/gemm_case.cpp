#include "tests/kernels/gemm_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace moesaic {
namespace {

std::vector<float> draw_matrix(std::int64_t rows, std::int64_t columns,
                               const std::function<float()>& draw) {
  std::vector<float> values(static_cast<std::size_t>(rows * columns));
  std::generate(values.begin(), values.end(), draw);
  return values;
}

std::vector<BFloat16> rounded(const float* from, std::int64_t count) {
  std::vector<BFloat16> values(static_cast<std::size_t>(count));
  std::transform(from, from + count, values.begin(), to_bfloat16);
  return values;
}

/// `bytes` in whole cache lines: what starts at one and ends at the end of a page.
std::size_t lines(std::int64_t bytes) {
  return static_cast<std::size_t>((bytes + 63) / 64 * 64);
}

}  // namespace

GemmCase make_gemm_case(std::int64_t num_rows, std::int64_t num_panels, std::int64_t depth,
                        const std::function<float()>& draw) {
  return {.num_rows = num_rows,
          .num_panels = num_panels,
          .depth = depth,
          .x = draw_matrix(num_rows, depth, draw),
          .w = draw_matrix(num_panels * kPanelColumns, depth, draw)};
}

std::vector<BFloat16> GemmCase::x_bf16(std::int64_t row) const {
  return rounded(x.data() + row * depth, depth);
}

std::vector<BFloat16> GemmCase::w_bf16(std::int64_t column) const {
  return rounded(w.data() + column * depth, depth);
}

OwnedMatrix GemmCase::pack_weights(const Layout& layout) const {
  return pack_matrix(layout, w, columns(), depth);
}

GemmCase::Rows GemmCase::rows(std::int64_t count, RowSource::Element element) const {
  const auto bytes = static_cast<std::size_t>(element_bytes(element) * depth);
  Rows result;
  result.memory =
      std::make_unique<GuardedArray<std::byte>>(bytes * static_cast<std::size_t>(count));
  std::byte* out = result.memory->span().data();
  for (std::int64_t r = 0; r < count; ++r, out += bytes) {
    const std::vector<BFloat16> narrow = x_bf16(r);
    const bool wide = element == RowSource::Element::f32;
    std::memcpy(out, wide ? static_cast<const void*>(x.data() + r * depth) : narrow.data(), bytes);
    result.pointers.push_back(out);
  }
  result.source = {
      .rows = result.pointers.data(), .num_rows = count, .depth = depth, .element = element};
  return result;
}

std::vector<float> GemmCase::run(const GemmKernel& kernel, RowSource::Element element) const {
  return run(kernel, pack_weights({.format = kernel.format}).matrix, element);
}

std::vector<float> GemmCase::run(const GemmKernel& kernel, const PackedMatrix& weights,
                                 RowSource::Element element) const {
  return run_part(kernel, rows(num_rows, element).source, weights, num_panels);
}

std::vector<float> run_part(const GemmKernel& kernel, const RowSource& source,
                            const PackedMatrix& weights, std::int64_t num_panels,
                            const StreamedRows& streamed) {
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(source.depth));
  const GuardedArray<std::byte> packed(lines(source.num_rows * row_bytes));
  const GuardedArray<std::byte> scratch(lines(kernel.scratch_bytes));
  const GuardedArray<std::byte> panels(lines(num_panels * weights.panel_stride()));
  // NaNs, should a kernel read what it did not write.
  std::ranges::fill(packed.span(), std::byte{0xff});
  std::ranges::fill(scratch.span(), std::byte{0xff});
  std::copy_n(weights.panels, num_panels * weights.panel_stride(), panels.span().data());
  PackedMatrix matrix = weights;
  matrix.panels = panels.span().data();
  for (std::int64_t row = 0; row < source.num_rows; row += kRowBlock) {
    RowSource block = source;
    block.rows += row;
    block.num_rows = std::min(kRowBlock, source.num_rows - row);
    kernel.pack_rows(block, packed.span().data() + row * row_bytes);
  }
  constexpr float kUntouched = 12345;
  const std::int64_t columns = num_panels * kPanelColumns;
  const std::int64_t stride = columns + 16;
  const GuardedArray<float> out(static_cast<std::size_t>(source.num_rows * stride));
  std::ranges::fill(out.span(), kUntouched);
  kernel.tile({.packed_rows = packed.span().data(),
               .num_rows = source.num_rows,
               .matrix = &matrix,
               .first_panel = 0,
               .num_panels = num_panels,
               .out = out.span().data(),
               .out_stride = stride,
               .scratch = scratch.span().data(),
               .streamed = streamed});
  std::vector<float> results;
  for (std::int64_t i = 0; i < std::ssize(out.span()); ++i) {
    const float value = out.span()[static_cast<std::size_t>(i)];
    if (i % stride < columns) {
      results.push_back(value);
    } else {
      EXPECT_EQ(value, kUntouched) << kernel.name << " wrote beyond its results, " << i;
    }
  }
  return results;
}

std::uint32_t result_bits(float value) {
  return std::isnan(value) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(value);
}

}  // namespace moesaic
