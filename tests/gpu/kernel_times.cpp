#include "tests/gpu/kernel_times.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <numeric>
#include <random>

#include "base/dtype.h"
#include "kernels/cuda/choice_plan.h"
#include "kernels/cuda/mlp_products.h"

namespace moesaic {
namespace {

constexpr std::int64_t kExperts = 128;
constexpr std::int64_t kHidden = 2048;
constexpr std::int64_t kWidth = 768;
constexpr std::int64_t kChoices = 8;  // of a token
constexpr std::int64_t kMostTokens = 4096;
constexpr int kRepeats = 21;
constexpr double kDeadline = 300;

/// Random bytes that are no infinity and no NaN in any format.
std::vector<std::byte> random_bytes(std::int64_t count) {
  std::mt19937_64 random(5);
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 0xbfU);
  return bytes;
}

/// A layer's experts in device memory, and rows for them.
class TimedLayer {
 public:
  TimedLayer(Device& device, const Layout& layout, DeviceKernels kernels,
             Nvfp4Activations activations, const GroupedLibrary* library)
      : device_(device),
        panels_(upload_experts(device, layout)),
        mlps_({.device = device,
               .scratch = scratch_,
               .kernels = kernels,
               .nvfp4_activations = activations,
               .library = library},
              weights(layout)),
        inputs_(device.allocate(kMostTokens * kHidden * 2)),
        indices_(device.allocate(kMostTokens * kChoices * 4)),
        results_(device.allocate(kMostTokens * kChoices * kHidden * 4)) {
    const std::vector<std::byte> x = random_bytes(inputs_.bytes());
    device.upload(inputs_.address(), x.data(), inputs_.bytes());
    std::vector<std::int32_t> own(kExperts);
    std::iota(own.begin(), own.end(), 0);
    device.upload(mlps_of_experts_.address(), own.data(), mlps_of_experts_.bytes());
    finish();
  }

  /// The median of some passes, each with the experts after those of the one before: planned by the
  /// host, or by the GPU in a graph.
  [[nodiscard]] double median_seconds(std::int64_t tokens, bool is_graph = false) {
    DeviceGraph graph;
    if (is_graph) graph = capture(tokens);
    std::vector<double> times;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      times.push_back(is_graph ? graph_seconds(graph, tokens) : pass_seconds(tokens));
    }
    std::ranges::nth_element(times, times.begin() + kRepeats / 2);
    return times[kRepeats / 2];
  }

 private:
  void finish() {
    device_.mark();
    device_.wait_for_mark(kDeadline);
  }

  static PackedMatrix matrix(const Layout& layout, std::int64_t rows, std::int64_t depth) {
    return {.layout = layout, .rows = rows, .depth = depth};
  }
  static std::int64_t expert_bytes(const Layout& layout) {
    return 2 * matrix(layout, kWidth, kHidden).bytes() + matrix(layout, kHidden, kWidth).bytes();
  }
  static DeviceBuffer upload_experts(Device& device, const Layout& layout) {
    const std::int64_t bytes = expert_bytes(layout);
    const std::vector<std::byte> expert = random_bytes(bytes);
    DeviceBuffer panels = device.allocate(kExperts * bytes);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      device.upload(panels.address() + static_cast<CudaAddress>(e * bytes), expert.data(), bytes);
    }
    device.mark();
    device.wait_for_mark(kDeadline);
    return panels;
  }
  [[nodiscard]] std::vector<MlpWeights> weights(const Layout& layout) const {
    std::vector<MlpWeights> all;
    const auto* at = reinterpret_cast<const std::byte*>(panels_.address());
    for (std::int64_t e = 0; e < kExperts; ++e) {
      MlpWeights& mlp = all.emplace_back(MlpWeights{.gate = matrix(layout, kWidth, kHidden),
                                                    .up = matrix(layout, kWidth, kHidden),
                                                    .down = matrix(layout, kHidden, kWidth)});
      for (PackedMatrix* const part : {&mlp.gate, &mlp.up, &mlp.down}) {
        part->panels = at;
        at += part->bytes();
      }
    }
    return all;
  }

  double pass_seconds(std::int64_t tokens) {
    const std::int64_t rows = tokens * kChoices;
    std::vector<std::int32_t> indices;
    std::vector<DeviceRows> groups;
    const std::int64_t experts = std::min(kExperts, rows);
    for (std::int64_t e = 0; e < experts; ++e) {
      const auto first = std::ssize(indices);
      for (std::int64_t choice = e; choice < rows; choice += experts) {
        indices.push_back(static_cast<std::int32_t>(choice / kChoices));
      }
      groups.push_back({static_cast<std::int32_t>((first_expert_ + e) % kExperts), first,
                        std::ssize(indices) - first});
    }
    first_expert_ += experts;
    device_.upload(indices_.address(), indices.data(), rows * 4);
    finish();
    const auto start = std::chrono::steady_clock::now();
    mlps_.start({.x = inputs_.address(),
                 .num_inputs = tokens,
                 .row_indices = indices_.address(),
                 .num_rows = rows,
                 .y = results_.address()},
                groups);
    finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// A pass whose choices are those of host_choices_ when it runs.
  DeviceGraph capture(std::int64_t tokens) {
    const PlanRoom room = {.inputs = tokens, .topk = kChoices, .mlps = kExperts};
    const cuda::TileKinds kinds = tile_kinds(mlps_.tile_sizes(), room);
    const CudaAddress count = choices_.address() + static_cast<CudaAddress>(room.rows() * 4);
    tiles_ = device_.allocate(num_tiles(kinds) * static_cast<std::int64_t>(sizeof(cuda::MlpTile)));
    return device_.capture([&] {
      device_.upload(choices_.address(), host_choices_.data(), (room.rows() + 1) * 4);
      plan_.make({.num_inputs = count,
                  .experts = choices_.address(),
                  .mlps_of_experts = mlps_of_experts_.address(),
                  .num_experts = kExperts,
                  .row_indices = indices_.address(),
                  .places = places_.address(),
                  .first_rows = first_rows_.address(),
                  .tiles = tiles_.address(),
                  .room = room,
                  .kinds = kinds});
      mlps_.start({.pass = {.x = inputs_.address(),
                            .num_inputs = tokens,
                            .row_indices = indices_.address(),
                            .num_rows = room.rows(),
                            .y = results_.address()},
                   .kinds = kinds,
                   .tiles = tiles_.address(),
                   .inner = inner_.address()});
    });
  }

  /// As pass_seconds() routes.
  double graph_seconds(const DeviceGraph& graph, std::int64_t tokens) {
    const std::int64_t rows = tokens * kChoices;
    const auto start = std::chrono::steady_clock::now();
    auto* const choices = reinterpret_cast<std::int32_t*>(host_choices_.data());
    for (std::int64_t choice = 0; choice < rows; ++choice) {
      choices[choice] = static_cast<std::int32_t>((first_expert_ + choice) % kExperts);
    }
    choices[rows] = static_cast<std::int32_t>(tokens);
    first_expert_ += std::min(kExperts, rows);
    device_.launch(graph);
    finish();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  Device& device_;
  DeviceScratch scratch_;
  DeviceBuffer panels_;
  DeviceMlps mlps_;
  DeviceBuffer inputs_;
  DeviceBuffer indices_;
  DeviceBuffer results_;
  std::int64_t first_expert_ = 0;
  // Of graphs:
  static constexpr std::int64_t kMostChoices = cuda::kMostPlannedInputs * kChoices;
  DeviceChoicePlan plan_{device_};
  PinnedBuffer host_choices_ = device_.allocate_pinned((kMostChoices + 1) * 4);
  DeviceBuffer choices_ = device_.allocate(host_choices_.bytes());
  DeviceBuffer mlps_of_experts_ = device_.allocate(kExperts * 4);
  DeviceBuffer places_ = device_.allocate(kMostChoices * 4);
  DeviceBuffer first_rows_ = device_.allocate((kExperts + 1) * 4);
  DeviceBuffer tiles_;
  DeviceBuffer inner_ = device_.allocate(kMostChoices * kWidth * 2);
};

}  // namespace

std::vector<KernelTime> time_kernels(Device& device, const GroupedLibrary* cutlass) {
  std::vector<KernelTime> times;
  const auto time = [&](const Layout& layout, DeviceKernels kernels, Nvfp4Activations activations) {
    TimedLayer layer(device, layout, kernels, activations, cutlass);
    const std::string name = fmt::format("{}/{}", kernels_name(kernels, activations, layout.format),
                                         format_name(layout.format));
    const bool has_graphs = activations == Nvfp4Activations::bf16;
    for (const std::int64_t tokens : {1, 8, 64, 512, 4096}) {
      if (kernels == DeviceKernels::portable && tokens > 64) continue;
      const std::int64_t rows = tokens * kChoices;
      const auto weights = static_cast<double>(
          std::min(kExperts, rows) * (2 * panel_count(kWidth) * panel_bytes(layout, kHidden) +
                                      panel_count(kHidden) * panel_bytes(layout, kWidth)));
      times.push_back(
          {.kernels = name,
           .tokens = tokens,
           .seconds = layer.median_seconds(tokens),
           .bytes = weights,
           .operations = static_cast<double>(rows) * 6 * static_cast<double>(kHidden * kWidth)});
      if (!has_graphs || tokens > cuda::kMostPlannedInputs) continue;
      times.push_back(times.back());
      times.back().kernels = "graph of " + name;
      times.back().seconds = layer.median_seconds(tokens, true);
    }
  };
  for (const Layout& layout :
       {Layout{.format = Format::nvfp4}, Layout{.format = Format::mxfp4},
        Layout{.format = Format::bf16}, Layout{.format = Format::fp8_block, .group = 128},
        Layout{.format = Format::int4_group, .group = 128}}) {
    for (const DeviceKernels kernels : {DeviceKernels::mma, DeviceKernels::portable}) {
      time(layout, kernels, Nvfp4Activations::bf16);
    }
  }
  constexpr Layout kNvfp4 = {.format = Format::nvfp4};
  constexpr auto kRounded = Nvfp4Activations::nvfp4;
  if (missing_on_chip(device.info(), kNvfp4, DeviceKernels::mma, kRounded).empty()) {
    time(kNvfp4, DeviceKernels::mma, kRounded);
  }
  if (cutlass != nullptr) time(kNvfp4, DeviceKernels::cutlass, kRounded);
  return times;
}

}  // namespace moesaic
