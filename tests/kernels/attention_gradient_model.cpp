// The gradient of attention as docs/numerics.md describes it, one number at a time.

#include <array>
#include <cmath>
#include <numbers>

#include "base/dtype.h"
#include "kernels/cpu/scalar/lanes.h"

#include "kernels/cpu/vector_math.h"
#include "tests/kernels/attention_gradient_case.h"

namespace moesaic {
namespace {

using Order = GradientCase::Order;

/// A function of the kernels, of one number.
template <typename Function>
float lane_of(Function function, float x) {
  float lanes[kLanes];
  store(lanes, function(broadcast(x)));
  return lanes[0];
}

float tree_sum(std::array<float, 16> lanes) {
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

/// A sum of products over k = 0, 1, ..., one at a time, in the order of a kind of product.
class OrderedSum {
 public:
  explicit OrderedSum(Order order = Order::chain) : order_(order) {}

  /// k ascends, and may leave some out.
  void add(std::int64_t k, float a, float b) {
    if (order_ == Order::chain) {
      sum_ = std::fma(a, b, sum_);
      return;
    }
    if (k / 32 != step_) end_step();
    step_ = k / 32;
    const auto at = static_cast<std::size_t>(k % 32);
    a_[at] = to_float(to_bfloat16(a));
    b_[at] = to_float(to_bfloat16(b));
  }
  [[nodiscard]] float result() {
    end_step();
    return sum_;
  }

 private:
  void end_step() {
    float even = 0;
    float odd = 0;
    for (std::size_t i = 0; i < 32; i += 2) {
      if (order_ == Order::dot) {
        sum_ = std::fma(a_[i], b_[i], std::fma(a_[i + 1], b_[i + 1], sum_));
      } else {
        even = std::fma(a_[i], b_[i], even);
        odd = std::fma(a_[i + 1], b_[i + 1], odd);
      }
    }
    if (order_ == Order::tiles) sum_ += even + odd;
    a_ = b_ = {};
  }

  Order order_;
  std::int64_t step_ = 0;
  float sum_ = 0;
  std::array<float, 32> a_{}, b_{};
};

/// What docs/numerics.md says, step by step; rows of 16 elements.
class GradientModel {
 public:
  GradientModel(const GradientCase& test, Order order)
      : test_(test),
        order_(order),
        queries_(size(), OrderedSum(order)),
        keys_(queries_),
        values_(queries_) {}

  AttentionGradients run() {
    for (std::int64_t row = 0; row < test_.num_rows; ++row) add_row(row);
    AttentionGradients result;
    for (OrderedSum& sum : queries_) result.queries.push_back(sum.result());
    for (OrderedSum& sum : keys_) result.keys.push_back(sum.result());
    for (OrderedSum& sum : values_) result.values.push_back(sum.result());
    return result;
  }

 private:
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(test_.num_rows * 16); }
  [[nodiscard]] static float in(const Doubles& rows, std::int64_t row, std::int64_t d) {
    return static_cast<float>(GradientCase::at(rows, row, 16, d));
  }
  [[nodiscard]] float dot(std::int64_t row) const {
    std::array<float, 16> lanes{};
    for (std::int64_t d = 0; d < 16; ++d) {
      const float gradient = in(test_.gradients, row, d);
      lanes[static_cast<std::size_t>(d)] =
          (order_ == Order::chain ? gradient : to_float(to_bfloat16(gradient))) *
          in(test_.results, row, d);
    }
    return tree_sum(lanes);
  }
  [[nodiscard]] float weight(float score, float log_sum_exp) const {
    const auto scale = static_cast<float>(test_.scale());
    if (order_ == Order::chain) {
      return lane_of([](Lanes x) { return exp(x); }, std::fma(score, scale, -log_sum_exp));
    }
    constexpr float kLog2E = std::numbers::log2e_v<float>;
    return lane_of([](Lanes x) { return power_of_two(x); },
                   std::fma(score, scale * kLog2E, -(log_sum_exp * kLog2E)));
  }
  void add_row(std::int64_t row) {
    const float row_dot = dot(row);
    const auto log_sum_exp = static_cast<float>(test_.log_sum_exps[static_cast<std::size_t>(row)]);
    for (std::int64_t key = test_.first_key(row); key <= row; ++key) {
      OrderedSum score(order_);
      OrderedSum product(order_);
      for (std::int64_t d = 0; d < 16; ++d) {
        score.add(d, in(test_.queries, row, d), in(test_.keys, key, d));
        product.add(d, in(test_.gradients, row, d), in(test_.values, key, d));
      }
      const float weight = this->weight(score.result(), log_sum_exp);
      const float gradient =
          (product.result() - row_dot) * weight * static_cast<float>(test_.scale());
      for (std::int64_t d = 0; d < 16; ++d) {
        const auto at_row = static_cast<std::size_t>(row * 16 + d);
        const auto at_key = static_cast<std::size_t>(key * 16 + d);
        queries_[at_row].add(key, gradient, in(test_.keys, key, d));
        keys_[at_key].add(row, gradient, in(test_.queries, row, d));
        values_[at_key].add(row, weight, in(test_.gradients, row, d));
      }
    }
  }

  const GradientCase& test_;
  Order order_;
  std::vector<OrderedSum> queries_, keys_, values_;
};

}  // namespace

AttentionGradients GradientCase::model(Order order) const {
  return GradientModel(*this, order).run();
}

}  // namespace moesaic
