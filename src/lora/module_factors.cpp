#include "src/lora/module_factors.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "src/checkpoint/matrix_source.h"

namespace moesaic {
namespace {

std::vector<float> values_of(const TensorView& tensor) {
  const MatrixSource source(tensor);
  std::vector<float> values(static_cast<std::size_t>(source.rows() * source.cols()));
  source.read_rows(0, source.rows(), std::span(values));
  return values;
}

/// Where ranks are rows, that of rank r of expert e is e * rank + r, where they are columns
/// r * experts + e.
struct Ranks {
  std::size_t experts;
  std::size_t rank;

  template <typename Call>
  void for_each(const Call& call) const {
    for (std::size_t e = 0; e < experts; ++e) {
      for (std::size_t r = 0; r < rank; ++r) call(e * rank + r, r * experts + e);
    }
  }
  [[nodiscard]] std::size_t count() const { return experts * rank; }
};

Ranks ranks_of(const PeftModule& module, std::size_t count) {
  const auto experts = static_cast<std::size_t>(std::max<std::int64_t>(module.experts, 1));
  return {experts, count / experts};
}

/// [ranks, n] of [n, ranks].
std::vector<float> as_rows(const std::vector<float>& columns, const Ranks& ranks) {
  std::vector<float> rows(columns.size());
  const std::size_t n = columns.size() / ranks.count();
  ranks.for_each([&](std::size_t row, std::size_t column) {
    for (std::size_t i = 0; i < n; ++i) rows[row * n + i] = columns[i * ranks.count() + column];
  });
  return rows;
}

/// [n, ranks] of [ranks, n].
std::vector<float> as_columns(const std::vector<float>& rows, const Ranks& ranks) {
  std::vector<float> columns(rows.size());
  const std::size_t n = rows.size() / ranks.count();
  ranks.for_each([&](std::size_t row, std::size_t column) {
    for (std::size_t i = 0; i < n; ++i) columns[i * ranks.count() + column] = rows[row * n + i];
  });
  return columns;
}

/// Calls for the rows of gate and up, which take turns, with their places where gate comes first.
template <typename Call>
void for_each_turn(std::size_t rows, const Call& call) {
  for (std::size_t row = 0; row < rows; ++row) call(row, row / 2 + (row % 2) * (rows / 2));
}

void copy_row(const std::vector<float>& from, std::size_t row, std::vector<float>& to,
              std::size_t to_row, std::size_t cols) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(row * cols);
  std::copy_n(begin, cols, to.begin() + static_cast<std::ptrdiff_t>(to_row * cols));
}

/// A tensor's name and file, for messages, with other values.
TensorView view_of(const TensorView& like, const std::vector<float>& values, std::int64_t rows) {
  TensorView view = like;
  view.dtype = DType::f32;
  view.shape = {rows, std::ssize(values) / rows};
  view.bytes = std::as_bytes(std::span(values));
  return view;
}

}  // namespace

ModuleFactors::ModuleFactors(const PeftModule& module, const TensorView& a, const TensorView& b)
    : a_(a), b_(b) {
  if (!module.is_swapped && !module.takes_turns) return;
  const auto count = static_cast<std::size_t>(a.shape.at(0));
  b_values_ = values_of(module.is_swapped ? a : b);
  if (module.is_swapped) {
    const Ranks ranks = ranks_of(module, count);
    a_values_ = as_rows(values_of(b), ranks);
    b_values_ = as_columns(b_values_, ranks);
    a_ = view_of(b, a_values_, a.shape.at(0));
  }
  if (module.takes_turns) {
    const std::vector<float> by_turns = b_values_;
    for_each_turn(static_cast<std::size_t>(module.out), [&](std::size_t turn, std::size_t row) {
      copy_row(by_turns, turn, b_values_, row, count);
    });
  }
  b_ = view_of(module.is_swapped ? a : b, b_values_, module.out);
}

FileFactors in_file_order(const PeftModule& module, std::vector<float> a, std::vector<float> b) {
  const std::size_t count = b.size() / static_cast<std::size_t>(module.out);
  if (module.takes_turns) {
    const std::vector<float> rows = b;
    for_each_turn(static_cast<std::size_t>(module.out),
                  [&](std::size_t turn, std::size_t row) { copy_row(rows, row, b, turn, count); });
  }
  if (!module.is_swapped) return {std::move(a), std::move(b)};
  const Ranks ranks = ranks_of(module, count);
  FileFactors factors{.a = as_rows(b, ranks), .b = {}};
  b = {};
  factors.b = as_columns(a, ranks);
  return factors;
}

}  // namespace moesaic
