#include "kernels/grouped_gemm.h"

#include <algorithm>

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

/// Gate and up of one MLP are read together.
bool are_alike(const PackedMatrix& gate, const PackedMatrix& up) {
  return up.layout == gate.layout && up.depth == gate.depth && up.rows == gate.rows &&
         same_order(gate, up);
}

template <typename Group>
void check_epilogue(const Group& group, const PackedMatrix& weights, const Epilogue& epilogue) {
  const auto fits = [&](const MatrixView<const float>& matrix) {
    return matrix.data() == nullptr ||
           (matrix.rows() >= group.first_row + group.num_rows && matrix.cols() == weights.rows);
  };
  require(fits(epilogue.addend) && fits(epilogue.keep), ErrorKind::internal,
          "a product of rows up to {} with {} columns has an addend of {} x {} or keeps {} x {}",
          group.first_row + group.num_rows, weights.rows, epilogue.addend.rows(),
          epilogue.addend.cols(), epilogue.keep.rows(), epilogue.keep.cols());
  const LowRank& low_rank = epilogue.low_rank;
  require(
      low_rank.matrix.panels == nullptr ||
          (low_rank.matrix.rows == weights.rows && low_rank.inner.cols() == low_rank.matrix.depth &&
           low_rank.inner.rows() >= group.first_row + group.num_rows),
      ErrorKind::internal,
      "a product of rows up to {} with {} columns goes on with {} x {} times a matrix {} x {}",
      group.first_row + group.num_rows, weights.rows, low_rank.inner.rows(), low_rank.inner.cols(),
      low_rank.matrix.rows, low_rank.matrix.depth);
  const PackedMatrix& projection = low_rank.projection;
  require(projection.panels == nullptr ||
              (can_project(weights, projection) && projection.depth == weights.depth &&
               projection.rows == low_rank.inner.cols()),
          ErrorKind::internal, "a product with {} columns projects to {} by a {} matrix {} x {}",
          weights.depth, low_rank.inner.cols(), format_name(projection.layout.format),
          projection.rows, projection.depth);
}

void check_gate_and_up(const RowSource& input, const MlpGroup& group) {
  const PackedMatrix& gate = group.weights.gate;
  const PackedMatrix& up = group.weights.up;
  check_group(input, group.first_row, group.num_rows, gate);
  require(are_alike(gate, up), ErrorKind::internal,
          "a gate of {} x {} {} and an up matrix of {} x {} {}", gate.rows, gate.depth,
          format_name(gate.layout.format), up.rows, up.depth, format_name(up.layout.format));
  check_epilogue(group, gate, group.gate_epilogue);
  check_epilogue(group, up, group.up_epilogue);
}

void check_mlp(const RowSource& input, const MlpGroup& group, std::int64_t width) {
  check_gate_and_up(input, group);
  const PackedMatrix& gate = group.weights.gate;
  const PackedMatrix& down = group.weights.down;
  require(gate.rows == width && down.depth == width, ErrorKind::internal,
          "an MLP of width {} with a gate of {} x {} and a down matrix of {} x {}", width,
          gate.rows, gate.depth, down.rows, down.depth);
  check_epilogue(group, down, group.down_epilogue);
}

/// call(first_row, num_rows) for the slabs of a group, of nearly equal size: all panels are read,
/// and decoded, once a slab.
template <typename Group, typename Call>
void for_each_slab(const Group& group, const Call& call) {
  const std::int64_t slabs = JobGraph::slab_count(group.num_rows);
  if (slabs == 0) return;
  const std::int64_t most = round_up(divide_up(group.num_rows, slabs), kRowBlock);
  for (std::int64_t row = 0; row < group.num_rows; row += most) {
    call(group.first_row + row, std::min(most, group.num_rows - row));
  }
}

}  // namespace

bool same_order(const PackedMatrix& a, const PackedMatrix& b) noexcept {
  if (a.order == b.order) return true;
  return a.order != nullptr && b.order != nullptr &&
         std::equal(a.order, a.order + a.depth, b.order);
}

bool can_project(const PackedMatrix& weights, const PackedMatrix& projection) noexcept {
  return weights.layout.format == projection.layout.format && weights.order == nullptr;
}

void LowRank::set_inner(std::int64_t first_row, const MatrixView<const float>& products) const {
  for (std::int64_t row = 0; row < products.rows(); ++row) {
    std::ranges::transform(products.row(row), inner.row(first_row + row).begin(),
                           [&](float product) { return product * scale; });
  }
}

GroupedGemm::GroupedGemm(const Compute& compute) : plan_(std::make_unique<GemmPlan>(compute)) {}

GroupedGemm::~GroupedGemm() = default;

void GroupedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                      const GemmOutput& output) {
  std::int64_t all_panels = 0;  // times slabs
  for (const GemmGroup& group : groups) {
    check_group(input, group.first_row, group.num_rows, group.weights);
    check_epilogue(group, group.weights, group.epilogue);
    all_panels += group.weights.num_panels() * JobGraph::slab_count(group.num_rows);
  }
  plan_->begin(groups.size());
  for (const GemmGroup& group : groups) {
    plan_->add_product(
        {.input = &input, .output = output, .weights = group.weights, .epilogue = group.epilogue},
        all_panels);
    for_each_slab(group, [&](std::int64_t first_row, std::int64_t num_rows) {
      plan_->add_in_turn(plan_->add_slab(first_row, num_rows));
    });
  }
  plan_->execute({});
}

void GroupedGemm::run_gated(const RowSource& input, std::span<const MlpGroup> groups,
                            const Gating& gating, const GemmOutput& output) {
  std::int64_t all_panels = 0;  // times slabs
  for (const MlpGroup& group : groups) {
    check_gate_and_up(input, group);
    all_panels += 2 * group.weights.gate.num_panels() * JobGraph::slab_count(group.num_rows);
  }
  plan_->begin(groups.size());
  for (const MlpGroup& group : groups) {
    plan_->add_product({.input = &input,
                        .output = output,
                        .weights = group.weights.gate,
                        .up = group.weights.up,
                        .epilogue = group.gate_epilogue,
                        .up_epilogue = group.up_epilogue},
                       all_panels);
    for_each_slab(group, [&](std::int64_t first_row, std::int64_t num_rows) {
      plan_->add_in_turn(plan_->add_slab(first_row, num_rows));
    });
  }
  plan_->execute(gating);
}

void GroupedGemm::run_mlp(const RowSource& input, std::span<const MlpGroup> groups,
                          const Gating& gating, const GemmOutput& output) {
  if (groups.empty()) return;
  const std::int64_t width = groups.front().weights.gate.rows;
  std::int64_t inner_panels = 0;  // times slabs
  std::int64_t outer_panels = 0;
  for (const MlpGroup& group : groups) {
    check_mlp(input, group, width);
    const std::int64_t slabs = JobGraph::slab_count(group.num_rows);
    inner_panels += 2 * slabs * group.weights.gate.num_panels();
    outer_panels += slabs * group.weights.down.num_panels();
  }
  plan_->begin(2 * groups.size());
  slabs_.clear();  // the inner one and the outer one of each
  for (const MlpGroup& group : groups) {
    const std::size_t first = slabs_.size();
    plan_->add_product({.input = &input,
                        .output = {},
                        .weights = group.weights.gate,
                        .up = group.weights.up,
                        .epilogue = group.gate_epilogue,
                        .up_epilogue = group.up_epilogue},
                       inner_panels);
    for_each_slab(group, [&](std::int64_t first_row, std::int64_t num_rows) {
      slabs_.push_back(plan_->add_inner_slab(first_row, num_rows, input.element));
      slabs_.push_back(0);
    });
    plan_->add_product({.input = nullptr,
                        .output = output,
                        .weights = group.weights.down,
                        .epilogue = group.down_epilogue},
                       outer_panels);
    for (std::size_t i = first; i < slabs_.size(); i += 2) {
      slabs_[i + 1] = plan_->add_outer_slab(slabs_[i]);
    }
  }
  add_mlp_jobs();
  plan_->execute(gating);
}

/// The outer product of a slab comes one slab after its inner one: while its last inner jobs are at
/// work, the other threads have the next slab's to do.
void GroupedGemm::add_mlp_jobs() {
  if (slabs_.empty()) return;
  plan_->add_pack_jobs(slabs_[0]);
  for (std::size_t i = 0; i <= slabs_.size(); i += 2) {
    if (i + 2 < slabs_.size()) plan_->add_pack_jobs(slabs_[i + 2]);
    if (i < slabs_.size()) plan_->add_multiply_jobs(slabs_[i]);
    if (i == 0) continue;
    plan_->add_pack_jobs(slabs_[i - 1]);
    plan_->add_multiply_jobs(slabs_[i - 1]);
  }
}

std::int64_t GroupedGemm::scratch_bytes() const noexcept {
  return plan_->scratch_bytes();
}

}  // namespace moesaic
