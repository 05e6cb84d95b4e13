#include "src/model/matrix_packer.h"

#include <algorithm>
#include <array>
#include <cassert>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"

namespace moesaic {
namespace {

/// 128 rows: a row of the largest blocks of fp8_block.
constexpr std::int64_t kPanelsTogether = 8;

/// call(part, begin, end) for the rows [begin, end) of each part that lie in rows [first, last) of
/// all parts together.
template <typename Call>
void for_each_part(std::span<const MatrixSource> parts, std::int64_t first, std::int64_t last,
                   const Call& call) {
  std::int64_t start = 0;  // of the part, in the whole matrix
  for (const MatrixSource& part : parts) {
    const std::int64_t begin = std::max(first, start);
    const std::int64_t end = std::min(last, start + part.rows());
    if (begin < end) call(part, begin - start, end - start);
    start += part.rows();
  }
}

/// Reads the rows of a panel into `out`, row-major, 16 of them or what is left; their number.
template <typename Element>
std::int64_t read_panel(std::span<const MatrixSource> parts, std::int64_t panel, Element* out) {
  const std::int64_t cols = parts.front().cols();
  std::int64_t count = 0;
  for_each_part(parts, panel * kPanelColumns, (panel + 1) * kPanelColumns,
                [&](const MatrixSource& part, std::int64_t begin, std::int64_t end) {
                  const std::span<Element> rows(out + count * cols,
                                                static_cast<std::size_t>((end - begin) * cols));
                  part.read_rows(begin, end - begin, rows);
                  count += end - begin;
                });
  return count;
}

template <typename Element>
std::array<const Element*, kPanelColumns> row_starts(const Element* rows, std::int64_t depth) {
  std::array<const Element*, kPanelColumns> starts{};
  for (std::size_t row = 0; row < starts.size(); ++row) {
    starts[row] = rows + static_cast<std::int64_t>(row) * depth;
  }
  return starts;
}

}  // namespace

MatrixPacker::MatrixPacker(const Packing& packing, std::span<const MatrixSource> parts)
    : packing_(packing), parts_(parts) {
  assert(!packing.keeps_codes || packing.layout == parts.front().layout());
  for (const MatrixSource& part : parts) rows_ += part.rows();
}

std::int64_t MatrixPacker::panels_together() const noexcept {
  const bool whole = must_measure() && packing_.layout.format == Format::nvfp4;
  return whole ? num_panels() : kPanelsTogether;
}

void MatrixPacker::measure(std::int64_t first, std::int64_t end, PackScratch& scratch) {
  if (!scales_) scales_.emplace(packing_.layout, rows_, depth());
  scratch.values.resize(static_cast<std::size_t>(kPanelColumns * depth()));
  for (std::int64_t panel = first; panel < end; ++panel) {
    const std::int64_t count = read_panel(parts_, panel, scratch.values.data());
    scales_->add_rows(
        panel * kPanelColumns,
        std::span<const float>(scratch.values).first(static_cast<std::size_t>(count * depth())));
  }
}

void MatrixPacker::pack(std::int64_t first, std::int64_t end, std::byte* out,
                        PackScratch& scratch) const {
  scratch.values.resize(static_cast<std::size_t>(kPanelColumns * depth()));
  const std::int64_t stride = panel_bytes(packing_.layout, depth());
  for (std::int64_t panel = first; panel < end; ++panel, out += stride) {
    if (packing_.layout.format == Format::bf16 || packing_.layout.format == Format::f32) {
      pack_plain(panel, out, scratch);
    } else if (packing_.keeps_codes) {
      pack_codes(panel, out, scratch);
    } else {
      quantize(panel, out, scratch);
    }
  }
}

void MatrixPacker::pack_plain(std::int64_t panel, std::byte* out, PackScratch& scratch) const {
  if (packing_.layout.format == Format::f32) {
    const auto count = static_cast<std::size_t>(read_panel(parts_, panel, scratch.values.data()));
    const auto starts = row_starts<float>(scratch.values.data(), depth());
    f32_format::pack_panel(std::span(starts).first(count), depth(), reinterpret_cast<float*>(out));
    return;
  }
  auto* const rows = reinterpret_cast<BFloat16*>(scratch.values.data());
  const auto count = static_cast<std::size_t>(read_panel(parts_, panel, rows));
  const auto starts = row_starts<BFloat16>(rows, depth());
  bf16_format::pack_panel(std::span(starts).first(count), depth(),
                          reinterpret_cast<BFloat16*>(out));
}

void MatrixPacker::pack_codes(std::int64_t panel, std::byte* out, PackScratch& scratch) const {
  // Stacked codes have no panel with rows of two parts.
  for_each_part(parts_, panel * kPanelColumns, (panel + 1) * kPanelColumns,
                [&](const MatrixSource& part, std::int64_t begin, std::int64_t end) {
                  part.read_quantized(begin, end - begin, scratch.rows);
                });
  pack_panel(packing_.layout, scratch.rows, out);
}

void MatrixPacker::quantize(std::int64_t panel, std::byte* out, PackScratch& scratch) const {
  assert(scales_ || !must_measure());
  const std::int64_t count = read_panel(parts_, panel, scratch.values.data());
  const FloatRows values{
      .values =
          std::span<const float>(scratch.values).first(static_cast<std::size_t>(count * depth())),
      .first_row = panel * kPanelColumns,
      .num_rows = count,
      .depth = depth()};
  quantize_rows(packing_.layout, values, scales_ ? &*scales_ : nullptr, scratch.rows);
  pack_panel(packing_.layout, scratch.rows, out);
}

float MatrixPacker::scale() const noexcept {
  if (packing_.keeps_codes) return parts_.front().scale();
  return scales_ ? scales_->matrix_scale() : 1.0F;
}

std::span<const std::int32_t> MatrixPacker::order() const noexcept {
  return packing_.keeps_codes ? parts_.front().order() : std::span<const std::int32_t>();
}

void MatrixPacker::for_each_source(
    std::int64_t first, std::int64_t end,
    const std::function<void(std::span<const std::byte>)>& call) const {
  for_each_part(parts_, first * kPanelColumns, end * kPanelColumns,
                [&](const MatrixSource& part, std::int64_t from, std::int64_t to) {
                  part.for_each_bytes(from, to - from, call);
                });
}

}  // namespace moesaic
