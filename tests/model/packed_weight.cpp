#include "tests/model/packed_weight.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/dtype.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/f32.h"

namespace moesaic {

Doubles exact_numbers(std::int64_t count, unsigned seed, double scale) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> distribution(0, scale);
  Doubles out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(to_float(to_bfloat16(static_cast<float>(distribution(generator)))));
  }
  return out;
}

std::vector<float> as_floats(const Doubles& values) {
  return {values.begin(), values.end()};
}

PackedWeight pack_weight(const Doubles& values, std::int64_t depth, Precision precision) {
  const Format format = weight_format(precision);
  PackedWeight packed{
      .matrix = {.layout = {.format = format}, .rows = std::ssize(values) / depth, .depth = depth},
      .memory = {}};
  packed.memory = Buffer<std::byte>(packed.matrix.bytes());
  packed.matrix.panels = packed.memory.data();
  const std::vector<float> floats = as_floats(values);
  std::vector<BFloat16> halves;
  for (const float x : floats) halves.push_back(to_bfloat16(x));
  for (std::int64_t panel = 0; panel < packed.matrix.num_panels(); ++panel) {
    std::vector<const float*> rows;
    std::vector<const BFloat16*> half_rows;
    for (std::int64_t row = panel * 16; row < std::min(packed.matrix.rows, panel * 16 + 16);
         ++row) {
      rows.push_back(floats.data() + row * depth);
      half_rows.push_back(halves.data() + row * depth);
    }
    std::byte* const to = packed.memory.data() + panel * packed.matrix.panel_stride();
    if (format == Format::f32) {
      f32_format::pack_panel(rows, depth, reinterpret_cast<float*>(to));
    } else {
      bf16_format::pack_panel(half_rows, depth, reinterpret_cast<BFloat16*>(to));
    }
  }
  return packed;
}

double relative_distance(const std::vector<float>& a, const Doubles& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(difference / size);
}

}  // namespace moesaic
