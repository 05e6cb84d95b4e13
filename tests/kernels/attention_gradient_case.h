#pragma once

#include <cstdint>
#include <vector>

#include "kernels/attention_kernel.h"

namespace moesaic {

inline constexpr std::int64_t kGradientGap =
    3;  // unused elements between rows of inputs and results

using Matrix = std::vector<float>;  // [rows, width + kGradientGap]
using Doubles = std::vector<double>;

struct ExpectedGradients {
  Doubles queries, keys, values;  // [num_rows, dim]
};
struct AttentionGradients {
  Matrix queries, keys, values;
};

/// Random rows of one head of one sample, and what the forward pass gives for them, in double
/// precision.
struct GradientCase {
  std::int64_t num_rows;
  std::int64_t head_dim;
  std::int64_t value_dim;
  std::int64_t window = 0;
  float size = 1;        // of queries
  bool of_bf16 = false;  // all inputs are

  Doubles queries{}, keys{}, values{}, gradients{};  // [num_rows, dim]
  Doubles results{}, log_sum_exps{};

  void fill();
  [[nodiscard]] double scale() const;
  [[nodiscard]] std::int64_t first_key(std::int64_t row) const;
  static double at(const Doubles& rows, std::int64_t row, std::int64_t dim, std::int64_t d) {
    return rows[static_cast<std::size_t>(row * dim + d)];
  }
  /// What the gradients are of. Computes results and log-sum-exps.
  double loss();

  /// By definition.
  [[nodiscard]] ExpectedGradients expected() const;
  /// Results have `untouched` between rows.
  [[nodiscard]] AttentionGradients run(const AttentionKernel& kernel, float untouched) const;
  enum class Order { chain, tiles, dot };
  /// What docs/numerics.md says, step by step, of rows of 16 elements; without gaps.
  [[nodiscard]] AttentionGradients model(Order order) const;

 private:
  [[nodiscard]] double score(std::int64_t row, std::int64_t key) const;
  void forward(std::int64_t row);
};

[[nodiscard]] GradientCase make_case(GradientCase test);

}  // namespace moesaic
