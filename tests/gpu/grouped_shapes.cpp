#include "tests/gpu/grouped_shapes.h"

namespace moesaic {

std::vector<DeviceCase::Shape> grouped_shapes(float input_scale) {
  const auto shape = [&](std::int64_t hidden, std::int64_t width, std::vector<std::int64_t> rows) {
    return DeviceCase::Shape{.layout = {.format = Format::nvfp4},
                             .hidden = hidden,
                             .width = width,
                             .rows = std::move(rows),
                             .activations = Nvfp4Activations::nvfp4,
                             .input_scale = input_scale};
  };
  std::vector<DeviceCase::Shape> all = {shape(128, 128, {0, 1, 127, 128, 129, 0, 17}),
                                        shape(256, 128, {2, 0, 35}), shape(128, 384, {1}),
                                        shape(128, 128, {0, 260})};
  all[1].gating = {.limit = 10};
  all[2].gating = {.limit = 7, .alpha = 1.702F, .offset = 1};
  return all;
}

}  // namespace moesaic
