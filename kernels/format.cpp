#include "kernels/format.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>

#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"
#include "kernels/formats/fp8_block.h"
#include "kernels/formats/fp8_channel.h"
#include "kernels/formats/int4.h"
#include "kernels/formats/int4_group.h"
#include "kernels/formats/int8.h"
#include "kernels/formats/mxfp4.h"
#include "kernels/formats/mxfp8.h"
#include "kernels/formats/nvfp4.h"
#include "kernels/packed_matrix.h"

namespace moesaic {
namespace {

constexpr std::array<std::string_view, kNumFormats> kNames = {
    "f32",       "bf16",        "int8",  "int4",  "int4_group",
    "fp8_block", "fp8_channel", "nvfp4", "mxfp4", "mxfp8"};
static_assert(kNames[static_cast<std::size_t>(Format::mxfp8)] == "mxfp8");

}  // namespace

std::string_view format_name(Format format) noexcept {
  return kNames[static_cast<std::size_t>(format)];
}

std::optional<Format> format_from_name(std::string_view name) noexcept {
  const auto* const found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<Format>(found - kNames.begin());
}

bool layout_exists(const Layout& layout) noexcept {
  const auto has_group_of = [&](std::initializer_list<std::int32_t> groups) {
    return std::ranges::find(groups, layout.group) != groups.end();
  };
  if (layout.format == Format::int4_group) return has_group_of({32, 64, 128});
  if (layout.wide_scales) return false;
  return layout.format == Format::fp8_block ? has_group_of({32, 128}) : layout.group == 0;
}

std::int64_t panel_bytes(const Layout& layout, std::int64_t depth) noexcept {
  switch (layout.format) {
    case Format::f32:
      return f32_format::panel_bytes(depth);
    case Format::bf16:
      return bf16_format::panel_bytes(depth);
    case Format::int8:
      return int8_format::panel_bytes(depth);
    case Format::int4:
      return int4_format::panel_bytes(depth);
    case Format::int4_group:
      return int4_group_format::panel_bytes(layout, depth);
    case Format::fp8_block:
      return fp8_block_format::panel_bytes(layout, depth);
    case Format::fp8_channel:
      return fp8_channel_format::panel_bytes(depth);
    case Format::nvfp4:
      return nvfp4_format::panel_bytes(depth);
    case Format::mxfp4:
      return mxfp4_format::panel_bytes(depth);
    case Format::mxfp8:
      return mxfp8_format::panel_bytes(depth);
  }
  return 0;
}

}  // namespace moesaic
