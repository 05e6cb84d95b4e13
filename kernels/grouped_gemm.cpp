#include "kernels/grouped_gemm.h"

#include <algorithm>

#include "src/base/error.h"

namespace moesaic {
namespace {

/// Rows of one task: their packed form and a few panels stay in a core's L2 cache together.
constexpr std::int64_t kMaxTaskRows = 256;
/// Panels of one task, when there is enough work to share out.
constexpr std::int64_t kMaxTaskPanels = 8;
/// Packed bytes below which a further split costs more than it balances.
constexpr std::int64_t kMinTaskBytes = std::int64_t{64} << 10;
/// Rows that one thread packs at a time.
constexpr std::int64_t kPackRows = 16;

/// A matrix of another form would be read beyond its end.
void check_groups(const RowSource& input, std::span<const GemmGroup> groups) {
  const Format format = groups.front().weights.format;
  for (const GemmGroup& group : groups) {
    const PackedMatrix& weights = group.weights;
    require(weights.format == format && weights.depth == input.depth && group.first_row >= 0 &&
                group.first_row + group.num_rows <= input.num_rows,
            ErrorKind::internal, "a product of {} rows of depth {} with a {} matrix of depth {}",
            input.num_rows, input.depth, format_name(weights.format), weights.depth);
    const PackedMatrix& up = group.up;
    require(up.panels == nullptr || (up.format == format && up.depth == weights.depth &&
                                     up.rows == weights.rows && group.bias == nullptr),
            ErrorKind::internal, "a gate of {} x {} {} with an up matrix of {} x {} {}",
            weights.rows, weights.depth, format_name(format), up.rows, up.depth,
            format_name(up.format));
  }
}

std::byte* output_row(const GemmOutput& output, std::int64_t row) {
  return output.data + row * output.stride_bytes;
}

}  // namespace

struct GroupedGemm::Call {
  const GemmKernel& kernel;
  std::int64_t depth;
  std::int64_t row_bytes;  // of a packed row
  const std::byte* packed_rows;
  const GemmOutput& output;
};

GroupedGemm::GroupedGemm(const Compute& compute)
    : compute_(compute), scratch_(static_cast<std::size_t>(compute.pool->size())) {}

GroupedGemm::~GroupedGemm() = default;

void GroupedGemm::pack(const RowSource& input, const GemmKernel& kernel) {
  const auto row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(input.depth));
  packed_rows_.reserve(input.num_rows * row_bytes);
  const std::int64_t num_chunks = (input.num_rows + kPackRows - 1) / kPackRows;
  compute_.pool->parallel_for(num_chunks, [&](std::int64_t chunk, int) {
    const std::int64_t first = chunk * kPackRows;
    RowSource part = input;
    part.rows += first;
    part.num_rows = std::min(kPackRows, input.num_rows - first);
    kernel.pack_rows(part, packed_rows_.data() + first * row_bytes);
  });
}

void GroupedGemm::plan(std::span<const GemmGroup> groups, std::int64_t panel_bytes) {
  std::int64_t total_panels = 0;  // times row blocks
  for (const GemmGroup& group : groups) {
    total_panels +=
        group.weights.num_panels() * ((group.num_rows + kMaxTaskRows - 1) / kMaxTaskRows);
  }
  // About eight tasks a thread even out what neighbours on the machine take away.
  const std::int64_t even_share = total_panels / (std::int64_t{8} * compute_.pool->size());
  const std::int64_t least = std::max<std::int64_t>(1, kMinTaskBytes / panel_bytes);
  const std::int64_t task_panels =
      std::clamp(even_share, std::min(least, kMaxTaskPanels), kMaxTaskPanels);

  tasks_.clear();
  for (const GemmGroup& group : groups) {
    for (std::int64_t row = 0; row < group.num_rows; row += kMaxTaskRows) {
      for (std::int64_t panel = 0; panel < group.weights.num_panels(); panel += task_panels) {
        tasks_.push_back({.group = &group,
                          .first_row = group.first_row + row,
                          .num_rows = std::min(kMaxTaskRows, group.num_rows - row),
                          .first_panel = panel,
                          .num_panels = std::min(task_panels, group.weights.num_panels() - panel)});
      }
    }
  }
}

void GroupedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                      const GemmOutput& output) {
  if (groups.empty() || input.num_rows == 0) return;
  check_groups(input, groups);
  const Format format = groups.front().weights.format;
  const GemmKernel& kernel = compute_.gemm(format);
  pack(input, kernel);
  plan(groups, panel_bytes(format, input.depth));
  const Call call{.kernel = kernel,
                  .depth = input.depth,
                  .row_bytes = static_cast<std::int64_t>(kernel.packed_row_bytes(input.depth)),
                  .packed_rows = packed_rows_.data(),
                  .output = output};
  compute_.pool->parallel_for(static_cast<std::int64_t>(tasks_.size()),
                              [&](std::int64_t index, int worker) {
                                run_task(call, tasks_[static_cast<std::size_t>(index)],
                                         scratch_[static_cast<std::size_t>(worker)]);
                              });
}

void GroupedGemm::run_task(const Call& call, const Task& task, Buffer<float>& scratch) const {
  const GemmGroup& group = *task.group;
  const bool gated = group.up.panels != nullptr;
  const bool to_float = call.output.element == RowSource::Element::f32;
  const std::int64_t padded = task.num_panels * kPanelColumns;
  const std::int64_t first_column = task.first_panel * kPanelColumns;
  const std::int64_t columns = std::min(padded, group.weights.rows - first_column);

  TileArgs args{.packed_rows = call.packed_rows + task.first_row * call.row_bytes,
                .num_rows = task.num_rows,
                .panels = group.weights.panel(task.first_panel),
                .num_panels = task.num_panels,
                .depth = call.depth};
  // Whole panels of plain f32 results need no detour.
  const bool direct = !gated && to_float && columns == padded && call.output.stride_bytes % 4 == 0;
  if (direct) {
    args.out = reinterpret_cast<float*>(output_row(call.output, task.first_row)) + first_column;
    args.out_stride = call.output.stride_bytes / 4;
  } else {
    scratch.reserve(2 * kMaxTaskRows * kMaxTaskPanels * kPanelColumns);
    args.out = scratch.data();
    args.out_stride = padded;
  }
  call.kernel.tile(args);
  float* const up = gated ? scratch.data() + task.num_rows * padded : nullptr;
  if (gated) {
    args.panels = group.up.panel(task.first_panel);
    args.out = up;
    call.kernel.tile(args);
  }
  if (direct && group.bias == nullptr) return;

  for (std::int64_t row = 0; row < task.num_rows; ++row) {
    std::byte* const out = output_row(call.output, task.first_row + row);
    float* const values =
        direct ? reinterpret_cast<float*>(out) + first_column : scratch.data() + row * padded;
    if (gated) compute_.vector->silu_mul(values, up + row * padded, columns, values);
    if (group.bias != nullptr) {
      for (std::int64_t i = 0; i < columns; ++i) values[i] += group.bias[first_column + i];
    }
    if (!to_float) {
      compute_.vector->to_bf16(values, columns, reinterpret_cast<BFloat16*>(out) + first_column);
    } else if (!direct) {
      std::copy_n(values, columns, reinterpret_cast<float*>(out) + first_column);
    }
  }
}

}  // namespace moesaic
