#include "tests/kernels/gemm_case.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/packed_matrix.h"

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

Buffer<std::byte> GemmCase::pack_weights(Format format) const {
  const std::int64_t bytes = panel_bytes(format, depth);
  Buffer<std::byte> panels(bytes * num_panels);
  for (std::int64_t p = 0; p < num_panels; ++p) {
    std::byte* const panel = panels.data() + p * bytes;
    std::vector<std::vector<BFloat16>> values;
    std::vector<const BFloat16*> bf16_rows;
    std::vector<const float*> f32_rows;
    for (std::int64_t c = p * kPanelColumns; c < (p + 1) * kPanelColumns; ++c) {
      values.push_back(w_bf16(c));
      bf16_rows.push_back(values.back().data());
      f32_rows.push_back(w.data() + c * depth);
    }
    if (format == Format::bf16) {
      bf16_format::pack_panel(bf16_rows, depth, reinterpret_cast<BFloat16*>(panel));
    } else {
      f32_format::pack_panel(f32_rows, depth, reinterpret_cast<float*>(panel));
    }
  }
  return panels;
}

Buffer<std::byte> GemmCase::pack_rows(const GemmKernel& kernel, RowSource::Element element) const {
  std::vector<BFloat16> narrow(1);  // so that rows are aligned to 2 bytes at most
  for (std::int64_t r = 0; r < num_rows; ++r) {
    const std::vector<BFloat16> row = x_bf16(r);
    narrow.insert(narrow.end(), row.begin(), row.end());
  }
  std::vector<const std::byte*> rows;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    rows.push_back(element == RowSource::Element::f32
                       ? reinterpret_cast<const std::byte*>(x.data() + r * depth)
                       : reinterpret_cast<const std::byte*>(narrow.data() + 1 + r * depth));
  }
  Buffer<std::byte> packed(std::max<std::int64_t>(
      1, num_rows * static_cast<std::int64_t>(kernel.packed_row_bytes(depth))));
  std::fill_n(packed.data(), packed.size(), std::byte{0xff});  // NaNs, should a kernel read on
  kernel.pack_rows({.rows = rows.data(), .num_rows = num_rows, .depth = depth, .element = element},
                   packed.data());
  return packed;
}

std::vector<float> GemmCase::run(const GemmKernel& kernel, RowSource::Element element) const {
  const Buffer<std::byte> rows = pack_rows(kernel, element);
  const Buffer<std::byte> panels = pack_weights(kernel.format);
  std::vector<float> out(static_cast<std::size_t>(num_rows * columns()), 1.0F);
  kernel.tile({.packed_rows = rows.data(),
               .num_rows = num_rows,
               .panels = panels.data(),
               .num_panels = num_panels,
               .depth = depth,
               .out = out.data(),
               .out_stride = columns()});
  return out;
}

std::uint32_t result_bits(float value) {
  return std::isnan(value) ? 0x7fc00000U : std::bit_cast<std::uint32_t>(value);
}

}  // namespace moesaic
