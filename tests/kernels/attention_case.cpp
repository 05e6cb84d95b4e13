#include "tests/kernels/attention_case.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <stdexcept>
#include <type_traits>

#include "kernels/format.h"

namespace moesaic {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr float kUntouched = 12345;
constexpr std::int64_t kGap = 3;  // unused elements between rows

/// An array that ends where a page without access begins, so that a read past its end is a crash.
template <typename T>
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t count)
      : count_(count),
        mapped_bytes_((count * sizeof(T) + kPageBytes - 1) / kPageBytes * kPageBytes + kPageBytes),
        mapping_(mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0)) {
    if (mapping_ == MAP_FAILED || mprotect(guard_page(), kPageBytes, PROT_NONE) != 0) {
      throw std::runtime_error("no guarded memory");
    }
  }
  ~GuardedArray() { munmap(mapping_, mapped_bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  [[nodiscard]] std::span<T> span() const {
    return {reinterpret_cast<T*>(guard_page()) - count_, count_};
  }

 private:
  [[nodiscard]] std::byte* guard_page() const {
    return static_cast<std::byte*>(mapping_) + mapped_bytes_ - kPageBytes;
  }

  std::size_t count_;
  std::size_t mapped_bytes_;
  void* mapping_;
};

/// About normal, from a hash of its place, and exact in bf16.
float random_number(std::uint64_t array, std::int64_t row, std::int64_t column) {
  std::uint64_t state = array * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(row) * 4099 +
                        static_cast<std::uint64_t>(column);
  float sum = -2;
  for (int i = 0; i < 4; ++i) {
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9U + 0x94d049bb133111ebU;
    sum += static_cast<float>(state >> 40) * 0x1p-24F;
  }
  return to_float(to_bfloat16(sum * 1.732F));
}

template <typename Element>
Element to_element(float x) {
  if constexpr (std::is_same_v<Element, float>) {
    return x;
  } else {
    return to_bfloat16(x);
  }
}

std::size_t key_elements(const AttentionCase& test) {
  return static_cast<std::size_t>(round_up(test.num_keys, kKeysPerPanel) * test.head_dim);
}
std::size_t value_elements(const AttentionCase& test) {
  const std::int64_t end = *std::max_element(test.end_keys.begin(), test.end_keys.end());
  return static_cast<std::size_t>(end * test.head_dim);
}

/// [num_keys]: does any row see it?
std::vector<bool> seen_keys(const AttentionCase& test) {
  std::vector<bool> seen(static_cast<std::size_t>(round_up(test.num_keys, kKeysPerPanel)));
  for (std::size_t row = 0; row < test.first_keys.size(); ++row) {
    std::fill(seen.begin() + test.first_keys[row], seen.begin() + test.end_keys[row], true);
  }
  return seen;
}

template <typename Element>
void fill_keys(const AttentionCase& test, std::span<Element> out) {
  const std::vector<bool> seen = seen_keys(test);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto index = static_cast<std::int64_t>(i);
    const std::int64_t panel = index / (test.head_dim * kKeysPerPanel);
    const std::int64_t d = index / kKeysPerPanel % test.head_dim;
    const std::int64_t key = panel * kKeysPerPanel + index % kKeysPerPanel;
    out[i] =
        to_element<Element>(seen[static_cast<std::size_t>(key)] ? test.key(key, d) : test.hidden);
  }
}
template <typename Element>
void fill_values(const AttentionCase& test, std::span<Element> out) {
  const std::vector<bool> seen = seen_keys(test);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::int64_t key = static_cast<std::int64_t>(i) / test.head_dim;
    const std::int64_t d = static_cast<std::int64_t>(i) % test.head_dim;
    out[i] =
        to_element<Element>(seen[static_cast<std::size_t>(key)] ? test.value(key, d) : test.hidden);
  }
}

/// Runs `rows_a_call` rows at a time.
template <typename Element>
std::vector<float> run_in_calls(const AttentionCase& test, const VectorKernels& kernels,
                                std::int64_t rows_a_call) {
  const std::int64_t rows = test.num_rows();
  const std::int64_t stride = test.head_dim + kGap;
  std::vector<float> queries(static_cast<std::size_t>(rows * stride), NAN);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t d = 0; d < test.head_dim; ++d) {
      queries[static_cast<std::size_t>(row * stride + d)] = test.query(row, d);
    }
  }
  const GuardedArray<Element> keys(key_elements(test));
  const GuardedArray<Element> values(value_elements(test));
  const GuardedArray<float> scratch(
      static_cast<std::size_t>(attention_scratch_floats(test.head_dim)));
  fill_keys(test, keys.span());
  fill_values(test, values.span());
  std::vector<float> padded(static_cast<std::size_t>(rows * stride), kUntouched);
  for (std::int64_t row = 0; row < rows; row += rows_a_call) {
    std::ranges::fill(scratch.span(), NAN);
    const AttentionArgs args = {.queries = queries.data() + row * stride,
                                .query_stride = stride,
                                .num_rows = std::min(rows_a_call, rows - row),
                                .head_dim = test.head_dim,
                                .first_keys = test.first_keys.data() + row,
                                .end_keys = test.end_keys.data() + row,
                                .keys = keys.span().data(),
                                .values = values.span().data(),
                                .scale = test.scale(),
                                .scratch = scratch.span().data(),
                                .out = padded.data() + row * stride,
                                .out_stride = stride};
    (std::is_same_v<Element, float> ? kernels.attention_f32 : kernels.attention_bf16)(args);
  }
  std::vector<float> out;
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto begin = padded.begin() + row * stride;
    out.insert(out.end(), begin, begin + test.head_dim);
    EXPECT_EQ(std::count(begin + test.head_dim, begin + stride, kUntouched), kGap);
  }
  return out;
}

}  // namespace

float AttentionCase::query(std::int64_t row, std::int64_t d) const {
  return random_number(1, row, d) * query_scale;
}
float AttentionCase::key(std::int64_t key, std::int64_t d) const {
  return key == poisoned_key ? NAN : random_number(2, key, d);
}
float AttentionCase::value(std::int64_t key, std::int64_t d) const {
  return key == poisoned_key ? NAN : random_number(3, key, d);
}
float AttentionCase::scale() const {
  return 1 / std::sqrt(static_cast<float>(head_dim));
}

template <typename Element>
std::vector<float> AttentionCase::run(const VectorKernels& kernels) const {
  return run_in_calls<Element>(*this, kernels, num_rows());
}
template <typename Element>
std::vector<float> AttentionCase::run_row_by_row(const VectorKernels& kernels) const {
  return run_in_calls<Element>(*this, kernels, 1);
}
template std::vector<float> AttentionCase::run<float>(const VectorKernels&) const;
template std::vector<float> AttentionCase::run<BFloat16>(const VectorKernels&) const;
template std::vector<float> AttentionCase::run_row_by_row<float>(const VectorKernels&) const;
template std::vector<float> AttentionCase::run_row_by_row<BFloat16>(const VectorKernels&) const;

std::vector<double> AttentionCase::expected() const {
  std::vector<double> out;
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    const std::int64_t first = first_keys[static_cast<std::size_t>(row)];
    const std::int64_t end = end_keys[static_cast<std::size_t>(row)];
    std::vector<double> weights;
    for (std::int64_t k = first; k < end; ++k) {
      double score = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        score += static_cast<double>(query(row, d)) * key(k, d);
      }
      weights.push_back(score * scale());
    }
    const double max = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - max);
    for (std::int64_t d = 0; d < head_dim; ++d) {
      double sum = 0;
      for (std::int64_t k = first; k < end; ++k) {
        sum += weights[static_cast<std::size_t>(k - first)] * value(k, d);
      }
      out.push_back(sum / total);
    }
  }
  return out;
}

AttentionCase full_case(std::int64_t head_dim, std::int64_t num_keys, std::int64_t num_rows) {
  const auto rows = static_cast<std::size_t>(num_rows);
  return {.head_dim = head_dim,
          .num_keys = num_keys,
          .first_keys = std::vector<std::int64_t>(rows, 0),
          .end_keys = std::vector<std::int64_t>(rows, num_keys)};
}

AttentionCase causal_case(std::int64_t head_dim, std::int64_t num_tokens, std::int64_t num_heads,
                          std::int64_t window) {
  AttentionCase result = {
      .head_dim = head_dim, .num_keys = num_tokens, .first_keys = {}, .end_keys = {}};
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    for (std::int64_t head = 0; head < num_heads; ++head) {
      result.first_keys.push_back(std::max<std::int64_t>(0, token + 1 - window));
      result.end_keys.push_back(token + 1);
    }
  }
  return result;
}

AttentionCase random_case(std::int64_t head_dim, std::int64_t num_keys, std::int64_t num_rows,
                          unsigned seed) {
  std::mt19937 generator(seed);
  AttentionCase result = {
      .head_dim = head_dim, .num_keys = num_keys, .first_keys = {}, .end_keys = {}};
  for (std::int64_t row = 0; row < num_rows; ++row) {
    std::int64_t a = std::uniform_int_distribution<std::int64_t>(0, num_keys - 1)(generator);
    std::int64_t b = std::uniform_int_distribution<std::int64_t>(0, num_keys - 1)(generator);
    if (a > b) std::swap(a, b);
    result.first_keys.push_back(a);
    result.end_keys.push_back(b + 1);
  }
  return result;
}

}  // namespace moesaic
