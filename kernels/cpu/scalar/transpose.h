#pragma once

#include <algorithm>
#include <cstring>

#include "base/dtype.h"
#include "kernels/cpu/transpose_loops.h"

// Transposition in plain C++ (what each function does: kernels/cpu/transpose_loops.h).

namespace moesaic {
namespace {
namespace scalar {

inline void bf16_step(const std::byte* lines, std::byte* low, std::byte* high) noexcept {
  const auto* from = reinterpret_cast<const BFloat16*>(lines);
  for (std::int64_t column = 0; column < kPanelColumns; ++column) {
    for (std::int64_t k = 0; k < kStepDepth; ++k) {
      auto* to = reinterpret_cast<BFloat16*>(k < kPanelColumns ? low : high);
      to[column / 2 * 32 + k % kPanelColumns * 2 + column % 2] =
          from[k / 2 * 32 + column * 2 + k % 2];
    }
  }
}

inline void widen_int8(const std::byte* tile, std::byte* steps) noexcept {
  auto* words = reinterpret_cast<BFloat16*>(steps);
  for (std::int64_t i = 0; i < kTileBytes; ++i) {
    const std::int64_t column = i / 4 % 16;
    const std::int64_t k = i / 64 * 4 + i % 4;
    words[k / 2 * 32 + column * 2 + k % 2] =
        to_bfloat16(static_cast<float>(static_cast<std::int8_t>(tile[i])));
  }
}

inline void f32_lines(const std::byte* lines, std::byte* out, std::int64_t out_stride) noexcept {
  for (std::int64_t row = 0; row < 16; ++row) {
    for (std::int64_t column = 0; column < 16; ++column) {
      std::memcpy(out + column * out_stride + row * 4, lines + row * 64 + column * 4, 4);
    }
  }
}

inline float element_at(const RowSource& source, std::int64_t row, std::int64_t column) {
  if (row >= source.num_rows || column >= source.depth) return 0;
  const std::byte* const from = source.rows[row];
  return source.element == RowSource::Element::f32
             ? reinterpret_cast<const float*>(from)[column]
             : to_float(reinterpret_cast<const BFloat16*>(from)[column]);
}

inline void load_block(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept {
  auto* out = reinterpret_cast<float*>(lines);
  for (std::int64_t i = 0; i < 256; ++i) {
    out[i] = element_at(source, at.row + i / 16, at.column + i % 16);
  }
}

inline void bf16_block(const RowSource& source, const BlockStart& at, std::byte* lines) noexcept {
  auto* out = reinterpret_cast<BFloat16*>(lines);
  for (std::int64_t i = 0; i < 512; ++i) {
    const std::int64_t row = at.row + i / 32 * 2 + i % 2;
    out[i] = to_bfloat16(element_at(source, row, at.column + i % 32 / 2));
  }
}

inline void bf16_blocks(const RowSource& source, const BlockStart& at, std::byte* low,
                        std::byte* high) noexcept {
  bf16_block(source, at, low);
  if (high != nullptr) bf16_block(source, {at.row, at.column + kPanelColumns}, high);
}

inline void stream_rows(const MatrixView<const float>& from, float* to,
                        std::int64_t to_stride) noexcept {
  for (std::int64_t row = 0; row < from.rows(); ++row, to += to_stride) {
    std::copy_n(from.data() + row * from.stride(), from.cols(), to);
  }
}

inline void scale_row(const RowSource& source, std::int64_t row, const float* scales,
                      float* out) noexcept {
  for (std::int64_t i = 0; i < source.depth; ++i) out[i] = element_at(source, row, i) * scales[i];
}

}  // namespace scalar
}  // namespace
}  // namespace moesaic
