#include "kernels/cuda/mlp_products.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/cuda/device_launch.h"

namespace moesaic {
namespace {

constexpr std::int64_t kMostTilesOfLaunch = 65535;  // blocks in y
constexpr double kUploadSeconds = 60;

std::string module_name(DeviceKernels kernels, const Layout& layout,
                        Nvfp4Activations activations = Nvfp4Activations::bf16) {
  return fmt::format("{}/{}", kernels_name(kernels, activations, layout.format),
                     format_name(layout.format));
}

void check_mlp(const MlpWeights& mlp, const MlpWeights& first) {
  const auto same = [](const PackedMatrix& a, const PackedMatrix& b) {
    return a.layout == b.layout && a.rows == b.rows && a.depth == b.depth && a.order == nullptr &&
           a.input_scale == b.input_scale;
  };
  require(same(mlp.gate, first.gate) && same(mlp.up, first.gate) && same(mlp.down, first.down) &&
              mlp.down.layout == first.gate.layout,
          ErrorKind::usage, "a GPU takes MLPs of one size and layout, in the order of their k");
  require(mlp.gate.depth % 8 == 0 && mlp.down.depth % 8 == 0, ErrorKind::usage,
          "a GPU takes MLPs whose sizes are multiples of 8, not {} x {}", mlp.gate.rows,
          mlp.gate.depth);
}

cuda::PanelForm form_of(const Layout& layout) {
  std::int32_t shift = 0;
  while (kStepDepth << shift < layout.group) ++shift;
  return {.group_shift = shift, .wide_scales = layout.wide_scales ? 1 : 0};
}

bool has_grouped_products(const DeviceInfo& device) {
  return std::ranges::find(cuda::kGroupedChips, device.chip) != std::end(cuda::kGroupedChips);
}

std::string missing_for_cutlass(const DeviceInfo& device, const Layout& layout,
                                Nvfp4Activations activations) {
  const std::string missing = missing_for_groups({.layout = layout});
  if (!missing.empty()) return missing;
  if (activations != Nvfp4Activations::nvfp4) return "it multiplies activations in nvfp4 alone";
  if (has_grouped_products(device)) return "";
  return fmt::format("it is for sm_100 and sm_103, GPU {} ({:.40}) is sm_{}", device.index,
                     device.name, device.chip);
}

const std::uint8_t* panels_of(const PackedMatrix& matrix) {
  return reinterpret_cast<const std::uint8_t*>(matrix.panels);
}

}  // namespace

std::string_view kernels_name(DeviceKernels kernels, Nvfp4Activations activations,
                              Format format) noexcept {
  if (kernels == DeviceKernels::portable) return "portable";
  if (kernels == DeviceKernels::cutlass) return "cutlass";
  const bool is_scaled = format == Format::nvfp4 && activations == Nvfp4Activations::nvfp4;
  return is_scaled ? "block_scaled" : "mma";
}

bool has_device_kernels(const Layout& layout) noexcept {
  return std::ranges::any_of(device_images(), [&](const DeviceImage& image) {
    return image.module == module_name(DeviceKernels::portable, layout);
  });
}

std::string missing_on_device(const PackedMatrix& matrix) {
  if (device_images().empty()) return "this program was built without kernels for GPUs";
  if (!has_device_kernels(matrix.layout)) {
    return fmt::format("GPUs have no kernels for {}", format_name(matrix.layout.format));
  }
  if (matrix.depth % 8 != 0) {
    return fmt::format("GPUs take sizes that are multiples of 8, not {}", matrix.depth);
  }
  return "";
}

std::string missing_on_chip(const DeviceInfo& device, const Layout& layout, DeviceKernels kernels,
                            Nvfp4Activations activations) {
  if (kernels == DeviceKernels::cutlass) return missing_for_cutlass(device, layout, activations);
  const bool is_known = device.chip == 120 || device.chip == 121;
  if (is_known || kernels_name(kernels, activations, layout.format) != "block_scaled") return "";
  return fmt::format(
      "GPU {} ({:.40}, sm_{}) does not multiply activations in nvfp4, sm_120 and sm_121 do{}; with "
      "--numerics portable every GPU rounds them to it",
      device.index, device.name, device.chip,
      has_grouped_products(device) ? ", and this one with --gpu-kernel cutlass" : "");
}

std::int64_t rounded_row_bytes(std::int64_t depth) noexcept {
  constexpr std::int64_t kScaleBytes = 4;
  return std::max(2 * depth, row_record_bytes(depth) + kScaleBytes);
}

DeviceMlps::DeviceMlps(const Setup& setup, std::span<const MlpWeights> mlps)
    : device_(setup.device),
      gating_(setup.gating),
      form_(form_of(mlps.front().gate.layout)),
      hidden_(mlps.front().gate.depth),
      width_(mlps.front().gate.rows),
      x_scale_(mlps.front().gate.input_scale),
      inner_scale_(mlps.front().down.input_scale),
      scratch_(setup.scratch) {
  for (const MlpWeights& mlp : mlps) check_mlp(mlp, mlps.front());
  upload(mlps);
  if (setup.kernels == DeviceKernels::cutlass) {
    use_library(setup, mlps);
    return;
  }
  const Layout& layout = mlps.front().gate.layout;
  if (layout.format == Format::nvfp4 && setup.nvfp4_activations == Nvfp4Activations::nvfp4) {
    rounding_.emplace(device_);
    reads_records_ = setup.kernels == DeviceKernels::mma;
  }
  add_kinds(setup.kernels, module_name(setup.kernels, layout, setup.nvfp4_activations));
}

void DeviceMlps::upload(std::span<const MlpWeights> mlps) {
  PinnedBuffer host = device_.allocate_pinned(std::ssize(mlps) *
                                              static_cast<std::int64_t>(sizeof(cuda::MlpMatrices)));
  mlps_ = device_.allocate(host.bytes());
  auto* out = reinterpret_cast<cuda::MlpMatrices*>(host.data());
  for (const MlpWeights& mlp : mlps) {
    *out++ = {panels_of(mlp.gate),
              panels_of(mlp.up),
              panels_of(mlp.down),
              mlp.gate.scale,
              mlp.up.scale,
              mlp.down.scale,
              0};
  }
  device_.upload(mlps_.address(), host.data(), host.bytes());
  device_.mark();
  device_.wait_for_mark(kUploadSeconds);
}

/// A group of rows is a tile.
void DeviceMlps::use_library(const Setup& setup, std::span<const MlpWeights> mlps) {
  require(setup.library != nullptr && setup.nvfp4_activations == Nvfp4Activations::nvfp4,
          ErrorKind::internal, "the library of grouped products takes activations in nvfp4");
  arrange_for_groups(device_, mlps);
  sizes_.push_back(cuda::kMostGroupRows);
  kinds_.push_back({.shape = {cuda::kMostGroupRows, 0, 0, 0}});
  grouped_.emplace(GroupedMlps::Setup{.device = device_,
                                      .library = *setup.library,
                                      .gating = gating_,
                                      .hidden = hidden_,
                                      .width = width_,
                                      .x_scale = x_scale_,
                                      .inner_scale = inner_scale_,
                                      .mlps = mlps_.address(),
                                      .num_mlps = std::ssize(mlps)});
}

void DeviceMlps::add_kinds(DeviceKernels kernels, const std::string& module) {
  if (kernels == DeviceKernels::portable) {
    return add_kind(module,
                    {.rows = cuda::kPortableRows,
                     .threads = cuda::kPortableWarps * 32,
                     .gate_up_panels = cuda::kPortableWarps,
                     .down_panels = cuda::kPortableWarps},
                    "");
  }
  const std::span<const cuda::TileShape> shapes =
      reads_records_ ? std::span<const cuda::TileShape>(cuda::kScaledShapes) : cuda::kMmaShapes;
  for (const cuda::TileShape& shape : shapes) {
    add_kind(module, shape, fmt::format("_{}", shape.rows));
  }
}

void DeviceMlps::add_kind(std::string_view module, const cuda::TileShape& shape,
                          const std::string& suffix) {
  kinds_.push_back({.shape = shape});
  sizes_.push_back(shape.rows);
  kinds_.back().gate_up = device_.kernel(module, "gate_up" + suffix);
  kinds_.back().down = device_.kernel(module, "down" + suffix);
}

void DeviceMlps::make_tiles(std::span<const DeviceRows> groups) {
  std::vector<cuda::MlpTile> tiles;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const std::vector<cuda::MlpTile> own = tiles_of_kind(sizes_, i, groups);
    kinds_[i].first_tile = std::ssize(tiles);
    kinds_[i].num_tiles = std::ssize(own);
    tiles.insert(tiles.end(), own.begin(), own.end());
  }
  const auto bytes = std::ssize(tiles) * static_cast<std::int64_t>(sizeof(cuda::MlpTile));
  moesaic::make_room(scratch_.host_tiles, bytes, device_);
  moesaic::make_room(scratch_.tiles, bytes, device_);
  std::ranges::copy(tiles, reinterpret_cast<cuda::MlpTile*>(scratch_.host_tiles.data()));
  device_.upload(scratch_.tiles.address(), scratch_.host_tiles.data(), bytes);
}

void DeviceMlps::launch(const Kind& kind, CudaFunction kernel, std::int64_t blocks,
                        const cuda::MlpArguments& arguments) {
  for (std::int64_t first = 0; first < kind.num_tiles; first += kMostTilesOfLaunch) {
    cuda::MlpArguments part = arguments;
    part.tiles += kind.first_tile + first;
    const std::int64_t tiles = std::min(kMostTilesOfLaunch, kind.num_tiles - first);
    device_.launch(kernel,
                   {.grid_x = static_cast<unsigned>(blocks),
                    .grid_y = static_cast<unsigned>(tiles),
                    .threads = static_cast<unsigned>(kind.shape.threads)},
                   &part);
  }
}

void DeviceMlps::make_room(std::int64_t num_rows, std::int64_t num_inputs) {
  const std::int64_t tile_bytes = num_rows * static_cast<std::int64_t>(sizeof(cuda::MlpTile));
  moesaic::make_room(scratch_.host_tiles, tile_bytes, device_);
  moesaic::make_room(scratch_.tiles, tile_bytes, device_);
  moesaic::make_room(scratch_.inner, num_rows * width_ * 2, device_);
  if (grouped_) {
    moesaic::make_room(scratch_.rounded, grouped_->room(num_rows).bytes(), device_);
    grouped_->make_room(num_rows);
  }
  if (!rounding_) return;
  moesaic::make_room(
      scratch_.rounded,
      std::max(num_inputs * rounded_row_bytes(hidden_), num_rows * rounded_row_bytes(width_)),
      device_);
}

/// Of activations in nvfp4 other memory gets what kernels read; others they read as they are.
DeviceMlps::ReadRows DeviceMlps::read_rows(const DeviceRowRounding::Rows& rows,
                                           CudaAddress rounded) {
  if (!rounding_) return {.rows = rows.from};
  if (!reads_records_) {
    rounding_->round(rows, rounded);
    return {.rows = rounded};
  }
  const CudaAddress scales =
      rounded + static_cast<CudaAddress>(rows.count * row_record_bytes(rows.depth));
  rounding_->quantize(rows, rounded, scales);
  return {.rows = rounded, .scales = scales};
}

cuda::MlpArguments DeviceMlps::arguments_of(const Pass& pass) const {
  return {.mlps = pointer_to<const cuda::MlpMatrices>(mlps_.address()),
          .tiles = pointer_to<const cuda::MlpTile>(scratch_.tiles.address()),
          .row_indices = pointer_to<const std::int32_t>(pass.row_indices),
          .x = nullptr,
          .inner = nullptr,
          .y = pointer_to<float>(pass.y),
          .row_scales = nullptr,
          .hidden = narrow<std::int32_t>(hidden_),
          .width = narrow<std::int32_t>(width_),
          .limit = gating_.limit,
          .alpha = gating_.alpha,
          .offset = gating_.offset,
          .form = form_,
          .unused = 0};
}

GroupedMlps::Pass DeviceMlps::grouped_pass(const Pass& pass) const {
  return {.x = pass.x,
          .row_indices = pass.row_indices,
          .num_rows = pass.num_rows,
          .there = 0,
          .tiles = scratch_.tiles.address(),
          .num_groups = kinds_.front().num_tiles,
          .inner = scratch_.inner.address(),
          .memory = scratch_.rounded.address(),
          .y = pass.y};
}

void DeviceMlps::start(const Pass& pass, std::span<const DeviceRows> groups) {
  make_room(pass.num_rows, pass.num_inputs);
  make_tiles(groups);
  if (grouped_) return grouped_->start(grouped_pass(pass));
  cuda::MlpArguments arguments = arguments_of(pass);
  const CudaAddress inner = scratch_.inner.address();
  const CudaAddress rounded = scratch_.rounded.address();
  arguments.inner = pointer_to<std::uint16_t>(inner);
  launch_gate_up(arguments, {pass.x, pass.num_inputs, hidden_, x_scale_}, rounded);
  launch_down(arguments, {inner, pass.num_rows, width_, inner_scale_}, rounded);
}

void DeviceMlps::start_down(const Pass& pass, std::span<const DeviceRows> groups) {
  make_tiles(groups);
  if (grouped_) {
    moesaic::make_room(scratch_.rounded, grouped_->room(pass.num_rows).bytes(), device_);
    return grouped_->start_down(grouped_pass(pass));
  }
  if (rounding_) {
    moesaic::make_room(scratch_.rounded, pass.num_rows * rounded_row_bytes(width_), device_);
  }
  cuda::MlpArguments arguments = arguments_of(pass);
  launch_down(arguments, {pass.x, pass.num_rows, width_, inner_scale_}, scratch_.rounded.address());
}

void DeviceMlps::start(const Planned& planned) {
  std::int64_t first = 0;
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    kinds_[i].first_tile = first;
    kinds_[i].num_tiles = planned.kinds.most[i];
    first += planned.kinds.most[i];
  }
  const Pass& pass = planned.pass;
  if (grouped_) {
    GroupedMlps::Pass grouped = grouped_pass(pass);
    grouped.there = planned.num_rows;
    grouped.tiles = planned.tiles;
    grouped.inner = planned.inner;
    grouped.memory = planned.rounded;
    return grouped_->start(grouped);
  }
  cuda::MlpArguments arguments = arguments_of(pass);
  arguments.tiles = pointer_to<const cuda::MlpTile>(planned.tiles);
  arguments.inner = pointer_to<std::uint16_t>(planned.inner);
  launch_gate_up(arguments, {pass.x, pass.num_inputs, hidden_, x_scale_, planned.num_inputs},
                 planned.rounded);
  launch_down(arguments, {planned.inner, pass.num_rows, width_, inner_scale_, planned.num_rows},
              planned.rounded);
}

void DeviceMlps::launch_gate_up(cuda::MlpArguments& arguments, const DeviceRowRounding::Rows& x,
                                CudaAddress rounded) {
  const ReadRows rows = read_rows(x, rounded);
  arguments.x = pointer_to<const std::uint16_t>(rows.rows);
  arguments.row_scales = pointer_to<const float>(rows.scales);
  for (const Kind& kind : kinds_) {
    launch(kind, kind.gate_up, divide_up(panel_count(width_), kind.shape.gate_up_panels),
           arguments);
  }
}

void DeviceMlps::launch_down(cuda::MlpArguments& arguments, const DeviceRowRounding::Rows& inner,
                             CudaAddress rounded) {
  const ReadRows rows = read_rows(inner, rounded);
  arguments.inner = pointer_to<std::uint16_t>(rows.rows);
  arguments.row_scales = pointer_to<const float>(rows.scales);
  for (const Kind& kind : kinds_) {
    launch(kind, kind.down, divide_up(panel_count(hidden_), kind.shape.down_panels), arguments);
  }
}

}  // namespace moesaic
