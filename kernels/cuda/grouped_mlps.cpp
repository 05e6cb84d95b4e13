#include "kernels/cuda/grouped_mlps.h"

#include <fmt/core.h>

#include "base/error.h"
#include "kernels/cuda/device_launch.h"

namespace moesaic {
namespace {

constexpr std::string_view kGroupedModule = "grouped/nvfp4";
constexpr double kGroupedSeconds = 60;  // of copies and of matrices, before there are passes

void finish_grouped(Device& device) {
  device.mark();
  device.wait_for_mark(kGroupedSeconds);
}

}  // namespace

std::string missing_for_groups(const PackedMatrix& matrix) {
  if (matrix.layout.format != Format::nvfp4) {
    return fmt::format("it multiplies matrices in nvfp4 alone, not in {}",
                       format_name(matrix.layout.format));
  }
  if (matrix.rows % cuda::kGroupSizes != 0 || matrix.depth % cuda::kGroupSizes != 0) {
    return fmt::format("it takes sizes that are multiples of {}, not {} x {}", cuda::kGroupSizes,
                       matrix.rows, matrix.depth);
  }
  return "";
}

void arrange_for_groups(Device& device, std::span<const MlpWeights> mlps) {
  const CudaFunction arrange = device.kernel(kGroupedModule, "arrange_matrix");
  DeviceBuffer packed;
  for (const MlpWeights& mlp : mlps) {
    for (const PackedMatrix* const matrix : {&mlp.gate, &mlp.up, &mlp.down}) {
      const std::string missing = missing_for_groups(*matrix);
      require(missing.empty(), ErrorKind::usage, "the library of grouped products: {}", missing);
      make_room(packed, matrix->bytes(), device);
      const auto address = reinterpret_cast<CudaAddress>(matrix->panels);
      device.copy(packed.address(), address, matrix->bytes());
      cuda::ArrangeArguments arguments = {
          .panels = pointer_to<const std::uint8_t>(packed.address()),
          .to = pointer_to<std::uint8_t>(address),
          .rows = narrow<std::int32_t>(matrix->rows),
          .depth = narrow<std::int32_t>(matrix->depth)};
      device.launch(arrange, a_block_each(matrix->num_panels()), &arguments);
    }
  }
  finish_grouped(device);
}

GroupedMlps::GroupedMlps(const Setup& setup)
    : setup_(setup),
      gate_up_({.name = "gate_up of cutlass/nvfp4",
                .outputs = narrow<std::int32_t>(setup.width),
                .depth = narrow<std::int32_t>(setup.hidden),
                .result_stride = narrow<std::int32_t>(2 * setup.width),
                .groups_of_mlp = 2}),
      down_({.name = "down of cutlass/nvfp4",
             .outputs = narrow<std::int32_t>(setup.hidden),
             .depth = narrow<std::int32_t>(setup.width),
             .result_stride = narrow<std::int32_t>(setup.hidden)}),
      place_groups_(setup.device.kernel(kGroupedModule, "place_groups")),
      quantize_groups_(setup.device.kernel(kGroupedModule, "quantize_groups")),
      gate_groups_(setup.device.kernel(kGroupedModule, "gate_groups")),
      scale_groups_(setup.device.kernel(kGroupedModule, "scale_groups")) {
  const DeviceInfo& info = setup.device.info();
  const std::int64_t workspace = setup.library.workspace_bytes(info.multiprocessors);
  require(workspace <= kGroupedWorkspaceBytes, ErrorKind::resource,
          "{} works in {} bytes on GPU {} ({}), there are {} for it", setup.library.name(),
          workspace, info.index, info.name, kGroupedWorkspaceBytes);
  make_layouts_for(setup.num_mlps);
}

GroupedRoom GroupedMlps::room(std::int64_t rows) const noexcept {
  return {.rows = rows, .mlps = setup_.num_mlps, .hidden = setup_.hidden, .width = setup_.width};
}

cuda::GroupedProduct GroupedMlps::product_of(const Kind& kind, std::int64_t num_groups) const {
  const DeviceInfo& info = setup_.device.info();
  return {.lists = {},
          .layouts = pointer_to<const void>(kind.layouts.address()),
          .workspace = nullptr,
          .num_groups = narrow<std::int32_t>(num_groups * kind.groups_of_mlp),
          .outputs = kind.outputs,
          .depth = kind.depth,
          .result_stride = kind.result_stride,
          .device = info.index,
          .multiprocessors = info.multiprocessors};
}

void GroupedMlps::make_layouts(Kind& kind, std::int64_t num_groups) {
  Device& device = setup_.device;
  const cuda::GroupedProduct product = product_of(kind, num_groups);
  const std::int64_t bytes = setup_.library.layout_bytes(product.num_groups);
  const PinnedBuffer host = device.allocate_pinned(bytes);
  const char* const error = setup_.library.write_layouts(&product, host.data());
  require(error == nullptr, ErrorKind::resource, "{}: {}: {}", setup_.library.name(), kind.name,
          error);
  kind.layouts = device.allocate(bytes);
  device.upload(kind.layouts.address(), host.data(), bytes);
  finish_grouped(device);
}

/// All groups have the same, so that a list serves any that is shorter.
void GroupedMlps::make_layouts_for(std::int64_t num_groups) {
  if (num_groups <= most_groups_) return;
  make_layouts(gate_up_, num_groups);
  make_layouts(down_, num_groups);
  most_groups_ = num_groups;
}

void GroupedMlps::place(const Pass& pass, const GroupedMemory& memory) {
  cuda::PlaceArguments arguments = {.tiles = pointer_to<const cuda::MlpTile>(pass.tiles),
                                    .mlps = pointer_to<const cuda::MlpMatrices>(setup_.mlps),
                                    .places = memory.places,
                                    .gate_up = memory.gate_up,
                                    .down = memory.down,
                                    .rows = memory.rows,
                                    .sums = memory.sums,
                                    .y = pointer_to<float>(pass.y),
                                    .hidden = narrow<std::int32_t>(setup_.hidden),
                                    .width = narrow<std::int32_t>(setup_.width)};
  setup_.device.launch(place_groups_, a_block_each(pass.num_groups), &arguments);
}

void GroupedMlps::quantize(const Pass& pass, const GroupedMemory& memory, const Input& input) {
  cuda::GroupRowArguments arguments = {.from = pointer_to<const std::uint16_t>(input.from),
                                       .row_indices = pointer_to<const std::int32_t>(input.indices),
                                       .count = pointer_to<const std::int32_t>(pass.there),
                                       .places = memory.places,
                                       .to = memory.rows,
                                       .depth = narrow<std::int32_t>(input.depth),
                                       .input_scale = input.scale};
  setup_.device.launch(quantize_groups_, a_block_each(pass.num_rows), &arguments);
}

void GroupedMlps::multiply(const Kind& kind, const cuda::GroupLists& lists, const Pass& pass,
                           const GroupedMemory& memory) {
  cuda::GroupedProduct product = product_of(kind, pass.num_groups);
  product.lists = lists;
  product.workspace = memory.workspace;
  setup_.device.launch(kind.name, [&](CudaStream stream) {
    const char* const error = setup_.library.launch(&product, stream);
    require(error == nullptr, ErrorKind::resource, "GPU: {} by {}: {}", kind.name,
            setup_.library.name(), error);
  });
}

cuda::GroupSumArguments GroupedMlps::sum_arguments(const Pass& pass,
                                                   const GroupedMemory& memory) const {
  return {.count = pointer_to<const std::int32_t>(pass.there),
          .places = memory.places,
          .mlps = pointer_to<const cuda::MlpMatrices>(setup_.mlps),
          .row_scales = memory.rows.row_scales,
          .sums = memory.sums,
          .inner = pointer_to<std::uint16_t>(pass.inner),
          .width = narrow<std::int32_t>(setup_.width),
          .limit = setup_.gating.limit,
          .alpha = setup_.gating.alpha,
          .offset = setup_.gating.offset};
}

void GroupedMlps::gate(const Pass& pass, const GroupedMemory& memory) {
  cuda::GroupSumArguments arguments = sum_arguments(pass, memory);
  setup_.device.launch(gate_groups_, a_block_each(pass.num_rows), &arguments);
}

/// Rows in nvfp4 take the place of those that gate and up have read.
void GroupedMlps::multiply_down(const Pass& pass, const GroupedMemory& memory, CudaAddress inner) {
  quantize(pass, memory,
           {.from = inner, .indices = 0, .depth = setup_.width, .scale = setup_.inner_scale});
  multiply(down_, memory.down, pass, memory);
  cuda::GroupSumArguments arguments = sum_arguments(pass, memory);
  arguments.sums = pointer_to<float>(pass.y);
  arguments.width = narrow<std::int32_t>(setup_.hidden);
  setup_.device.launch(scale_groups_, a_block_each(pass.num_rows), &arguments);
}

GroupedMemory GroupedMlps::begin(const Pass& pass) {
  const GroupedRoom most = room(pass.num_rows);
  require(pass.num_groups <= most.groups(), ErrorKind::internal,
          "{} groups of {} rows are more than there are MLPs", pass.num_groups, pass.num_rows);
  make_layouts_for(pass.num_groups);
  const GroupedMemory memory(most, pass.memory);
  place(pass, memory);
  return memory;
}

void GroupedMlps::start(const Pass& pass) {
  if (pass.num_groups == 0) return;
  const GroupedMemory memory = begin(pass);
  quantize(pass, memory,
           {.from = pass.x,
            .indices = pass.row_indices,
            .depth = setup_.hidden,
            .scale = setup_.x_scale});
  multiply(gate_up_, memory.gate_up, pass, memory);
  gate(pass, memory);
  multiply_down(pass, memory, pass.inner);
}

void GroupedMlps::start_down(const Pass& pass) {
  if (pass.num_groups == 0) return;
  multiply_down(pass, begin(pass), pass.x);
}

}  // namespace moesaic
