#include "launch/bench/sample_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>

#include "base/dtype.h"

namespace moesaic {

SampleRows::SampleRows(RowSource::Element element, std::int64_t num_rows, std::int64_t depth)
    : element_(element), depth_(depth), elements_(num_rows * depth * element_bytes(element)) {
  const std::int64_t stride = depth * element_bytes(element);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::byte* const to = elements_.data() + row * stride;
    const std::vector<float> numbers =
        normal_numbers(depth, 1, static_cast<std::uint64_t>(2 + row));
    if (element == RowSource::Element::bf16) {
      std::ranges::transform(numbers, reinterpret_cast<BFloat16*>(to), to_bfloat16);
    } else {
      std::memcpy(to, numbers.data(), static_cast<std::size_t>(stride));
    }
    rows_.push_back(to);
  }
}

RowSource SampleRows::source(std::int64_t num_rows) const noexcept {
  return {.rows = rows_.data(), .num_rows = num_rows, .depth = depth_, .element = element_};
}

std::vector<float> SampleRows::values(std::int64_t row) const {
  std::vector<float> numbers(static_cast<std::size_t>(depth_));
  const std::byte* from = rows_[static_cast<std::size_t>(row)];
  if (element_ == RowSource::Element::bf16) {
    const std::span words(reinterpret_cast<const BFloat16*>(from), numbers.size());
    std::ranges::transform(words, numbers.begin(), [](BFloat16 word) { return to_float(word); });
  } else {
    std::memcpy(numbers.data(), from, numbers.size() * sizeof(float));
  }
  return numbers;
}

double product_error(const SampleWeights& weights, const SampleRows& rows, std::int64_t num_rows,
                     std::int64_t columns, const ResultAt& result) {
  const RowValues values = [&](std::int64_t row) { return rows.values(row); };
  return product_error(weights, values, num_rows, columns, result);
}

double product_error(const SampleWeights& weights, const RowValues& rows, std::int64_t num_rows,
                     std::int64_t columns, const ResultAt& result) {
  const std::int64_t compared = std::min(columns, SampleWeights::kRows);
  const ExactRow exact_row = [&](std::int64_t row) {
    const std::vector<float> inputs = rows(row);
    std::vector<double> sums(static_cast<std::size_t>(compared));
    for (std::int64_t column = 0; column < compared; ++column) {
      const float* const weight = weights.values().data() + column * weights.depth();
      double& sum = sums[static_cast<std::size_t>(column)];
      for (std::size_t k = 0; k < inputs.size(); ++k) {
        sum += static_cast<double>(inputs[k]) * static_cast<double>(weight[k]);
      }
    }
    return sums;
  };
  return sampled_error(num_rows, compared, exact_row, result);
}

double sampled_error(std::int64_t num_rows, std::int64_t columns, const ExactRow& exact,
                     const ResultAt& result) {
  double difference = 0;
  double size = 0;
  for (const std::int64_t row : std::set{std::int64_t{0}, num_rows / 2, num_rows - 1}) {
    const std::vector<double> sums = exact(row);
    for (std::int64_t column = 0; column < std::min(columns, SampleWeights::kRows); ++column) {
      const double sum = sums[static_cast<std::size_t>(column)];
      difference += std::abs(result(row, column) - sum);
      size += std::abs(sum);
    }
  }
  return difference / size;
}

}  // namespace moesaic
