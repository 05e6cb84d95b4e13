#include "src/model/head_products.h"

namespace moesaic {
namespace {

/// Rows [first, first + count) of a matrix; multiples of kPanelColumns.
PackedMatrix rows_at(const PackedMatrix& all, std::int64_t first, std::int64_t count) {
  PackedMatrix part = all;
  part.rows = count;
  part.panels = all.panel(first / kPanelColumns);
  return part;
}

/// The heads' rows, head by head; `pointers` holds them.
RowSource rows_of(const HeadRange& heads, const HeadRows<const float>& matrix, std::int64_t depth,
                  std::vector<const std::byte*>& pointers) {
  pointers.resize(static_cast<std::size_t>(heads.all_rows()));
  auto next = pointers.begin();
  for (std::int64_t i = 0; i < heads.count; ++i) {
    for (std::int64_t row = 0; row < heads.rows; ++row) {
      *next++ = reinterpret_cast<const std::byte*>(matrix.at(row, i));
    }
  }
  return {.rows = pointers.data(), .num_rows = heads.all_rows(), .depth = depth};
}

}  // namespace

void HeadProducts::set(const HeadMatrix& matrix, const HeadRange& heads) {
  groups_.clear();
  parts_.clear();
  adapted_.clear();
  for (std::int64_t i = 0; i < heads.count; ++i) {
    const std::int64_t head = heads.first + i;
    groups_.push_back({.first_row = i * heads.rows,
                       .num_rows = heads.rows,
                       .weights = rows_at(matrix.all, head * matrix.rows, matrix.rows)});
    if (matrix.adapter == nullptr) continue;
    Adapter& part = parts_.emplace_back(*matrix.adapter);
    part.first_b_row = head * matrix.module_rows + matrix.first_row;
    part.b = rows_at(part.b, part.first_b_row, matrix.rows);
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    adapted_.push_back({groups_[i].first_row, groups_[i].num_rows, &parts_[i]});
  }
}

MatrixView<float> HeadProducts::inner_rows(const HeadMatrix& matrix, const HeadRange& heads,
                                           Buffer<float>& buffer) {
  const std::int64_t rank = matrix.adapter->rank();
  buffer.reserve(heads.all_rows() * rank);
  return buffer.matrix(heads.all_rows(), rank);
}

void HeadProducts::forward(const HeadMatrix& matrix, const HeadRange& heads,
                           HeadRows<const float> x, MatrixView<float> y) {
  set(matrix, heads);
  const RowSource source = rows_of(heads, x, matrix.all.depth, x_rows_);
  if (matrix.adapter != nullptr) {
    const MatrixView<float> inner = inner_rows(matrix, heads, inner_);
    const bool projects = can_project(matrix.all, matrix.adapter->a);
    if (!projects) adapters_.project(source, adapted_, inner);
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      groups_[i].epilogue.low_rank = forward_terms(parts_[i], inner, projects);
    }
  }
  gemm_.run(source, groups_, output_of(y));
}

void HeadProducts::transposed(const HeadMatrix& matrix, const HeadRange& heads,
                              HeadRows<const float> y, MatrixView<float> x) {
  set(matrix, heads);
  const RowSource source = rows_of(heads, y, matrix.rows, y_rows_);
  if (matrix.adapter == nullptr) return adapters_.transposed().run(source, groups_, output_of(x));
  const MatrixView<float> back = inner_rows(matrix, heads, back_);
  const bool along = goes_along(matrix.all, {});
  const bool projects = along && TransposedGemm::can_project(matrix.all, matrix.adapter->b);
  if (!projects) adapters_.project_back(source, adapted_, back);
  for (std::size_t i = 0; along && i < groups_.size(); ++i) {
    groups_[i].epilogue.low_rank = backward_terms(parts_[i], back, projects);
  }
  adapters_.transposed().run(source, groups_, output_of(x));
  if (!along) adapters_.pass_back(back, adapted_, x);
}

AdapterGradientInput HeadProducts::gradient_input(const HeadMatrix& matrix, const HeadRange& heads,
                                                  const Backward& pass) {
  samples_.clear();
  for (const AdapterRows& head : adapted_) {
    for (const SampleRange& sample : pass.samples) {
      samples_.push_back({head.first_row + sample.first_row, sample.num_rows});
    }
  }
  return {.x = rows_of(heads, pass.x, matrix.all.depth, x_rows_),
          .dy = rows_of(heads, pass.y, matrix.rows, y_rows_),
          .inner = inner_rows(matrix, heads, inner_),
          .back = inner_rows(matrix, heads, back_),
          .samples = samples_};
}

void HeadProducts::backward(const HeadMatrix& matrix, const HeadRange& heads, const Backward& pass,
                            AdapterGradients& gradients) {
  transposed(matrix, heads, pass.y, pass.gradient);  // which makes back_
  if (matrix.adapter == nullptr) return;
  const AdapterGradientInput input = gradient_input(matrix, heads, pass);
  adapters_.project(input.x, adapted_, input.inner);
  adapters_.add_gradients(input, adapted_, gradients);
}

void HeadProducts::transposed_backward(const HeadMatrix& matrix, const HeadRange& heads,
                                       const Backward& pass, AdapterGradients& gradients) {
  forward(matrix, heads, pass.x, pass.gradient);  // which makes inner_
  if (matrix.adapter == nullptr) return;
  const AdapterGradientInput input = gradient_input(matrix, heads, pass);
  adapters_.project_back(input.dy, adapted_, input.back);
  adapters_.add_gradients(input, adapted_, gradients);
}

}  // namespace moesaic
