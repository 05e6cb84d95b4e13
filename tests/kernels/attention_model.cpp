// Attention over a bf16 cache as docs/numerics.md describes it, one number at a time.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numbers>

#include "base/dtype.h"
#include "kernels/cpu/natural_log.h"
#include "tests/kernels/attention_case.h"

namespace moesaic {
namespace {

constexpr std::int64_t kStrip = 256;
constexpr std::int64_t kStep = 32;

float rounded(float x) {
  return to_float(to_bfloat16(x));
}

float power_of_two(float x) {
  x = std::isnan(x) ? x : std::max(-125.0F, x);
  const float n = x + 0x1.8p23F;
  const float r = x - (n - 0x1.8p23F);
  float p = 0x1.3a02ccp-7F;
  for (const float c : {0x1.c9fc46p-5F, 0x1.ec0378p-3F, 0x1.62e12cp-1F, 1.0F}) {
    p = std::fma(p, r, c);
  }
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(p) +
                              (std::bit_cast<std::uint32_t>(n) << 23));
}

/// sum + a[0..32) b[0..32)
float add_step(const std::array<float, kStep>& a, const std::array<float, kStep>& b, bool dot,
               float sum) {
  float even = 0;
  float odd = 0;
  for (std::size_t k = 0; k < a.size(); k += 2) {
    if (dot) {
      sum = std::fma(a[k], b[k], std::fma(a[k + 1], b[k + 1], sum));
    } else {
      even = std::fma(a[k], b[k], even);
      odd = std::fma(a[k + 1], b[k + 1], odd);
    }
  }
  return dot ? sum : sum + (even + odd);
}

struct State {
  float max = -HUGE_VALF;
  std::array<float, 16> totals{};
  float total = 0;
  std::vector<float> sums;
};

class RowModel {
 public:
  RowModel(const AttentionCase& test, std::int64_t row, bool dot)
      : test_(test),
        row_(row),
        dot_(dot),
        first_(test.first_keys[static_cast<std::size_t>(row)]),
        end_(test.end_keys[static_cast<std::size_t>(row)]),
        factor_(test.scale() * std::numbers::log2e_v<float>) {}

  void run(AttentionResult& result) const {
    State merged = fresh();
    for (std::int64_t key = first_ / kKeysPerSegment * kKeysPerSegment; key < end_;
         key += kKeysPerSegment) {
      merge(segment(key), merged);
    }
    if (!test_.sinks.empty()) {
      State sink = fresh();
      sink.max = std::numbers::log2e_v<float> * test_.sinks[static_cast<std::size_t>(row_)];
      sink.total = 1;
      merge(sink, merged);
    }
    for (const float sum : merged.sums) result.out.push_back(sum / merged.total + 0.0F);
    result.log_sum_exps.push_back(
        static_cast<float>(merged.max * std::numbers::ln2 + natural_log(merged.total)));
  }

 private:
  [[nodiscard]] State fresh() const {
    State state;
    state.sums.resize(static_cast<std::size_t>(test_.value_dim));
    return state;
  }

  [[nodiscard]] bool sees(std::int64_t key) const { return first_ <= key && key < end_; }

  [[nodiscard]] float score(std::int64_t key) const {
    float sum = 0;
    for (std::int64_t d = 0; d < test_.head_dim; d += kStep) {
      std::array<float, kStep> q{};
      std::array<float, kStep> k{};
      for (std::int64_t i = 0; i < std::min(kStep, test_.head_dim - d); ++i) {
        q[static_cast<std::size_t>(i)] = rounded(test_.query(row_, d + i));
        k[static_cast<std::size_t>(i)] = test_.key(key, d + i);
      }
      sum = add_step(q, k, dot_, sum);
    }
    return sum;
  }

  void add_strip(std::int64_t first, State& state) const {
    std::array<float, kStrip> scores{};
    float greatest = -HUGE_VALF;
    for (std::int64_t key = 0; key < kStrip; ++key) {
      if (!sees(first + key)) continue;
      scores[static_cast<std::size_t>(key)] = score(first + key);
      greatest = std::max(greatest, scores[static_cast<std::size_t>(key)]);
    }
    const float max = std::max(state.max, greatest * factor_);
    const float shrink = power_of_two(state.max - max);
    for (float& sum : state.sums) sum *= shrink;
    std::array<float, 16> totals{};
    for (std::int64_t step = 0; step < kStrip; step += kStep) {
      std::array<float, kStep> weights{};
      for (std::int64_t i = 0; i < kStep; ++i) {
        if (!sees(first + step + i)) continue;
        weights[static_cast<std::size_t>(i)] =
            rounded(power_of_two(scores[static_cast<std::size_t>(step + i)] * factor_ - max));
      }
      for (std::size_t i = 0; i < 16; ++i) totals[i] += weights[2 * i] + weights[2 * i + 1];
      add_values(first + step, weights, state.sums);
    }
    for (std::size_t i = 0; i < 16; ++i) {
      state.totals[i] = std::fma(state.totals[i], shrink, totals[i]);
    }
    state.max = max;
  }

  void add_values(std::int64_t first, const std::array<float, kStep>& weights,
                  std::vector<float>& sums) const {
    for (std::size_t d = 0; d < sums.size(); ++d) {
      std::array<float, kStep> values{};
      for (std::int64_t i = 0; i < kStep; ++i) {
        if (sees(first + i)) {
          values[static_cast<std::size_t>(i)] =
              test_.value(first + i, static_cast<std::int64_t>(d));
        }
      }
      sums[d] = add_step(weights, values, dot_, sums[d]);
    }
  }

  [[nodiscard]] State segment(std::int64_t first) const {
    State state = fresh();
    for (std::int64_t key = first; key < first + kKeysPerSegment; key += kStrip) {
      if (key < end_ && key + kStrip > first_) add_strip(key, state);
    }
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) state.totals[i] += state.totals[i + half];
    }
    state.total = state.totals[0];
    return state;
  }

  static void merge(const State& segment, State& state) {
    if (state.total == 0) {
      state = segment;
      return;
    }
    const float max = std::max(state.max, segment.max);
    const float a = power_of_two(state.max - max);
    const float b = power_of_two(segment.max - max);
    state.max = max;
    state.total = std::fma(state.total, a, segment.total * b);
    for (std::size_t d = 0; d < state.sums.size(); ++d) {
      state.sums[d] = std::fma(state.sums[d], a, segment.sums[d] * b);
    }
  }

  const AttentionCase& test_;
  std::int64_t row_;
  bool dot_;
  std::int64_t first_;
  std::int64_t end_;
  float factor_;
};

}  // namespace

AttentionResult AttentionCase::bf16_model(bool dot) const {
  AttentionResult result;
  for (std::int64_t row = 0; row < num_rows(); ++row) RowModel(*this, row, dot).run(result);
  return result;
}

}  // namespace moesaic
