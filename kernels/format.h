#pragma once

#include <cstdint>
#include <string_view>

namespace moesaic {

/// How a packed weight matrix stores its elements (kernels/formats/<format>.h has the layout).
enum class Format { f32, bf16 };

[[nodiscard]] std::string_view format_name(Format format) noexcept;

/// Columns of the product that one packed panel holds, in every format.
inline constexpr std::int64_t kPanelColumns = 16;
/// K is padded with zeros to a multiple of this in every packed panel: one step of the tile order.
inline constexpr std::int64_t kStepDepth = 32;

[[nodiscard]] constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) noexcept {
  return (value + step - 1) / step * step;
}
/// Panels that `columns` columns take.
[[nodiscard]] constexpr std::int64_t panel_count(std::int64_t columns) noexcept {
  return (columns + kPanelColumns - 1) / kPanelColumns;
}

}  // namespace moesaic
