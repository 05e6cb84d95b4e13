#include "kernels/grouped_gemm.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/gemm_plan.h"

namespace moesaic {
namespace {

/// A matrix of another form would be read beyond its end.
void check_group(const RowSource& input, std::int64_t first_row, std::int64_t num_rows,
                 const PackedMatrix& weights) {
  require(weights.depth == input.depth && first_row >= 0 && num_rows >= 0 &&
              first_row + num_rows <= input.num_rows,
          ErrorKind::internal,
          "a product of rows {} to {} of {}, depth {}, with a {} matrix {} x {}", first_row,
          first_row + num_rows, input.num_rows, input.depth, format_name(weights.layout.format),
          weights.rows, weights.depth);
}

bool same_order(const PackedMatrix& a, const PackedMatrix& b) {
  if (a.order == b.order) return true;
  return a.order != nullptr && b.order != nullptr &&
         std::equal(a.order, a.order + a.depth, b.order);
}

void check_mlp(const MlpGroup& group, std::int64_t width) {
  const PackedMatrix& gate = group.gate;
  const PackedMatrix& up = group.up;
  require(up.layout == gate.layout && up.depth == gate.depth && up.rows == gate.rows &&
              same_order(gate, up) && gate.rows == width && group.down.depth == width,
          ErrorKind::internal,
          "an MLP of width {} with a gate of {} x {} {}, an up matrix of {} x {} {} and a down "
          "matrix of {} x {}",
          width, gate.rows, gate.depth, format_name(gate.layout.format), up.rows, up.depth,
          format_name(up.layout.format), group.down.rows, group.down.depth);
}

}  // namespace

GroupedGemm::GroupedGemm(const Compute& compute) : plan_(std::make_unique<GemmPlan>(compute)) {}

GroupedGemm::~GroupedGemm() = default;

void GroupedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                      const GemmOutput& output) {
  std::int64_t all_panels = 0;  // times slabs
  for (const GemmGroup& group : groups) {
    check_group(input, group.first_row, group.num_rows, group.weights);
    all_panels += group.weights.num_panels() *
                  ((group.num_rows + GemmPlan::kSlabRows - 1) / GemmPlan::kSlabRows);
  }
  plan_->begin(groups.size());
  std::vector<std::size_t> slabs;
  for (const GemmGroup& group : groups) {
    plan_->add_product(
        {.input = &input, .output = output, .weights = group.weights, .bias = group.bias},
        all_panels);
    for (std::int64_t row = 0; row < group.num_rows; row += GemmPlan::kSlabRows) {
      slabs.push_back(plan_->add_slab(group.first_row + row,
                                      std::min(GemmPlan::kSlabRows, group.num_rows - row)));
    }
  }
  for (std::size_t i = 0; i < slabs.size(); ++i) {
    if (i == 0) plan_->add_pack_jobs(slabs[i]);
    if (i + 1 < slabs.size()) plan_->add_pack_jobs(slabs[i + 1]);  // before it is waited for
    plan_->add_multiply_jobs(slabs[i]);
  }
  plan_->execute({});
}

void GroupedGemm::run_mlp(const RowSource& input, std::span<const MlpGroup> groups,
                          const Gating& gating, const GemmOutput& output) {
  if (groups.empty()) return;
  const std::int64_t width = groups.front().gate.rows;
  std::int64_t inner_panels = 0;  // times slabs
  std::int64_t outer_panels = 0;
  for (const MlpGroup& group : groups) {
    check_group(input, group.first_row, group.num_rows, group.gate);
    check_mlp(group, width);
    const std::int64_t slabs = (group.num_rows + GemmPlan::kSlabRows - 1) / GemmPlan::kSlabRows;
    inner_panels += 2 * slabs * group.gate.num_panels();
    outer_panels += slabs * group.down.num_panels();
  }
  const GemmOutput inner = plan_->inner_output(input.num_rows, width, input.element);
  const RowSource inner_input{.rows = plan_->inner_rows(),
                              .num_rows = input.num_rows,
                              .depth = width,
                              .element = input.element};
  struct SlabPair {
    std::size_t inner;
    std::size_t outer;
  };
  std::vector<SlabPair> slabs;
  plan_->begin(2 * groups.size());
  for (const MlpGroup& group : groups) {
    const std::size_t first = slabs.size();
    plan_->add_product({.input = &input,
                        .output = inner,
                        .weights = group.gate,
                        .up = group.up,
                        .bias = group.gate_bias,
                        .up_bias = group.up_bias},
                       inner_panels);
    for (std::int64_t row = 0; row < group.num_rows; row += GemmPlan::kSlabRows) {
      const std::int64_t rows = std::min(GemmPlan::kSlabRows, group.num_rows - row);
      slabs.push_back({plan_->add_slab(group.first_row + row, rows), 0});
    }
    plan_->add_product(
        {.input = &inner_input, .output = output, .weights = group.down, .bias = group.down_bias},
        outer_panels);
    for (std::size_t i = first; i < slabs.size(); ++i) {
      const std::int64_t row = static_cast<std::int64_t>(i - first) * GemmPlan::kSlabRows;
      slabs[i].outer = plan_->add_slab(group.first_row + row,
                                       std::min(GemmPlan::kSlabRows, group.num_rows - row),
                                       static_cast<std::ptrdiff_t>(slabs[i].inner));
    }
  }
  if (slabs.empty()) return;
  // The outer product of a slab comes one slab after its inner one: while its last inner jobs are
  // at work, the other threads have the next slab's to do.
  for (std::size_t i = 0; i <= slabs.size(); ++i) {
    if (i == 0) plan_->add_pack_jobs(slabs[0].inner);
    if (i + 1 < slabs.size()) plan_->add_pack_jobs(slabs[i + 1].inner);
    if (i < slabs.size()) plan_->add_multiply_jobs(slabs[i].inner);
    if (i == 0) continue;
    plan_->add_pack_jobs(slabs[i - 1].outer);
    plan_->add_multiply_jobs(slabs[i - 1].outer);
  }
  plan_->execute(gating);
}

}  // namespace moesaic
