#include "tests/kernels/attention_case.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <span>
#include <stdexcept>

#include "base/dtype.h"
#include "kernels/kernel_table.h"
#include "tests/kernels/guarded_array.h"

namespace moesaic {
namespace {

constexpr float kUntouched = 12345;
constexpr std::int64_t kGap = 3;  // unused elements between rows

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

/// Keys or values in blocks, each with memory of its own, in no order.
class Blocks {
 public:
  Blocks(std::int64_t num_keys, std::int64_t block_bytes) {
    const std::int64_t count = (num_keys + kKeysPerBlock - 1) / kKeysPerBlock;
    for (std::int64_t i = 0; i < count; ++i) {
      memory_.push_back(
          std::make_unique<GuardedArray<std::byte>>(static_cast<std::size_t>(block_bytes)));
    }
    for (std::int64_t i = 0; i < count; ++i) {
      pointers_.push_back(memory_[static_cast<std::size_t>((i * 7 + 3) % count)]->span().data());
    }
    if (count % 7 == 0) throw std::logic_error("blocks would share memory");
  }

  /// Fills all blocks with one number.
  void fill(AttentionKind kind, float x) const {
    for (const auto& block : memory_) {
      const std::span<std::byte> bytes = block->span();
      if (kind == AttentionKind::f32) {
        std::fill_n(reinterpret_cast<float*>(bytes.data()), bytes.size() / 4, x);
      } else {
        std::fill_n(reinterpret_cast<BFloat16*>(bytes.data()), bytes.size() / 2, to_bfloat16(x));
      }
    }
  }
  [[nodiscard]] BlockSlot slot(std::int64_t key) const {
    return {pointers_[static_cast<std::size_t>(key / kKeysPerBlock)], key % kKeysPerBlock};
  }
  [[nodiscard]] const std::byte* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<GuardedArray<std::byte>>> memory_;
  std::vector<std::byte*> pointers_;
};

/// [num_keys]: does any row see it?
std::vector<bool> seen_keys(const AttentionCase& test) {
  std::vector<bool> seen(static_cast<std::size_t>(test.num_keys));
  for (std::size_t row = 0; row < test.first_keys.size(); ++row) {
    std::fill(seen.begin() + test.first_keys[row], seen.begin() + test.end_keys[row], true);
  }
  return seen;
}

struct Cache {
  Cache(const AttentionCase& test, AttentionKind kind)
      : keys(test.num_keys, key_block_bytes(kind, test.head_dim)),
        values(test.num_keys, value_block_bytes(kind, test.value_dim)) {
    keys.fill(kind, test.hidden);
    values.fill(kind, test.hidden);
    const std::vector<bool> seen = seen_keys(test);
    std::vector<float> key(static_cast<std::size_t>(test.head_dim));
    std::vector<float> value(static_cast<std::size_t>(test.value_dim));
    for (std::int64_t k = 0; k < test.num_keys; ++k) {
      if (!seen[static_cast<std::size_t>(k)]) continue;
      for (std::size_t d = 0; d < key.size(); ++d)
        key[d] = test.key(k, static_cast<std::int64_t>(d));
      for (std::size_t d = 0; d < value.size(); ++d)
        value[d] = test.value(k, static_cast<std::int64_t>(d));
      const VectorKernels& vector = find_vector_kernels(Isa::scalar);
      store_key(kind, vector, key.data(), test.head_dim, keys.slot(k));
      store_value(kind, vector, value.data(), test.value_dim, values.slot(k));
    }
  }

  Blocks keys;
  Blocks values;
};

/// The memory of a call.
struct Memory {
  Memory(const AttentionCase& test, AttentionKind kind)
      : cache(test, kind),
        scratch(static_cast<std::size_t>(attention_scratch_bytes(test.head_dim, test.value_dim))),
        queries(static_cast<std::size_t>(test.num_rows() * query_stride(test)), NAN),
        out(static_cast<std::size_t>(test.num_rows() * out_stride(test)), kUntouched),
        log_sum_exps(static_cast<std::size_t>(test.num_rows())) {
    for (std::int64_t row = 0; row < test.num_rows(); ++row) {
      for (std::int64_t d = 0; d < test.head_dim; ++d) {
        queries[static_cast<std::size_t>(row * query_stride(test) + d)] = test.query(row, d);
      }
    }
  }

  [[nodiscard]] static std::int64_t query_stride(const AttentionCase& test) {
    return test.head_dim + kGap;
  }
  [[nodiscard]] static std::int64_t out_stride(const AttentionCase& test) {
    return test.value_dim + kGap;
  }

  /// A call for some rows; scratch memory is full of NaN.
  AttentionArgs args(const AttentionCase& test, std::int64_t row, std::int64_t num_rows) {
    std::ranges::fill(scratch.span(), std::byte{0xff});
    return {.queries = queries.data() + row * query_stride(test),
            .query_stride = query_stride(test),
            .num_rows = num_rows,
            .head_dim = test.head_dim,
            .value_dim = test.value_dim,
            .first_keys = test.first_keys.data() + row,
            .end_keys = test.end_keys.data() + row,
            .key_blocks = cache.keys.pointers(),
            .value_blocks = cache.values.pointers(),
            .scale = test.scale(),
            .sinks = test.sinks.empty() ? nullptr : test.sinks.data() + row,
            .scratch = scratch.span().data(),
            .out = out.data() + row * out_stride(test),
            .out_stride = out_stride(test),
            .log_sum_exps = log_sum_exps.data() + row};
  }

  [[nodiscard]] AttentionResult result(const AttentionCase& test) const {
    AttentionResult result = {.out = {}, .log_sum_exps = log_sum_exps};
    for (std::int64_t row = 0; row < test.num_rows(); ++row) {
      const auto begin = out.begin() + row * out_stride(test);
      result.out.insert(result.out.end(), begin, begin + test.value_dim);
      EXPECT_EQ(std::count(begin + test.value_dim, begin + out_stride(test), kUntouched), kGap);
    }
    return result;
  }

  Cache cache;
  GuardedArray<std::byte> scratch;
  std::vector<float> queries;
  std::vector<float> out;
  std::vector<float> log_sum_exps;
};

/// Runs `rows_a_call` rows at a time.
AttentionResult run_in_calls(const AttentionCase& test, const AttentionKernel& kernel,
                             std::int64_t rows_a_call) {
  Memory memory(test, kernel.kind);
  for (std::int64_t row = 0; row < test.num_rows(); row += rows_a_call) {
    kernel.attend(memory.args(test, row, std::min(rows_a_call, test.num_rows() - row)));
  }
  return memory.result(test);
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

AttentionResult AttentionCase::run(const AttentionKernel& kernel) const {
  return run_in_calls(*this, kernel, num_rows());
}
AttentionResult AttentionCase::run_row_by_row(const AttentionKernel& kernel) const {
  return run_in_calls(*this, kernel, 1);
}

AttentionResult AttentionCase::run_by_segments(const AttentionKernel& kernel) const {
  const std::int64_t segments = (num_keys + kKeysPerSegment - 1) / kKeysPerSegment;
  const std::int64_t stride = num_rows() * attention_state_floats(value_dim);
  Memory memory(*this, kernel.kind);
  const GuardedArray<float> states(static_cast<std::size_t>(segments * stride));
  for (std::int64_t segment = segments; segment-- > 0;) {  // in any order
    std::vector<std::int64_t> first;
    std::vector<std::int64_t> end;
    for (std::size_t row = 0; row < first_keys.size(); ++row) {
      first.push_back(std::max(first_keys[row], segment * kKeysPerSegment));
      end.push_back(std::min(end_keys[row], (segment + 1) * kKeysPerSegment));
    }
    AttentionArgs args = memory.args(*this, 0, num_rows());
    args.first_keys = first.data();
    args.end_keys = end.data();
    args.states = states.span().data() + segment * stride;
    kernel.attend(args);
  }
  const AttentionArgs args = memory.args(*this, 0, num_rows());
  kernel.merge({.states = states.span().data(),
                .num_segments = segments,
                .segment_stride = stride,
                .num_rows = num_rows(),
                .value_dim = value_dim,
                .sinks = args.sinks,
                .out = args.out,
                .out_stride = args.out_stride,
                .log_sum_exps = args.log_sum_exps});
  return memory.result(*this);
}

ExpectedAttention AttentionCase::expected(AttentionKind kind) const {
  ExpectedAttention result;
  for (std::int64_t row = 0; row < num_rows(); ++row) {
    const std::int64_t first = first_keys[static_cast<std::size_t>(row)];
    const std::int64_t end = end_keys[static_cast<std::size_t>(row)];
    std::vector<double> weights;
    for (std::int64_t k = first; k < end; ++k) {
      double score = 0;
      for (std::int64_t d = 0; d < head_dim; ++d) {
        const float q = query(row, d);
        const float rounded = kind == AttentionKind::bf16 ? to_float(to_bfloat16(q)) : q;
        score += static_cast<double>(rounded) * key(k, d);
      }
      weights.push_back(score * scale());
    }
    if (!sinks.empty()) weights.push_back(sinks[static_cast<std::size_t>(row)]);
    const double max = *std::max_element(weights.begin(), weights.end());
    double total = 0;
    for (double& weight : weights) total += weight = std::exp(weight - max);
    for (std::int64_t d = 0; d < value_dim; ++d) {
      double sum = 0;
      for (std::int64_t k = first; k < end; ++k) {
        sum += weights[static_cast<std::size_t>(k - first)] * value(k, d);
      }
      result.out.push_back(sum / total);
    }
    result.log_sum_exps.push_back(max + std::log(total));
  }
  return result;
}

AttentionCase full_case(std::int64_t head_dim, std::int64_t num_keys, std::int64_t num_rows) {
  const auto rows = static_cast<std::size_t>(num_rows);
  return {.head_dim = head_dim,
          .value_dim = head_dim,
          .num_keys = num_keys,
          .first_keys = std::vector<std::int64_t>(rows, 0),
          .end_keys = std::vector<std::int64_t>(rows, num_keys)};
}

AttentionCase causal_case(std::int64_t head_dim, std::int64_t num_tokens, std::int64_t num_heads,
                          std::int64_t window) {
  AttentionCase result = {.head_dim = head_dim,
                          .value_dim = head_dim,
                          .num_keys = num_tokens,
                          .first_keys = {},
                          .end_keys = {}};
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
  AttentionCase result = {.head_dim = head_dim,
                          .value_dim = head_dim,
                          .num_keys = num_keys,
                          .first_keys = {},
                          .end_keys = {}};
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
