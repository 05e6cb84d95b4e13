#include "src/checkpoint/codecs/matrix_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cmath>

#include "base/rounding.h"
#include "kernels/formats/elements.h"
#include "kernels/weight_format.h"

namespace moesaic {
namespace {

/// Zero points are taken off later.
std::array<float, 256> element_table(Format format) {
  std::array<float, 256> table{};
  for (std::size_t code = 0; code < table.size(); ++code) {
    table[code] = code_value(format, static_cast<std::uint8_t>(code));
  }
  return table;
}

}  // namespace

MatrixCodec::MatrixCodec(const StoredMatrix& matrix, const Layout& layout,
                         const StoredTensor& scales)
    : layout_(layout),
      rows_(matrix.rows()),
      cols_(matrix.cols()),
      group_(scale_group(layout, matrix.cols())),
      num_groups_(divide_up(cols_, group_)),
      scales_(scales) {}

void MatrixCodec::read_quantized(const RowRange& rows, QuantizedRows& out) const {
  assert(rows.first >= 0 && rows.count >= 0 && rows.step >= 1 && rows.end() <= rows_);
  const auto groups = static_cast<std::size_t>(rows.count * num_groups_);
  const bool codes = has_scale_codes(layout_.format);
  out.num_rows = rows.count;
  out.depth = cols_;
  out.num_groups = num_groups_;
  out.codes.resize(static_cast<std::size_t>(rows.count * cols_));
  out.scales.resize(codes ? 0 : groups);
  out.scale_codes.resize(codes ? groups : 0);
  out.zeros.assign(layout_.format == Format::int4_group ? groups : 0, 8);
  fill(rows, out);
  check_scales(rows, out);
  if (!order_.empty()) sort_codes(out);
}

void MatrixCodec::sort_codes(QuantizedRows& rows) const {
  std::vector<std::uint8_t> unsorted(static_cast<std::size_t>(cols_));
  for (std::int64_t row = 0; row < rows.num_rows; ++row) {
    std::uint8_t* codes = rows.codes.data() + row * cols_;
    std::copy_n(codes, cols_, unsorted.begin());
    for (const std::int32_t k : order_) *codes++ = unsorted[static_cast<std::size_t>(k)];
  }
}

void MatrixCodec::check_scales(const RowRange& rows, const QuantizedRows& quantized) const {
  for (std::int64_t row = 0; row < rows.count; ++row) {
    for (std::int64_t group = 0; group < num_groups_; ++group) {
      const float scale = group_scale(quantized, quantized.group_index(row, group));
      if (std::isfinite(scale)) continue;
      scales_.refuse(fmt::format("gives row {} the scale {} from k {} on", rows.at(row), scale,
                                 group * group_));
    }
  }
}

float MatrixCodec::group_scale(const QuantizedRows& quantized, std::size_t index) const {
  switch (layout_.format) {
    case Format::nvfp4:
      return scale_.apply(e4m3_to_float(quantized.scale_codes[index]));
    case Format::mxfp4:
    case Format::mxfp8:
      return e8m0_to_float(quantized.scale_codes[index]);
    default:
      return quantized.scales[index];
  }
}

void MatrixCodec::read_floats(const RowRange& rows, std::span<float> out) const {
  assert(std::ssize(out) == rows.count * cols_);
  QuantizedRows quantized;
  read_quantized(rows, quantized);
  const std::array<float, 256> elements = element_table(layout_.format);
  for (std::int64_t row = 0; row < rows.count; ++row) {
    const std::uint8_t* const codes = quantized.row_codes(row);
    float* const values = out.data() + row * cols_;
    for (std::int64_t group = 0; group < num_groups_; ++group) {
      const std::size_t index = quantized.group_index(row, group);
      const float scale = group_scale(quantized, index);
      const float zero =
          quantized.zeros.empty() ? 0.0F : static_cast<float>(quantized.zeros[index]);
      const std::int64_t end = std::min(cols_, (group + 1) * group_);
      for (std::int64_t k = group * group_; k < end; ++k) {
        values[k] = (elements[codes[k]] - zero) * scale;
      }
    }
    if (!order_.empty()) unsort_values(std::span(values, static_cast<std::size_t>(cols_)));
  }
}

void MatrixCodec::unsort_values(std::span<float> row) const {
  const std::vector<float> sorted(row.begin(), row.end());
  for (std::size_t place = 0; place < sorted.size(); ++place) {
    row[static_cast<std::size_t>(order_[place])] = sorted[place];
  }
}

}  // namespace moesaic
