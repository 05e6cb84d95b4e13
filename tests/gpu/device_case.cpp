#include "tests/gpu/device_case.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/json.h"
#include "base/rounding.h"
#include "base/thread_pool.h"
#include "kernels/formats/bf16.h"
#include "kernels/formats/elements.h"
#include "kernels/formats/nvfp4.h"
#include "kernels/grouped_gemm.h"
#include "kernels/weight_format.h"
#include "tests/gpu/ptx_machine/tensor_core.h"
#include "tests/kernels/format_case.h"

namespace moesaic {
namespace {

constexpr double kSeconds = 300;
/// Of the rows whose gated activations, and products with them, are about the smallest numbers.
constexpr float kTiny = 0x1p-66F;

float draw_number(std::mt19937_64& random, float scale) {
  std::normal_distribution<float> normal;
  const auto kind = random() % 64;
  if (kind == 0) return 0;
  if (kind == 1) return -1e-39F;  // subnormal
  return normal(random) * (kind == 2 ? 100.0F : 1.0F) * scale;
}

/// Scales of int4_group and fp8_block: of either sign, some next to the smallest; zero points.
void draw_scales(const Layout& layout, std::mt19937_64& random, QuantizedRows& rows) {
  const bool is_int4 = layout.format == Format::int4_group;
  const std::uint32_t kept = !is_int4 ? ~0U : layout.wide_scales ? 0xffffff00U : 0xffff0000U;
  std::uniform_real_distribution<float> exponent(-9, -2);
  for (std::size_t i = 0; i < rows.scales.size(); ++i) {
    const float least = random() % 32 == 0 ? -120.0F : 0.0F;
    const float sign = random() % 4 == 0 ? -1.0F : 1.0F;
    const float scale = sign * std::exp2(exponent(random) + least);
    rows.scales[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(scale) & kept);
    if (!is_int4) rows.scales[i] = rows.scales[i % static_cast<std::size_t>(rows.num_groups)];
    if (layout.wide_scales) rows.zeros[i] = static_cast<std::uint8_t>(random() % 16);
  }
}

/// Every code; scales so that sums stay numbers, but for large ones with small x.
QuantizedRows draw_rows(const Layout& layout, std::int64_t rows, std::int64_t depth,
                        std::mt19937_64& random, float x_scale) {
  QuantizedRows drawn = plain_rows(layout, rows, depth);
  const bool is_e4m3 = layout.format == Format::fp8_block;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < depth; ++k) {
      auto code = static_cast<std::uint8_t>(random() % (is_e4m3 ? 256 : 16));
      if (is_e4m3 && is_e4m3_nan(code)) code ^= 1;
      code_at(drawn, row, k) = code;
    }
  }
  draw_scales(layout, random, drawn);
  for (auto& scale : drawn.scale_codes) {
    if (layout.format == Format::nvfp4) {
      scale = static_cast<std::uint8_t>(random() % 127);
    } else {
      scale = static_cast<std::uint8_t>(x_scale < 1 ? 120 + random() % 110 : random() % 131);
    }
  }
  return drawn;
}

/// The columns beyond the matrix.
void poison_bf16(OwnedMatrix& owned) {
  const PackedMatrix& matrix = owned.matrix;
  for (std::int64_t column = matrix.rows; column < matrix.num_panels() * kPanelColumns; ++column) {
    std::byte* const panel = owned.panels.data() + column / kPanelColumns * matrix.panel_stride();
    for (std::int64_t k = 0; k < matrix.depth; ++k) {
      const std::uint16_t nan = 0x7fc0;
      std::memcpy(panel + 2 * bf16_format::element_index(column % kPanelColumns, k), &nan, 2);
    }
  }
}

/// The sum of one column: four sums, each of a quarter of the steps, in pairs, two mma a step.
float mma_column(const PackedMatrix& matrix, std::int64_t column, const BFloat16* x, int chip) {
  float sums[4] = {};
  const std::int64_t steps = step_count(matrix.layout.format, matrix.depth);
  for (std::int64_t step = 0; step < steps; ++step) {
    BFloat16 lines[512];
    decode_step(matrix, column / kPanelColumns, step, lines);
    for (std::int64_t half = 0; half < 2; ++half) {
      std::uint16_t w[16];
      std::uint16_t v[16];
      for (std::int64_t slot = 0; slot < 16; ++slot) {
        const std::int64_t k = slot % 8 / 2 * 8 + half * 4 + slot / 8 * 2 + slot % 2;
        w[slot] = lines[bf16_format::element_index(column % kPanelColumns, k)].bits;
        v[slot] = step * 32 + k < matrix.depth ? x[step * 32 + k].bits : std::uint16_t{0};
      }
      float& sum = sums[step / (2 * divide_up(steps, 8))];
      sum = ptx::mma_sum(ptx::family_of(chip), w, v, sum);
    }
  }
  return (((0.0F + sums[0]) + sums[1]) + sums[2]) + sums[3];
}

std::vector<float> mma_row(const PackedMatrix& matrix, const BFloat16* x, int chip) {
  std::vector<float> y;
  for (std::int64_t column = 0; column < matrix.rows; ++column) {
    y.push_back(mma_column(matrix, column, x, chip) * matrix.scale);
  }
  return y;
}

constexpr std::int64_t kScaledStep = 64;

/// One column of nvfp4 weights in the form of quantize_row().
Nvfp4Row column_of(const PackedMatrix& matrix, std::int64_t column) {
  const std::byte* const panel = matrix.panel(column / kPanelColumns);
  const std::byte* const scales = panel + nvfp4_format::scales_offset(matrix.depth);
  const std::int64_t steps = step_count(Format::nvfp4, matrix.depth);
  Nvfp4Row taken;
  for (std::int64_t k = 0; k < round_up(matrix.depth, kScaledStep); ++k) {
    const std::int64_t step = k / kStepDepth;
    const bool is_there = step < steps;
    const float value = !is_there ? 0
                                  : e2m1_body::element(panel + step * e2m1_body::kStepBytes,
                                                       column % kPanelColumns, k % kStepDepth);
    taken.codes.push_back(nearest_e2m1(value));
    if (k % nvfp4_format::kGroup != 0) continue;
    const std::int64_t group = k / nvfp4_format::kGroup;
    taken.scales.push_back(!is_there ? std::uint8_t{0}
                                     : std::to_integer<std::uint8_t>(
                                           scales[group * kPanelColumns + column % kPanelColumns]));
  }
  return taken;
}

/// The sum of one column: so many warps, each with every so-many-th step of 64 k.
float scaled_column(const Nvfp4Row& weights, const Nvfp4Row& x, std::size_t warps) {
  float splits[4] = {};
  const auto operand = [](const Nvfp4Row& row, std::size_t step) {
    ptx::ScaledMatrix<1> taken;
    std::copy_n(row.codes.data() + step * 64, 64, taken.codes[0]);
    std::copy_n(row.scales.data() + step * 4, 4, taken.scales[0]);
    return taken;
  };
  for (std::size_t step = 0; step < x.codes.size() / 64; ++step) {
    float& sum = splits[step % warps];
    sum = ptx::scaled_sum(operand(weights, step), operand(x, step), sum);
  }
  return ((splits[0] + splits[1]) + splits[2]) + splits[3];
}

std::vector<float> scaled_row(const PackedMatrix& matrix, std::span<const BFloat16> x, int chip) {
  const Nvfp4Row row = quantize_row(x, matrix.input_scale);
  std::vector<float> y;
  for (std::int64_t column = 0; column < matrix.rows; ++column) {
    const float sum = scaled_column(column_of(matrix, column), row, chip < 120 ? 1 : 4);
    y.push_back(sum * matrix.scale * row.power);
  }
  return y;
}

template <typename T>
DeviceBuffer upload(Device& device, std::span<const T> from) {
  DeviceBuffer buffer = device.allocate(static_cast<std::int64_t>(from.size_bytes()));
  device.upload(buffer.address(), from.data(), buffer.bytes());
  return buffer;
}

}  // namespace

DeviceCase::DeviceCase(const Shape& wanted) : shape(wanted) {
  std::mt19937_64 random(17);
  const auto num_inputs =
      std::max<std::int64_t>(1, std::ranges::max(shape.rows));  // so that rows are shared
  for (std::int64_t i = 0; i < num_inputs * shape.hidden; ++i) {
    const float scale = i / shape.hidden % 4 == 3 ? kTiny : 1;
    x.push_back(to_bfloat16(draw_number(random, shape.x_scale * scale)));
  }
  if (shape.activations == Nvfp4Activations::nvfp4) make_special_rows();
  if (shape.has_not_finite) make_rows_not_finite();
  for (std::size_t mlp = 0; mlp < shape.rows.size(); ++mlp) {
    mlps.push_back({.gate = make_matrix(shape.width, shape.hidden, 3 * mlp),
                    .up = make_matrix(shape.width, shape.hidden, 3 * mlp + 1),
                    .down = make_matrix(shape.hidden, shape.width, 3 * mlp + 2)});
    for (std::int64_t row = 0; row < shape.rows[mlp]; ++row) {
      row_indices.push_back(
          static_cast<std::int32_t>(random() % static_cast<std::uint64_t>(num_inputs)));
    }
    num_rows += shape.rows[mlp];
  }
}

/// Rows that rounding to nvfp4 treats in ways of their own: zeros, what counts as zeros, a value
/// that is not finite, groups that are far apart.
void DeviceCase::make_special_rows() {
  const auto row = [&](std::int64_t index) {
    const std::int64_t inputs = std::ssize(x) / shape.hidden;
    return std::span(x).subspan(static_cast<std::size_t>(index % inputs * shape.hidden),
                                static_cast<std::size_t>(shape.hidden));
  };
  if (std::ssize(x) / shape.hidden < 8) return;
  std::ranges::fill(row(4), to_bfloat16(-0.0F));
  for (BFloat16& value : row(5)) value = to_bfloat16(to_float(value) * 0x1p-110F);
  row(6)[9] = to_bfloat16(std::numeric_limits<float>::infinity());
  row(8)[17] = to_bfloat16(0x1p20F);
}

/// Beside rows of numbers, so that who reads too far gets what is none.
void DeviceCase::make_rows_not_finite() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::int64_t inputs = std::ssize(x) / shape.hidden;
  const auto at = [&](std::int64_t row, std::int64_t k) -> BFloat16& {
    return x[static_cast<std::size_t>(row % inputs * shape.hidden + k)];
  };
  at(1, 0) = to_bfloat16(std::numeric_limits<float>::quiet_NaN());
  at(3, shape.hidden - 1) = to_bfloat16(kInfinity);
  at(7, 5) = to_bfloat16(-kInfinity);
  at(9, 0) = to_bfloat16(kInfinity);
  at(9, 1) = to_bfloat16(-kInfinity);
}

PackedMatrix DeviceCase::make_matrix(std::int64_t rows, std::int64_t depth, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  if (shape.layout.format == Format::bf16) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < rows * depth; ++i) values.push_back(draw_number(random, 0.1F));
    memory_.push_back(pack_matrix(shape.layout, values, rows, depth));
    if (shape.is_poisoned) poison_bf16(memory_.back());
    return memory_.back().matrix;
  }
  PackedMatrix matrix{.layout = shape.layout, .rows = rows, .depth = depth};
  memory_.push_back({Buffer<std::byte>(matrix.bytes()), matrix});
  for (std::int64_t panel = 0; panel < matrix.num_panels(); ++panel) {
    const std::int64_t count = std::min(kPanelColumns, rows - panel * kPanelColumns);
    const std::int64_t drawn = shape.is_poisoned ? kPanelColumns : count;
    pack_panel(shape.layout, draw_rows(shape.layout, drawn, depth, random, shape.x_scale),
               memory_.back().panels.data() + panel * matrix.panel_stride());
  }
  matrix.panels = memory_.back().panels.data();
  matrix.scale =
      shape.layout.format == Format::nvfp4 ? 0.003F + 0.001F * static_cast<float>(seed % 3) : 1;
  if (shape.input_scale != 0) matrix.scale *= shape.input_scale;
  matrix.input_scale = shape.input_scale;
  return matrix;
}

std::vector<float> DeviceCase::cpu_results() const {
  ThreadPool pool(1);
  GroupedGemm gemm({.isa = Isa::scalar,
                    .vector = &find_vector_kernels(Isa::scalar),
                    .pool = &pool,
                    .nvfp4_activations = shape.activations});
  std::vector<const std::byte*> rows;
  for (const std::int32_t index : row_indices) {
    rows.push_back(reinterpret_cast<const std::byte*>(x.data() + index * shape.hidden));
  }
  std::vector<MlpGroup> groups;
  std::int64_t first = 0;
  for (std::size_t mlp = 0; mlp < mlps.size(); ++mlp) {
    if (shape.rows[mlp] == 0) continue;
    groups.push_back({.first_row = first, .num_rows = shape.rows[mlp], .weights = mlps[mlp]});
    first += shape.rows[mlp];
  }
  std::vector<float> y(static_cast<std::size_t>(num_rows * shape.hidden));
  gemm.run_mlp({.rows = rows.data(),
                .num_rows = num_rows,
                .depth = shape.hidden,
                .element = RowSource::Element::bf16},
               groups, shape.gating,
               {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = shape.hidden * 4});
  return y;
}

std::vector<float> DeviceCase::mma_results(int chip) const {
  const auto product = [&](const PackedMatrix& matrix, std::span<const BFloat16> input) {
    return shape.activations == Nvfp4Activations::nvfp4 ? scaled_row(matrix, input, chip)
                                                        : mma_row(matrix, input.data(), chip);
  };
  std::vector<float> y;
  std::size_t row = 0;
  for (std::size_t mlp = 0; mlp < mlps.size(); ++mlp) {
    for (std::int64_t i = 0; i < shape.rows[mlp]; ++i, ++row) {
      const std::span<const BFloat16> input(x.data() + row_indices[row] * shape.hidden,
                                            static_cast<std::size_t>(shape.hidden));
      std::vector<float> gate = product(mlps[mlp].gate, input);
      const std::vector<float> up = product(mlps[mlp].up, input);
      find_vector_kernels(Isa::scalar).gate(shape.gating, up.data(), shape.width, gate.data());
      std::vector<BFloat16> inner;
      for (const float value : gate) inner.push_back(to_bfloat16(value));
      for (const float value : product(mlps[mlp].down, inner)) y.push_back(value);
    }
  }
  return y;
}

std::string DeviceCase::input_text(std::int64_t row) const {
  std::int64_t mlp = 0;
  for (std::int64_t behind = 0; row >= behind + shape.rows[static_cast<std::size_t>(mlp)]; ++mlp) {
    behind += shape.rows[static_cast<std::size_t>(mlp)];
  }
  const BFloat16* const input =
      x.data() + row_indices[static_cast<std::size_t>(row)] * shape.hidden;
  std::string bits;
  for (std::int64_t k = 0; k < shape.hidden; ++k) {
    bits += fmt::format("{:04x}", std::bit_cast<std::uint16_t>(input[k]));
  }
  return JsonWriter().field("mlp", mlp).field("x", bits).text();
}

std::vector<float> DeviceCase::results_on(Device& device, DeviceKernels kernels,
                                          const GroupedLibrary* library) const {
  std::vector<DeviceBuffer> panels;
  std::vector<MlpWeights> on_device = mlps;
  for (MlpWeights& mlp : on_device) {
    for (PackedMatrix* matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
      panels.push_back(
          upload<std::byte>(device, {matrix->panels, static_cast<std::size_t>(matrix->bytes())}));
      matrix->panels = reinterpret_cast<const std::byte*>(panels.back().address());
    }
  }
  DeviceScratch scratch;
  DeviceMlps products({device, scratch, kernels, shape.gating, shape.activations, library},
                      on_device);
  std::vector<DeviceRows> groups;
  std::int64_t first = 0;
  for (std::size_t mlp = 0; mlp < mlps.size(); ++mlp) {
    groups.push_back({static_cast<std::int32_t>(mlp), first, shape.rows[mlp]});
    first += shape.rows[mlp];
  }
  const DeviceBuffer inputs = upload<BFloat16>(device, x);
  const DeviceBuffer indices = upload<std::int32_t>(device, row_indices);
  const DeviceBuffer y = device.allocate(num_rows * shape.hidden * 4);
  std::vector<float> results(static_cast<std::size_t>(num_rows * shape.hidden));
  products.start(
      {inputs.address(), std::ssize(x) / shape.hidden, indices.address(), num_rows, y.address()},
      groups);
  device.download(results.data(), y.address(), y.bytes());
  device.mark();
  device.wait_for_mark(kSeconds);
  return results;
}

Nvfp4Row quantize_row(std::span<const BFloat16> row, float input_scale) {
  float amax = 0;
  bool is_finite = true;
  for (const BFloat16 value : row) {
    is_finite = is_finite && std::isfinite(to_float(value));
    amax = std::max(amax, std::fabs(to_float(value)));
  }
  const auto depth = static_cast<std::size_t>(round_up(std::ssize(row), kScaledStep));
  Nvfp4Row taken{.codes = std::vector<std::uint8_t>(depth),
                 .scales = std::vector<std::uint8_t>(depth / 16)};
  if (!is_finite) taken.power = std::numeric_limits<float>::quiet_NaN();
  if (!is_finite || amax < 0x1p-100F) return taken;
  const double least = amax / (kLargestE2m1 * kLargestE4m3);
  const auto power = static_cast<float>(std::exp2(std::ceil(std::log2(least))));
  const float row_scale = input_scale != 0 ? input_scale : power;
  if (input_scale == 0) taken.power = power;
  for (std::size_t first = 0; first < row.size(); first += 16) {
    const std::span<const BFloat16> group =
        row.subspan(first, std::min<std::size_t>(16, row.size() - first));
    float largest = 0;
    for (const BFloat16 value : group) largest = std::max(largest, std::fabs(to_float(value)));
    std::uint8_t& scale = taken.scales[first / 16];
    scale = nearest_e4m3(largest / (kLargestE2m1 * row_scale));
    if (scale == 0) continue;
    const float inverse = 1 / (e4m3_to_float(scale) * row_scale);
    for (std::size_t i = 0; i < group.size(); ++i) {
      taken.codes[first + i] = nearest_e2m1(to_float(group[i]) * inverse);
    }
  }
  return taken;
}

std::size_t different(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t count = a.size() == b.size() ? 0 : a.size() + b.size();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    count += std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) ? 1 : 0;
  }
  return count;
}

}  // namespace moesaic
