#include "kernels/whole_product.h"

#include <algorithm>
#include <vector>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/weight_format.h"

namespace moesaic {
namespace {

/// The rows of a panel as they are, or rounded to bf16.
void pack_plain_panel(Format format, std::span<const float> values, std::int64_t depth,
                      std::byte* panel) {
  const std::int64_t count = std::ssize(values) / depth;
  std::vector<BFloat16> rounded;
  std::vector<const float*> floats;
  std::vector<const BFloat16*> words;
  if (format == Format::bf16) {
    rounded.resize(values.size());
    std::ranges::transform(values, rounded.begin(), to_bfloat16);
  }
  for (std::int64_t row = 0; row < count; ++row) {
    floats.push_back(values.data() + row * depth);
    if (format == Format::bf16) words.push_back(rounded.data() + row * depth);
  }
  if (format == Format::bf16) {
    bf16_format::pack_panel(words, depth, reinterpret_cast<BFloat16*>(panel));
  } else {
    f32_format::pack_panel(floats, depth, reinterpret_cast<float*>(panel));
  }
}

}  // namespace

OwnedMatrix pack_matrix(const Layout& layout, std::span<const float> values, std::int64_t rows,
                        std::int64_t depth) {
  OwnedMatrix owned{{}, {.layout = layout, .rows = rows, .depth = depth}};
  PackedMatrix& matrix = owned.matrix;
  owned.panels = Buffer<std::byte>(matrix.bytes());
  matrix.panels = owned.panels.data();
  const bool plain = layout.format == Format::f32 || layout.format == Format::bf16;
  MatrixScales scales(layout, rows, depth);
  if (!plain && MatrixScales::needed(layout.format)) {
    scales.add_rows(0, values);
    matrix.scale = scales.matrix_scale();
  }
  QuantizedRows quantized;
  for (std::int64_t panel = 0; panel < matrix.num_panels(); ++panel) {
    const std::int64_t first = panel * kPanelColumns;
    const std::int64_t count = std::min(kPanelColumns, rows - first);
    const auto part = values.subspan(static_cast<std::size_t>(first * depth),
                                     static_cast<std::size_t>(count * depth));
    std::byte* const out = owned.panels.data() + panel * matrix.panel_stride();
    if (plain) {
      pack_plain_panel(layout.format, part, depth, out);
    } else {
      quantize_rows(layout, {.values = part, .first_row = first, .num_rows = count, .depth = depth},
                    &scales, quantized);
      pack_panel(layout, quantized, out);
    }
  }
  return owned;
}

Buffer<std::byte> pack_all_rows(const GemmKernel& kernel, const RowSource& source) {
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(source.depth));
  Buffer<std::byte> packed(std::max<std::int64_t>(1, source.num_rows * row_bytes));
  for (std::int64_t row = 0; row < source.num_rows; row += kRowBlock) {
    RowSource block = source;
    block.rows += row;
    block.num_rows = std::min(kRowBlock, source.num_rows - row);
    kernel.pack_rows(block, packed.data() + row * row_bytes);
  }
  return packed;
}

Buffer<float> multiply(const GemmKernel& kernel, const RowSource& source,
                       const PackedMatrix& matrix) {
  const Buffer<std::byte> rows = pack_all_rows(kernel, source);
  Buffer<std::byte> scratch(std::max<std::int64_t>(1, kernel.scratch_bytes));
  const std::int64_t stride = matrix.num_panels() * kPanelColumns;
  Buffer<float> out(std::max<std::int64_t>(1, source.num_rows * stride));
  kernel.tile({.packed_rows = rows.data(),
               .num_rows = source.num_rows,
               .matrix = &matrix,
               .first_panel = 0,
               .num_panels = matrix.num_panels(),
               .out = out.data(),
               .out_stride = stride,
               .scratch = scratch.data()});
  return out;
}

}  // namespace moesaic
