#include "tests/kernels/attention_gradient_case.h"

#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

Matrix as_floats(const Doubles& rows, std::int64_t dim) {
  Matrix out;
  for (std::size_t i = 0; i < rows.size(); i += static_cast<std::size_t>(dim)) {
    for (std::size_t d = 0; d < static_cast<std::size_t>(dim); ++d) {
      out.push_back(static_cast<float>(rows[i + d]));
    }
    out.insert(out.end(), kGradientGap, NAN);
  }
  return out;
}

}  // namespace

void GradientCase::fill() {
  const auto numbers = [&](std::int64_t dim, unsigned seed, float scale, bool exact) {
    Doubles out;
    for (const float x : normal_numbers(num_rows * dim, seed, scale)) {
      out.push_back(exact ? to_float(to_bfloat16(x)) : x);
    }
    return out;
  };
  queries = numbers(head_dim, 1, size, of_bf16);
  keys = numbers(head_dim, 2, 1, of_bf16);
  values = numbers(value_dim, 3, 1, of_bf16);
  gradients = numbers(value_dim, 4, 1, of_bf16);
  results.assign(static_cast<std::size_t>(num_rows * value_dim), 0);
  log_sum_exps.resize(static_cast<std::size_t>(num_rows));
  for (std::int64_t row = 0; row < num_rows; ++row) forward(row);
}

double GradientCase::scale() const {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
}

std::int64_t GradientCase::first_key(std::int64_t row) const {
  return window > 0 ? std::max<std::int64_t>(0, row + 1 - window) : 0;
}

double GradientCase::score(std::int64_t row, std::int64_t key) const {
  double sum = 0;
  for (std::int64_t d = 0; d < head_dim; ++d) {
    sum += at(queries, row, head_dim, d) * at(keys, key, head_dim, d);
  }
  return sum * scale();
}

void GradientCase::forward(std::int64_t row) {
  double greatest = -HUGE_VAL;
  for (std::int64_t key = first_key(row); key <= row; ++key) {
    greatest = std::max(greatest, score(row, key));
  }
  double total = 0;
  for (std::int64_t key = first_key(row); key <= row; ++key) {
    total += std::exp(score(row, key) - greatest);
  }
  log_sum_exps[static_cast<std::size_t>(row)] = greatest + std::log(total);
  for (std::int64_t key = first_key(row); key <= row; ++key) {
    const double weight = std::exp(score(row, key) - log_sum_exps[static_cast<std::size_t>(row)]);
    for (std::int64_t d = 0; d < value_dim; ++d) {
      results[static_cast<std::size_t>(row * value_dim + d)] +=
          weight * at(values, key, value_dim, d);
    }
  }
}

double GradientCase::loss() {
  results.assign(results.size(), 0);
  for (std::int64_t row = 0; row < num_rows; ++row) forward(row);
  double sum = 0;
  for (std::size_t i = 0; i < results.size(); ++i) sum += results[i] * gradients[i];
  return sum;
}

GradientCase make_case(GradientCase test) {
  test.fill();
  return test;
}

ExpectedGradients GradientCase::expected() const {
  ExpectedGradients sums{Doubles(queries.size()), Doubles(keys.size()), Doubles(values.size())};
  const auto add = [](Doubles& rows, std::int64_t row, std::int64_t dim, std::int64_t d, double x) {
    rows[static_cast<std::size_t>(row * dim + d)] += x;
  };
  for (std::int64_t row = 0; row < num_rows; ++row) {
    double dot = 0;
    for (std::int64_t d = 0; d < value_dim; ++d) {
      dot += at(gradients, row, value_dim, d) * at(results, row, value_dim, d);
    }
    for (std::int64_t key = first_key(row); key <= row; ++key) {
      const double weight = std::exp(score(row, key) - log_sum_exps[static_cast<std::size_t>(row)]);
      double product = 0;
      for (std::int64_t d = 0; d < value_dim; ++d) {
        const double gradient = at(gradients, row, value_dim, d);
        product += gradient * at(values, key, value_dim, d);
        add(sums.values, key, value_dim, d, weight * gradient);
      }
      const double score_gradient = weight * (product - dot) * scale();
      for (std::int64_t d = 0; d < head_dim; ++d) {
        add(sums.queries, row, head_dim, d, score_gradient * at(keys, key, head_dim, d));
        add(sums.keys, key, head_dim, d, score_gradient * at(queries, row, head_dim, d));
      }
    }
  }
  return sums;
}

AttentionGradients GradientCase::run(const AttentionKernel& kernel, float untouched) const {
  const auto in = [&](const Doubles& rows, std::int64_t dim) { return as_floats(rows, dim); };
  const Matrix query_rows = in(queries, head_dim);
  const Matrix key_rows = in(keys, head_dim);
  const Matrix value_rows = in(values, value_dim);
  const Matrix result_rows = in(results, value_dim);
  const Matrix gradient_rows = in(gradients, value_dim);
  const Matrix sums = in(log_sum_exps, 1);
  AttentionGradients result{Matrix(query_rows.size(), untouched),
                            Matrix(key_rows.size(), untouched),
                            Matrix(value_rows.size(), untouched)};
  const std::int64_t bytes = attention_gradient_scratch_bytes(num_rows, head_dim, value_dim);
  std::vector<float> scratch(static_cast<std::size_t>(bytes / 4 + 16), NAN);
  auto* aligned = reinterpret_cast<std::byte*>(
      (reinterpret_cast<std::uintptr_t>(scratch.data()) + 63) / 64 * 64);
  const std::int64_t head_stride = head_dim + kGradientGap;
  const std::int64_t value_stride = value_dim + kGradientGap;
  kernel.differentiate({.num_rows = num_rows,
                        .window = window,
                        .head_dim = head_dim,
                        .value_dim = value_dim,
                        .scale = static_cast<float>(scale()),
                        .queries = {query_rows.data(), head_stride},
                        .keys = {key_rows.data(), head_stride},
                        .values = {value_rows.data(), value_stride},
                        .results = {result_rows.data(), value_stride},
                        .result_gradients = {gradient_rows.data(), value_stride},
                        .log_sum_exps = {sums.data(), 1 + kGradientGap},
                        .scratch = aligned,
                        .query_gradients = {result.queries.data(), head_stride},
                        .key_gradients = {result.keys.data(), head_stride},
                        .value_gradients = {result.values.data(), value_stride}});
  return result;
}

}  // namespace moesaic
