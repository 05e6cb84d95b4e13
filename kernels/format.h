#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/rounding.h"

namespace moesaic {

/// How a packed weight matrix stores its elements (kernels/formats/<format>.h has the layout).
enum class Format {
  f32,
  bf16,
  int8,         // one scale a row; int8 activations, one scale a token
  int4,         // as int8
  int4_group,   // 4-bit integers, a scale (and a zero point) for 32, 64 or 128 k of a row
  fp8_block,    // e4m3, a scale for a block of 128 x 128 or 32 x 32
  fp8_channel,  // e4m3, one scale a row
  nvfp4,        // e2m1, an e4m3 scale for 16 k of a row, one f32 scale for all
  mxfp4,        // e2m1, an e8m0 scale for 32 k of a row
  mxfp8,        // e4m3, an e8m0 scale for 32 k of a row
};

inline constexpr int kNumFormats = 10;

[[nodiscard]] std::string_view format_name(Format format) noexcept;
[[nodiscard]] std::optional<Format> format_from_name(std::string_view name) noexcept;

/// A format with what it leaves open. One layout is read by the kernels of every instruction set.
struct Layout {
  Format format = Format::bf16;
  /// k that share a scale: 32, 64 or 128 for int4_group, 32 or 128 (rows too) for fp8_block; 0
  /// elsewhere.
  std::int32_t group = 0;
  /// int4_group: scales with 16 significant bits and a zero point, instead of bf16 scales and 8.
  bool wide_scales = false;

  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Whether its format has such groups and scales.
[[nodiscard]] bool layout_exists(const Layout& layout) noexcept;

/// Columns of the product that one packed panel holds, in every format.
inline constexpr std::int64_t kPanelColumns = 16;
/// K is padded with zeros to a multiple of this in every packed panel of f32 and of formats whose
/// elements become bf16: one step of the tile order.
inline constexpr std::int64_t kStepDepth = 32;
/// The same for int8 and int4, whose elements become int8: one tile of AMX, 64 bytes deep.
inline constexpr std::int64_t kIntStepDepth = 64;
/// Bytes of one step of 16 columns in bf16, and of one in int8: an AMX tile of 16 lines of 64.
inline constexpr std::int64_t kTileBytes = 1024;

/// Whether products are exact sums of int8 products.
[[nodiscard]] constexpr bool is_integer(Format format) noexcept {
  return format == Format::int8 || format == Format::int4;
}
/// Whether products can have int8 activations with a scale for each token and group.
[[nodiscard]] constexpr bool allows_int8_groups(const Layout& layout) noexcept {
  return layout.format == Format::int4_group && layout.group == 128;
}
[[nodiscard]] constexpr std::int64_t step_depth(Format format) noexcept {
  return is_integer(format) ? kIntStepDepth : kStepDepth;
}

/// Steps of a matrix with `depth` columns (k).
[[nodiscard]] constexpr std::int64_t step_count(Format format, std::int64_t depth) noexcept {
  return divide_up(depth, step_depth(format));
}
/// Panels that `columns` columns take.
[[nodiscard]] constexpr std::int64_t panel_count(std::int64_t columns) noexcept {
  return divide_up(columns, kPanelColumns);
}

}  // namespace moesaic
