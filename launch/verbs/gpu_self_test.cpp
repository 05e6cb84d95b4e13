#include "launch/verbs/gpu_self_test.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/cuda/mlp_products.h"
#include "kernels/grouped_gemm.h"
#include "kernels/whole_product.h"

namespace moesaic {
namespace {

// Sizes that fill no panel and no step, rows that fill no tile.
constexpr std::int64_t kTestHidden = 72;
constexpr std::int64_t kTestWidth = 40;
constexpr std::int64_t kMlpRows = 11;
constexpr double kMmaError = 1e-3;
constexpr double kScaledError = 0.05;  // a rounding of gated activations to 4 bits may turn over

/// One gated MLP and rows for it.
struct SmallMlp {
  explicit SmallMlp(const Layout& layout)
      : gate(pack_matrix(layout, draw_test_numbers(kTestWidth * kTestHidden, 1), kTestWidth,
                         kTestHidden)),
        up(pack_matrix(layout, draw_test_numbers(kTestWidth * kTestHidden, 2), kTestWidth,
                       kTestHidden)),
        down(pack_matrix(layout, draw_test_numbers(kTestHidden * kTestWidth, 3), kTestHidden,
                         kTestWidth)) {
    for (const float value : draw_test_numbers(kMlpRows * kTestHidden, 4))
      x.push_back(to_bfloat16(4 * value));
  }

  [[nodiscard]] MlpWeights weights() const { return {gate.matrix, up.matrix, down.matrix}; }
  [[nodiscard]] std::vector<float> run_on_cpu(Nvfp4Activations activations) const;
  [[nodiscard]] std::vector<float> run_on(const DeviceMlps::Setup& setup, double deadline) const;

  OwnedMatrix gate;
  OwnedMatrix up;
  OwnedMatrix down;
  std::vector<BFloat16> x;  // [rows, hidden]
};

std::vector<float> SmallMlp::run_on_cpu(Nvfp4Activations activations) const {
  ThreadPool pool(1);
  GroupedGemm gemm({.isa = Isa::scalar,
                    .vector = &find_vector_kernels(Isa::scalar),
                    .pool = &pool,
                    .nvfp4_activations = activations});
  std::vector<const std::byte*> rows;
  for (std::int64_t row = 0; row < kMlpRows; ++row) {
    rows.push_back(reinterpret_cast<const std::byte*>(x.data() + row * kTestHidden));
  }
  std::vector<float> y(static_cast<std::size_t>(kMlpRows * kTestHidden));
  const std::array<MlpGroup, 1> groups = {
      {{.first_row = 0, .num_rows = kMlpRows, .weights = weights()}}};
  gemm.run_mlp({.rows = rows.data(),
                .num_rows = kMlpRows,
                .depth = kTestHidden,
                .element = RowSource::Element::bf16},
               groups, {},
               {.data = reinterpret_cast<std::byte*>(y.data()), .stride_bytes = kTestHidden * 4});
  return y;
}

DeviceBuffer put(Device& device, const void* data, std::int64_t bytes) {
  DeviceBuffer buffer = device.allocate(bytes);
  device.upload(buffer.address(), data, bytes);
  return buffer;
}

std::vector<float> SmallMlp::run_on(const DeviceMlps::Setup& setup, double deadline) const {
  Device& device = setup.device;
  MlpWeights on_device = weights();
  std::vector<DeviceBuffer> panels;
  for (PackedMatrix* const matrix : {&on_device.gate, &on_device.up, &on_device.down}) {
    panels.push_back(put(device, matrix->panels, matrix->bytes()));
    matrix->panels = reinterpret_cast<const std::byte*>(panels.back().address());
  }
  DeviceMlps mlps(setup, {&on_device, 1});
  std::vector<std::int32_t> indices(kMlpRows);
  std::iota(indices.begin(), indices.end(), 0);
  const DeviceBuffer inputs = put(device, x.data(), std::ssize(x) * 2);
  const DeviceBuffer places = put(device, indices.data(), std::ssize(indices) * 4);
  const DeviceBuffer y = device.allocate(kMlpRows * kTestHidden * 4);
  std::vector<float> results(static_cast<std::size_t>(kMlpRows * kTestHidden));
  const DeviceRows rows{.mlp = 0, .first_row = 0, .num_rows = kMlpRows};
  mlps.start({.x = inputs.address(),
              .num_inputs = kMlpRows,
              .row_indices = places.address(),
              .num_rows = kMlpRows,
              .y = y.address()},
             {&rows, 1});
  device.download(results.data(), y.address(), y.bytes());
  device.mark();
  device.wait_for_mark(deadline);
  return results;
}

constexpr std::array kLayouts = {Layout{.format = Format::bf16}, Layout{.format = Format::nvfp4},
                                 Layout{.format = Format::mxfp4},
                                 Layout{.format = Format::fp8_block, .group = 32},
                                 Layout{.format = Format::int4_group, .group = 32}};

}  // namespace

std::vector<KernelTest> test_gpu_kernels(Device& device, double deadline_seconds) {
  std::vector<KernelTest> tests;
  DeviceScratch scratch;
  const auto test = [&](const Layout& layout, DeviceKernels kernels, Nvfp4Activations activations) {
    const SmallMlp mlp(layout);
    const std::vector<float> truth = mlp.run_on_cpu(activations);
    const std::vector<float> out = mlp.run_on({.device = device,
                                               .scratch = scratch,
                                               .kernels = kernels,
                                               .nvfp4_activations = activations},
                                              deadline_seconds);
    const bool is_scaled = activations == Nvfp4Activations::nvfp4;
    const bool is_portable = kernels == DeviceKernels::portable;
    tests.push_back(
        {.kernel = fmt::format("gpu/{}/{}{}", kernels_name(kernels, activations, layout.format),
                               format_name(layout.format), is_scaled ? " (W4A4)" : ""),
         .same_bits = std::memcmp(truth.data(), out.data(), out.size() * sizeof(float)) == 0,
         .relative_error = relative_l2(out, truth),
         .allowed_error = is_portable ? 0
                          : is_scaled ? kScaledError
                                      : kMmaError});
  };
  for (const DeviceKernels kernels : {DeviceKernels::portable, DeviceKernels::mma}) {
    for (const Layout& layout : kLayouts) test(layout, kernels, Nvfp4Activations::bf16);
    constexpr Layout kNvfp4 = {.format = Format::nvfp4};
    constexpr auto kRounded = Nvfp4Activations::nvfp4;
    if (missing_on_chip(device.info(), kNvfp4, kernels, kRounded).empty()) {
      test(kNvfp4, kernels, kRounded);
    }
  }
  return tests;
}

}  // namespace moesaic
