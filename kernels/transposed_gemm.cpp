#include "kernels/transposed_gemm.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/transposed_panels.h"
#include "kernels/transposed_plan.h"

namespace moesaic {
namespace {

/// Rows that go on with a narrow matrix: its columns are those of W as they are, not in an order.
void check_low_rank(const GemmGroup& group) {
  const LowRank& low_rank = group.epilogue.low_rank;
  if (low_rank.matrix.panels == nullptr) return;
  require(low_rank.matrix.depth == group.weights.depth && group.weights.order == nullptr &&
              low_rank.inner.cols() == low_rank.matrix.rows &&
              low_rank.inner.rows() >= group.first_row + group.num_rows,
          ErrorKind::internal,
          "a transposed product with {} columns goes on with {} x {} times a matrix {} x {}",
          group.weights.depth, low_rank.inner.rows(), low_rank.inner.cols(), low_rank.matrix.rows,
          low_rank.matrix.depth);
  const PackedMatrix& projection = low_rank.projection;
  require(projection.panels == nullptr ||
              (TransposedGemm::can_project(group.weights, projection) &&
               projection.rows == group.weights.rows && projection.depth == low_rank.inner.cols()),
          ErrorKind::internal, "a transposed product of {} rows projects to {} by a matrix {} x {}",
          group.weights.rows, low_rank.inner.cols(), projection.rows, projection.depth);
}

void check_group(const RowSource& input, const GemmGroup& group) {
  const MatrixView<const float>& addend = group.epilogue.addend;
  const bool has_sum =
      addend.data() == nullptr ||
      (addend.cols() == group.weights.depth && addend.rows() >= group.first_row + group.num_rows);
  require(has_sum && group.epilogue.bias == nullptr && group.epilogue.keep.data() == nullptr,
          ErrorKind::internal, "a transposed product with {} columns and an addend of {} x {}",
          group.weights.depth, addend.rows(), addend.cols());
  require(group.weights.rows == input.depth && group.first_row >= 0 && group.num_rows >= 0 &&
              group.first_row + group.num_rows <= input.num_rows,
          ErrorKind::internal,
          "a transposed product of rows {} to {} of {}, depth {}, with a {} matrix {} x {}",
          group.first_row, group.first_row + group.num_rows, input.num_rows, input.depth,
          format_name(group.weights.layout.format), group.weights.rows, group.weights.depth);
}

/// What is added has the form of what it is added to.
void check_term(const GemmGroup& group, const GemmGroup& first) {
  const auto is_f32 = [](const PackedMatrix& matrix) {
    return matrix.layout.format == Format::f32;
  };
  require(group.first_row == first.first_row && group.num_rows == first.num_rows &&
              group.weights.depth == first.weights.depth &&
              same_order(group.weights, first.weights) &&
              is_f32(group.weights) == is_f32(first.weights),
          ErrorKind::internal, "transposed products of different forms are added");
}

void check_products(std::span<const TransposedProduct> products) {
  const std::span<const GemmGroup> first = products.front().groups;
  for (const auto& [input, groups] : products) {
    require(groups.size() == first.size(), ErrorKind::internal,
            "transposed products of {} and of {} groups are added", first.size(), groups.size());
    for (std::size_t i = 0; i < groups.size(); ++i) {
      check_group(input, groups[i]);
      check_low_rank(groups[i]);
      check_term(groups[i], first[i]);
    }
  }
}

}  // namespace

TransposedGemm::TransposedGemm(const Compute& compute)
    : plan_(std::make_unique<TransposedPlan>(compute)) {}

TransposedGemm::~TransposedGemm() = default;

void TransposedGemm::run(const RowSource& input, std::span<const GemmGroup> groups,
                         const GemmOutput& output) {
  const TransposedProduct product{input, groups};
  run({&product, 1}, output);
}

void TransposedGemm::run(std::span<const TransposedProduct> products, const GemmOutput& output) {
  check_products(products);
  plan_->run(products, output);
}

std::int64_t TransposedGemm::packed_bytes(const GemmKernel& kernel, const Size& size, int threads) {
  const std::int64_t jobs = divide_up(size.columns, kTransposedSteps * kStepDepth);
  const std::int64_t slabs =
      JobGraph::slab_count(size.rows) * divide_up(size.depth, TransposedPlan::kPieceDepth);
  const auto row_bytes = static_cast<std::int64_t>(
      kernel.packed_row_bytes(std::min(size.depth, TransposedPlan::kPieceDepth)));
  return std::min(slabs, JobGraph::most_slabs_in_turn(jobs, threads)) *
         round_up(std::min(size.rows, JobGraph::kSlabRows) * row_bytes, 64);
}

std::int64_t TransposedGemm::scratch_bytes() const noexcept {
  return plan_->scratch_bytes();
}

bool TransposedGemm::rounds_rows(const PackedMatrix& weights) noexcept {
  return weights.layout.format != Format::f32 && !has_row_scales(weights);
}

bool TransposedGemm::can_project(const PackedMatrix& weights,
                                 const PackedMatrix& projection) noexcept {
  if (weights.layout.format == Format::f32) return projection.layout.format == Format::f32;
  return rounds_rows(weights) && projection.layout.format == Format::bf16;
}

}  // namespace moesaic
