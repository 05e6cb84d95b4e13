#include "kernels/transposed_panels.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/dtype.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"

namespace moesaic {
namespace {

std::uint64_t load_word(const std::byte* from) {
  std::uint64_t value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// Two columns of two k each, [n][k], as [k][n].
std::uint64_t transpose_pair(std::uint64_t pair) {
  return (pair & 0xffff00000000ffffU) | (pair & 0xffff0000U) << 16 | (pair >> 16 & 0xffff0000U);
}

/// Eight lines of a bf16 panel, 16 columns by 16 k, as the eight lines of the transposed one.
void transpose_half_tile(const std::byte* lines, std::byte* out) {
  for (std::size_t line = 0; line < 8; ++line) {
    for (std::size_t pair = 0; pair < 8; ++pair) {
      const std::uint64_t turned = transpose_pair(load_word(lines + line * 64 + pair * 8));
      std::memcpy(out + pair * 64 + line * 8, &turned, sizeof turned);
    }
  }
}

/// bf16 of every int8 code, exact.
std::array<BFloat16, 256> make_integer_table() {
  std::array<BFloat16, 256> table{};
  for (int code = -128; code < 128; ++code) {
    table[static_cast<std::uint8_t>(code)] = to_bfloat16(static_cast<float>(code));
  }
  return table;
}

/// Eight lines of an int8 panel, 32 k, as the 16 lines of a bf16 one.
void widen(const std::byte* lines, std::byte* out) {
  static const std::array<BFloat16, 256> table = make_integer_table();
  auto* words = reinterpret_cast<BFloat16*>(out);
  for (std::int64_t i = 0; i < 8 * 64; ++i) {
    const std::int64_t column = i / 4 % 16;
    const std::int64_t k = i / 64 * 4 + i % 4;
    words[bf16_format::element_index(column, k)] = table[static_cast<std::uint8_t>(lines[i])];
  }
}

/// 32 k of one panel as bf16 lines.
void decode_lines(const GemmKernel& kernel, const StepRange& at, std::byte* out) {
  if (!is_integer(kernel.format)) {
    kernel.decode(at, out);
    return;
  }
  alignas(64) std::byte tile[kTileBytes];
  kernel.decode({at.matrix, at.panel, at.first / 2, 1}, tile);
  widen(tile + at.first % 2 * (kTileBytes / 2), out);
}

void transpose_floats(const PackedMatrix& matrix, std::int64_t step, std::byte* out) {
  const std::int64_t panel_bytes = transposed_panel_bytes(matrix);
  std::memset(out, 0, static_cast<std::size_t>(2 * panel_bytes));  // padding
  for (std::int64_t p = 0; p < matrix.num_panels(); ++p) {
    const auto* from =
        reinterpret_cast<const float*>(matrix.panel(p)) + step * kTransposedDepth * kPanelColumns;
    for (std::int64_t k = 0; k < kTransposedDepth; ++k) {
      auto* to = reinterpret_cast<float*>(out + k / kPanelColumns * panel_bytes) +
                 p * kPanelColumns * kPanelColumns + k % kPanelColumns;
      for (std::int64_t n = 0; n < kPanelColumns; ++n) {
        to[n * kPanelColumns] = from[k * kPanelColumns + n];
      }
    }
  }
}

}  // namespace

std::int64_t transposed_panel_bytes(const PackedMatrix& matrix) noexcept {
  return matrix.layout.format == Format::f32 ? f32_format::panel_bytes(matrix.rows)
                                             : bf16_format::panel_bytes(matrix.rows);
}

void transpose_step(const GemmKernel& kernel, const PackedMatrix& matrix, std::int64_t step,
                    std::byte* out) {
  const std::int64_t panel_bytes = transposed_panel_bytes(matrix);
  if (matrix.layout.format == Format::f32) {
    transpose_floats(matrix, step, out);
    return;
  }
  alignas(64) std::byte lines[kTileBytes];
  for (std::int64_t p = 0; p < matrix.num_panels(); ++p) {
    decode_lines(kernel, {&matrix, p, step, 1}, lines);
    std::byte* const to = out + p * (kPanelColumns / 2) * 64;
    transpose_half_tile(lines, to);
    transpose_half_tile(lines + kTileBytes / 2, to + panel_bytes);
  }
  if (matrix.num_panels() % 2 == 1) {  // half a step of padding
    std::byte* const to = out + panel_bytes - kTileBytes / 2;
    std::memset(to, 0, kTileBytes / 2);
    std::memset(to + panel_bytes, 0, kTileBytes / 2);
  }
}

}  // namespace moesaic
