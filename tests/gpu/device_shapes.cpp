#include <string>
#include <utility>
#include <vector>

#include "tests/gpu/device_case.h"

namespace moesaic {

std::vector<Layout> device_layouts() {
  return {{.format = Format::nvfp4},
          {.format = Format::mxfp4},
          {.format = Format::bf16},
          {.format = Format::fp8_block, .group = 32},
          {.format = Format::fp8_block, .group = 128},
          {.format = Format::int4_group, .group = 32},
          {.format = Format::int4_group, .group = 64, .wide_scales = true},
          {.format = Format::int4_group, .group = 128}};
}

std::string layout_text(const Layout& layout) {
  std::string text(format_name(layout.format));
  if (layout.group != 0) text += std::to_string(layout.group);
  return text + (layout.wide_scales ? "wide" : "");
}

std::vector<DeviceCase::Shape> device_shapes(const Layout& layout, Nvfp4Activations activations,
                                             float input_scale) {
  const float x_scale = layout.format == Format::mxfp4 ? 0x1p-100F : 1;  // for the largest scales
  const auto shape = [&](std::int64_t hidden, std::int64_t width, std::vector<std::int64_t> rows) {
    return DeviceCase::Shape{.layout = layout,
                             .hidden = hidden,
                             .width = width,
                             .rows = std::move(rows),
                             .activations = activations,
                             .input_scale = input_scale};
  };
  std::vector<DeviceCase::Shape> all = {shape(80, 48, {0, 1, 7, 8, 9, 17, 33, 129}),
                                        shape(1096, 16, {2, 0, 35}),
                                        shape(32, 136, {1}),
                                        shape(64, 24, {3}),
                                        shape(40, 24, {0, 300, 4}),
                                        shape(72, 24, {9, 40}),
                                        shape(72, 24, {20}),
                                        shape(232, 136, {9, 65})};  // several stages and sums
  all[1].gating = {.limit = 10};
  all[2].gating = {.limit = 7, .alpha = 1.702F, .offset = 1};
  all[3].x_scale = x_scale;
  all[5].gating = {.limit = 10};
  all[6].gating = {.limit = 7, .alpha = 1.702F, .offset = 1};
  for (std::size_t i = 4; i < 7; ++i) {
    all[i].has_not_finite = true;
    all[i].is_poisoned = true;
  }
  return all;
}

}  // namespace moesaic
