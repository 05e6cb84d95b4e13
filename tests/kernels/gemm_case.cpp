#include "tests/kernels/gemm_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>

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
  Rows result;
  result.narrow.resize(1);  // so that rows are aligned to 2 bytes at most
  for (std::int64_t r = 0; r < count; ++r) {
    const std::vector<BFloat16> row = x_bf16(r);
    result.narrow.insert(result.narrow.end(), row.begin(), row.end());
  }
  for (std::int64_t r = 0; r < count; ++r) {
    result.pointers.push_back(
        element == RowSource::Element::f32
            ? reinterpret_cast<const std::byte*>(x.data() + r * depth)
            : reinterpret_cast<const std::byte*>(result.narrow.data() + 1 + r * depth));
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
                            const PackedMatrix& weights, std::int64_t num_panels) {
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(source.depth));
  Buffer<std::byte> packed(std::max<std::int64_t>(64, source.num_rows * row_bytes));
  Buffer<std::byte> scratch(std::max<std::int64_t>(64, kernel.scratch_bytes));
  // NaNs, should a kernel read what it did not write.
  std::fill_n(packed.data(), packed.size(), std::byte{0xff});
  std::fill_n(scratch.data(), scratch.size(), std::byte{0xff});
  for (std::int64_t row = 0; row < source.num_rows; row += kRowBlock) {
    RowSource block = source;
    block.rows += row;
    block.num_rows = std::min(kRowBlock, source.num_rows - row);
    kernel.pack_rows(block, packed.data() + row * row_bytes);
  }
  constexpr float kUntouched = 12345;
  const std::int64_t columns = num_panels * kPanelColumns;
  const std::int64_t stride = columns + 16;
  Buffer<float> out((source.num_rows + 1) * stride);
  std::fill_n(out.data(), out.size(), kUntouched);
  kernel.tile({.packed_rows = packed.data(),
               .num_rows = source.num_rows,
               .matrix = &weights,
               .first_panel = 0,
               .num_panels = num_panels,
               .out = out.data(),
               .out_stride = stride,
               .scratch = scratch.data()});
  std::vector<float> results;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(out.size()); ++i) {
    const float value = out.data()[i];
    if (i / stride < source.num_rows && i % stride < columns) {
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
