#include "kernels/transposed_panels.h"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/prefetch.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/weight_format.h"

namespace moesaic {
namespace {

/// Bytes of the codes of one step of 32 k, which every format has side by side from the start of a
/// panel on.
std::int64_t step_bytes(Format format) {
  switch (format) {
    case Format::f32:
      return 2 * kTileBytes;
    case Format::bf16:
      return kTileBytes;
    case Format::int8:
    case Format::fp8_block:
    case Format::fp8_channel:
    case Format::mxfp8:
      return kTileBytes / 2;
    case Format::int4:
    case Format::int4_group:
    case Format::nvfp4:
    case Format::mxfp4:
      return kTileBytes / 4;
  }
  return 0;
}

/// Lines of some steps of a panel as bf16: in `lines` or where they lie.
const std::byte* bf16_lines(const PanelTurner& turner, const StepRange& at, std::byte* lines) {
  const Format format = at.matrix->layout.format;
  if (format == Format::bf16) return at.matrix->panel(at.panel) + at.first * kTileBytes;
  if (!is_integer(format)) {
    turner.kernel->decode(at, lines);
    return lines;
  }
  alignas(64) std::byte codes[kTransposedSteps / 2 * kTileBytes];
  const std::int64_t tiles = (at.first % 2 + at.count + 1) / 2;
  turner.kernel->decode({at.matrix, at.panel, at.first / 2, tiles}, codes);
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    turner.loops->widen_int8(codes + tile * kTileBytes, lines + 2 * tile * kTileBytes);
  }
  return lines + at.first % 2 * kTileBytes;
}

/// 16 columns of some steps: 8 lines (bf16) or 16 (f32) of each panel of `out`.
void transpose_panel(const PanelTurner& turner, const StepRange& at, std::byte* out) {
  const std::int64_t stride = transposed_panel_bytes(*at.matrix);
  if (at.matrix->layout.format == Format::f32) {
    const std::byte* from = at.matrix->panel(at.panel) + at.first * 2 * kTileBytes;
    for (std::int64_t half = 0; half < 2 * at.count; ++half, from += kTileBytes) {
      turner.loops->f32_lines(from, out + half * stride + at.panel * kTileBytes, 64);
    }
    return;
  }
  alignas(64) std::byte scratch[kTransposedSteps * kTileBytes];
  const std::byte* from = bf16_lines(turner, at, scratch);
  out += at.panel * (kTileBytes / 2);
  for (std::int64_t step = 0; step < at.count; ++step, from += kTileBytes, out += 2 * stride) {
    turner.loops->bf16_step(from, out, out + stride);
  }
}

}  // namespace

std::int64_t transposed_panel_bytes(const PackedMatrix& matrix) noexcept {
  return matrix.layout.format == Format::f32 ? f32_format::panel_bytes(matrix.rows)
                                             : bf16_format::panel_bytes(matrix.rows);
}

void transpose_steps(const PanelTurner& turner, const PackedMatrix& matrix, std::int64_t first,
                     std::int64_t count, std::byte* out) noexcept {
  assert(first % 2 + count <= kTransposedSteps);
  constexpr std::int64_t kAhead = 2;  // panels
  const std::int64_t stride = transposed_panel_bytes(matrix);
  const std::int64_t bytes = step_bytes(matrix.layout.format);
  const std::int64_t panels = matrix.num_panels();
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    prefetch_lines(matrix.panel(std::min(panel + kAhead, panels - 1)) + first * bytes,
                   count * bytes / 64);
    transpose_panel(turner, {&matrix, panel, first, count}, out);
  }
  if (panels % 2 == 0) return;
  const std::int64_t padding = matrix.layout.format == Format::f32 ? kTileBytes : kTileBytes / 2;
  for (std::int64_t half = 1; half <= 2 * count; ++half) {  // of the last step
    std::memset(out + half * stride - padding, 0, static_cast<std::size_t>(padding));
  }
}

bool has_row_scales(const PackedMatrix& matrix) noexcept {
  return is_integer(matrix.layout.format) || matrix.layout.format == Format::fp8_channel ||
         matrix.scale != 1;
}

void load_row_scales(const PackedMatrix& matrix, float* out) noexcept {
  for (std::int64_t row = 0; row < matrix.rows; ++row) out[row] = column_scale(matrix, row);
}

}  // namespace moesaic
