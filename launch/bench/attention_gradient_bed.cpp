#include "launch/bench/attention_gradient_bed.h"

#include <algorithm>
#include <cmath>

#include "base/rounding.h"
#include "launch/shapes/cold_weights.h"

namespace moesaic {
namespace {

/// Of the mean of absolute values.
class ErrorSum {
 public:
  void add(double actual, double exact) {
    difference_ += std::abs(actual - exact);
    magnitude_ += std::abs(exact);
  }
  [[nodiscard]] double share() const { return difference_ / magnitude_; }

 private:
  double difference_ = 0;
  double magnitude_ = 0;
};

}  // namespace

float AttentionGradientBed::scale() const {
  return 1 / std::sqrt(static_cast<float>(form_.head_dim));
}

double AttentionGradientBed::operations(std::int64_t rows) const {
  double seen = 0;
  for (std::int64_t first = 0; first < rows; first += sample_rows_) {
    const auto n = static_cast<double>(std::min(sample_rows_, rows - first));
    seen += n * (n + 1) / 2;
  }
  return 10 * seen * static_cast<double>(width());
}

double AttentionGradientBed::bytes(std::int64_t rows) const {
  return 4.0 * static_cast<double>(rows * (6 * width() + 2 * kv_width() + form_.heads));
}

double AttentionGradientBed::score(std::int64_t row, std::int64_t key, std::int64_t head) const {
  const std::int64_t kv_head = head / (form_.heads / form_.kv_heads);
  const float* const q = queries_.data() + row * width() + head * form_.head_dim;
  const float* const k = keys_.data() + key * kv_width() + kv_head * form_.head_dim;
  double sum = 0;
  for (std::int64_t d = 0; d < form_.head_dim; ++d) sum += static_cast<double>(q[d]) * k[d];
  return sum * static_cast<double>(scale());
}

void AttentionGradientBed::forward(std::int64_t row, std::int64_t head) {
  const std::int64_t kv_head = head / (form_.heads / form_.kv_heads);
  std::vector<double> sums(static_cast<std::size_t>(form_.head_dim));
  double total = 0;
  for (std::int64_t key = first_of_sample(row); key <= row; ++key) {
    const double weight = std::exp(score(row, key, head));
    const float* const v = values_.data() + key * kv_width() + kv_head * form_.head_dim;
    total += weight;
    for (std::size_t d = 0; d < sums.size(); ++d) sums[d] += weight * static_cast<double>(v[d]);
  }
  float* const out = results_.data() + row * width() + head * form_.head_dim;
  for (std::size_t d = 0; d < sums.size(); ++d) out[d] = static_cast<float>(sums[d] / total);
  log_sum_exps_.data()[row * form_.heads + head] = static_cast<float>(std::log(total));
}

/// All heads have what the first one has: the forward pass in fp64 is slow.
void AttentionGradientBed::fill(std::int64_t rows) {
  rows_ = rows;
  const auto numbers = [&](std::int64_t columns, std::uint64_t seed) {
    const std::vector<float> values = normal_numbers(rows * columns, 1, seed);
    Rows out(std::ssize(values));
    std::ranges::copy(values, out.data());
    return out;
  };
  queries_ = numbers(width(), 1);
  keys_ = numbers(kv_width(), 2);
  values_ = numbers(kv_width(), 3);
  result_gradients_ = numbers(width(), 4);
  for (Rows* out : {&results_, &query_gradients_, &key_gradients_, &value_gradients_}) {
    *out = Rows(rows * width());
  }
  log_sum_exps_ = Rows(rows * form_.heads);
  for (std::int64_t row = 0; row < rows; ++row) {
    forward(row, 0);
    for (std::int64_t head = 1; head < form_.heads; ++head) {
      const auto copy = [&](Rows& all, std::int64_t columns) {
        float* const first = all.data() + row * columns * form_.heads;
        std::copy_n(first, columns, first + head * columns);
      };
      copy(queries_, form_.head_dim);
      copy(results_, form_.head_dim);
      copy(log_sum_exps_, 1);
    }
    for (std::int64_t head = 1; head < form_.kv_heads; ++head) {
      for (Rows* all : {&keys_, &values_}) {
        float* const first = all->data() + row * kv_width();
        std::copy_n(first, form_.head_dim, first + head * form_.head_dim);
      }
    }
  }
}

AttentionGradientArgs AttentionGradientBed::args(std::int64_t sample, std::int64_t head) {
  const std::int64_t first = sample * sample_rows_;
  const std::int64_t kv_head = head / (form_.heads / form_.kv_heads);
  const auto out = [&](Rows& all) {
    return AttentionGradientArgs::Rows<float>{all.data() + first * width() + head * form_.head_dim,
                                              width()};
  };
  const auto in = [&](const Rows& all, std::int64_t of_head, std::int64_t stride) {
    return AttentionGradientArgs::Rows<const float>{
        all.data() + first * stride + of_head * form_.head_dim, stride};
  };
  return {.num_rows = std::min(sample_rows_, rows_ - first),
          .head_dim = form_.head_dim,
          .value_dim = form_.head_dim,
          .scale = scale(),
          .queries = in(queries_, head, width()),
          .keys = in(keys_, kv_head, kv_width()),
          .values = in(values_, kv_head, kv_width()),
          .results = in(results_, head, width()),
          .result_gradients = in(result_gradients_, head, width()),
          .log_sum_exps = {log_sum_exps_.data() + first * form_.heads + head, form_.heads},
          .query_gradients = out(query_gradients_),
          .key_gradients = out(key_gradients_),
          .value_gradients = out(value_gradients_)};
}

void AttentionGradientBed::run(const AttentionKernel& kernel, std::int64_t rows, ThreadPool& pool) {
  if (rows != rows_) fill(rows);
  scratch_.resize(std::max(scratch_.size(), static_cast<std::size_t>(pool.size())));
  const auto bytes = static_cast<std::size_t>(
      attention_gradient_scratch_bytes(sample_rows_, form_.head_dim, form_.head_dim));
  for (ByteBuffer& scratch : scratch_) {
    if (scratch.size() < bytes) scratch = ByteBuffer(bytes);
  }
  const std::int64_t samples = divide_up(rows, sample_rows_);
  pool.parallel_for(samples * form_.heads, [&](std::int64_t task, int worker) {
    AttentionGradientArgs one = args(task / form_.heads, task % form_.heads);
    one.scratch = scratch_[static_cast<std::size_t>(worker)].data();
    kernel.differentiate(one);
  });
}

double AttentionGradientBed::error() const {
  const std::int64_t rows = std::min(sample_rows_, rows_);
  const std::int64_t dim = form_.head_dim;
  const auto size = static_cast<std::size_t>(rows * dim);
  std::vector<double> dq(size), dk(size), dv(size);
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* const gradient = result_gradients_.data() + row * width();
    const float* const result = results_.data() + row * width();
    double dot = 0;
    for (std::int64_t d = 0; d < dim; ++d) dot += static_cast<double>(gradient[d]) * result[d];
    for (std::int64_t key = 0; key <= row; ++key) {
      const float* const v = values_.data() + key * kv_width();
      const double weight = std::exp(score(row, key, 0) -
                                     static_cast<double>(log_sum_exps_.data()[row * form_.heads]));
      double product = 0;
      for (std::int64_t d = 0; d < dim; ++d) product += static_cast<double>(gradient[d]) * v[d];
      const double change = weight * (product - dot) * static_cast<double>(scale());
      for (std::int64_t d = 0; d < dim; ++d) {
        const auto at_row = static_cast<std::size_t>(row * dim + d);
        const auto at_key = static_cast<std::size_t>(key * dim + d);
        dq[at_row] += change * static_cast<double>(keys_.data()[key * kv_width() + d]);
        dk[at_key] += change * static_cast<double>(queries_.data()[row * width() + d]);
        dv[at_key] += weight * static_cast<double>(gradient[d]);
      }
    }
  }
  ErrorSum sum;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const std::int64_t actual = row * width() + d;
      const auto exact = static_cast<std::size_t>(row * dim + d);
      sum.add(static_cast<double>(query_gradients_.data()[actual]), dq[exact]);
      sum.add(static_cast<double>(key_gradients_.data()[actual]), dk[exact]);
      sum.add(static_cast<double>(value_gradients_.data()[actual]), dv[exact]);
    }
  }
  return sum.share();
}

}  // namespace moesaic
