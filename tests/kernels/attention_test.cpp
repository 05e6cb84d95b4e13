#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/attention_case.h"
#include "tests/kernels/runnable_kernels.h"

namespace moesaic {
namespace {

/// Of values up to 3.5: in f32 scores err by some roundings of terms that partly cancel, weights by
/// as much; in bf16 weights are rounded to 8 bits.
double bound_of(AttentionKind kind) {
  return kind == AttentionKind::f32 ? 1e-6 : 8e-3;
}
constexpr std::int64_t kHeadDims[] = {2, 6, 10, 16, 48, 64, 80, 96, 128, 192, 256};
constexpr std::int64_t kKeyCounts[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 127, 128, 129, 300, 1000};

/// Full, causal, sliding-window and random ranges over a few blocks of keys.
std::vector<AttentionCase> range_cases(std::int64_t head_dim) {
  std::vector<AttentionCase> cases = {
      full_case(head_dim, 200, 9),        causal_case(head_dim, 75, 1, 1000),
      causal_case(head_dim, 70, 4, 1000), causal_case(head_dim, 150, 1, 1),
      causal_case(head_dim, 150, 1, 40),  causal_case(head_dim, 140, 2, 65),
      random_case(head_dim, 250, 40, 1),  random_case(head_dim, 60, 67, 2)};
  cases.push_back(full_case(head_dim, 130, 3));  // no row sees the start: hidden panels and blocks
  cases.back().first_keys = {70, 77, 128};
  return cases;
}

/// Rows that see up to four segments.
std::vector<AttentionCase> long_cases() {
  std::vector<AttentionCase> cases = {full_case(32, 1023, 2), full_case(32, 1024, 2),
                                      full_case(32, 1025, 2), full_case(32, 3500, 3),
                                      random_case(16, 2600, 20, 3)};
  cases.push_back(full_case(16, 2100, 4));  // the first rows see the last segments alone
  cases.back().first_keys = {2049, 1024, 1023, 0};
  cases.back().end_keys = {2100, 2048, 2049, 1};
  return cases;
}

class AttentionTest : public testing::TestWithParam<const AttentionKernel*> {
 protected:
  /// Whether its products are VDPBF16PS's: bits of their own.
  [[nodiscard]] bool is_dot() const {
    return kernel_.kind == AttentionKind::bf16 && kernel_.isa == Isa::avx512_bf16;
  }
  /// Who has the bits that this kernel is to have.
  [[nodiscard]] AttentionResult truth(const AttentionCase& test) const {
    return is_dot() ? test.bf16_model(true)
                    : test.run(find_attention_kernel(Isa::scalar, kernel_.kind));
  }

  const AttentionKernel& kernel_ = *GetParam();
  const double bound_ = bound_of(kernel_.kind);
};

INSTANTIATE_TEST_SUITE_P(EveryIsa, AttentionTest, testing::ValuesIn(runnable_attention_kernels()),
                         [](const auto& test) {
                           std::string name = test.param->name;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

void expect_close(const AttentionResult& actual, const ExpectedAttention& expected, double bound) {
  const auto expect_all = [&](const std::vector<float>& a, const std::vector<double>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_NEAR(a[i], b[i], bound * std::max(1.0, std::abs(b[i]))) << i;
    }
  };
  expect_all(actual.out, expected.out);
  expect_all(actual.log_sum_exps, expected.log_sum_exps);
}

/// -1, or where the results first differ.
std::int64_t difference(const AttentionResult& a, const AttentionResult& b) {
  const std::int64_t at = first_difference(a.out, b.out);
  return at == -1 ? first_difference(a.log_sum_exps, b.log_sum_exps) : at;
}

TEST_P(AttentionTest, is_close_to_double_for_every_head_size) {
  for (const std::int64_t head_dim : kHeadDims) {
    for (const std::int64_t num_keys : kKeyCounts) {
      SCOPED_TRACE(testing::Message() << "head_dim " << head_dim << " keys " << num_keys);
      const AttentionCase test = full_case(head_dim, num_keys, 5);
      expect_close(test.run(kernel_), test.expected(kernel_.kind), bound_);
    }
  }
}

TEST_P(AttentionTest, is_close_to_double_for_every_number_of_keys) {
  for (std::int64_t num_keys = 1; num_keys <= 300; ++num_keys) {
    SCOPED_TRACE(num_keys);
    const AttentionCase test = full_case(16, num_keys, 3);
    expect_close(test.run(kernel_), test.expected(kernel_.kind), bound_);
  }
}

TEST_P(AttentionTest, is_close_to_double_for_every_kind_of_range) {
  for (const std::int64_t head_dim : {6, 64}) {
    for (const AttentionCase& test : range_cases(head_dim)) {
      expect_close(test.run(kernel_), test.expected(kernel_.kind), bound_);
    }
  }
}

TEST_P(AttentionTest, is_close_to_double_when_few_keys_win) {
  AttentionCase test = full_case(64, 500, 20);
  test.query_scale = 30;  // scores up to about 100: weights from 1 to 0
  expect_close(test.run(kernel_), test.expected(kernel_.kind), std::max(2e-5, bound_));
}

TEST_P(AttentionTest, gives_the_bits_of_scalar) {
  const auto expect_equal = [&](const AttentionCase& test) {
    EXPECT_EQ(difference(test.run(kernel_), truth(test)), -1) << test.head_dim;
  };
  for (const std::int64_t head_dim : kHeadDims) {
    for (const AttentionCase& test : range_cases(head_dim)) expect_equal(test);
    for (std::int64_t num_rows = 1; num_rows <= 9; ++num_rows) {
      expect_equal(full_case(head_dim, 150, num_rows));
    }
  }
  for (const std::int64_t num_rows : {15, 16, 17, 33, 64, 65}) {
    expect_equal(full_case(128, 290, num_rows));
  }
  // Groups of rows that take turns over some strips and segments, all or parts of which they see.
  for (const std::int64_t num_rows : {90, 97, 259}) expect_equal(full_case(32, 1250, num_rows));
  expect_equal(causal_case(32, 310, 3, 1000));
  expect_equal(random_case(32, 1100, 130, 4));
  for (AttentionCase& test : range_cases(64)) {
    for (const float query_scale : {0.01F, 100.0F}) {  // flat; one key wins
      test.query_scale = query_scale;
      expect_equal(test);
    }
  }
}

TEST_P(AttentionTest, infinite_scores_give_the_bits_of_scalar) {
  if (is_dot()) GTEST_SKIP() << "the model has no NaN";
  for (AttentionCase& test : range_cases(64)) {
    test.query_scale = 1e20F;
    EXPECT_EQ(difference(test.run(kernel_), truth(test)), -1);
  }
}

TEST_P(AttentionTest, gives_the_bits_of_the_model) {
  if (kernel_.kind == AttentionKind::f32) GTEST_SKIP() << "bf16 only";
  const auto expect_equal = [&](AttentionCase test) {
    EXPECT_EQ(difference(test.run(kernel_), test.bf16_model(is_dot())), -1) << test.head_dim;
    test.sinks.assign(static_cast<std::size_t>(test.num_rows()), 1.25F);
    EXPECT_EQ(difference(test.run(kernel_), test.bf16_model(is_dot())), -1) << test.head_dim;
  };
  for (const std::int64_t head_dim : {6, 64, 80}) {
    for (const AttentionCase& test : range_cases(head_dim)) expect_equal(test);
  }
  for (const AttentionCase& test : long_cases()) expect_equal(test);
}

TEST_P(AttentionTest, segments_are_close_to_double_and_the_same_on_their_own) {
  for (AttentionCase& test : long_cases()) {
    const AttentionResult result = test.run(kernel_);
    expect_close(result, test.expected(kernel_.kind), bound_);
    EXPECT_EQ(difference(result, truth(test)), -1);
    EXPECT_EQ(difference(result, test.run_row_by_row(kernel_)), -1);
    EXPECT_EQ(difference(result, test.run_by_segments(kernel_)), -1);
    test.sinks.assign(static_cast<std::size_t>(test.num_rows()), -0.5F);
    EXPECT_EQ(difference(test.run(kernel_), test.run_by_segments(kernel_)), -1);
  }
}

TEST_P(AttentionTest, a_row_has_the_same_bits_alone) {
  for (const std::int64_t head_dim : {10, 64, 80}) {
    for (const AttentionCase& test : range_cases(head_dim)) {
      ASSERT_EQ(difference(test.run(kernel_), test.run_row_by_row(kernel_)), -1) << head_dim;
    }
  }
}

TEST_P(AttentionTest, sinks_take_their_share) {
  for (const float sink : {-100.0F, -1.0F, 0.5F, 8.0F}) {
    for (AttentionCase& test : range_cases(48)) {
      test.sinks.assign(static_cast<std::size_t>(test.num_rows()), sink);
      test.sinks.front() = 2 * sink;
      const AttentionResult result = test.run(kernel_);
      expect_close(result, test.expected(kernel_.kind), bound_);
      EXPECT_EQ(difference(result, truth(test)), -1);
      EXPECT_EQ(difference(result, test.run_row_by_row(kernel_)), -1);
    }
  }
}

TEST_P(AttentionTest, values_have_a_size_of_their_own) {
  for (const std::int64_t value_dim : {2, 16, 40, 128}) {
    for (AttentionCase& test : range_cases(72)) {
      test.value_dim = value_dim;
      const AttentionResult result = test.run(kernel_);
      expect_close(result, test.expected(kernel_.kind), bound_);
      EXPECT_EQ(difference(result, truth(test)), -1);
    }
  }
}

// Latent attention: 128 heads share a key, whose first part is the value.
TEST_P(AttentionTest, heads_of_many_numbers_and_many_rows) {
  std::vector<AttentionCase> cases = {full_case(576, 140, 128), random_case(576, 70, 259, 5),
                                      full_case(576, 1030, 3)};
  for (AttentionCase& test : cases) {
    test.value_dim = 512;
    const AttentionResult result = test.run(kernel_);
    expect_close(result, test.expected(kernel_.kind), 4 * bound_);  // of longer chains
    EXPECT_EQ(difference(result, truth(test)), -1);
    EXPECT_EQ(difference(result, test.run_row_by_row(kernel_)), -1);
  }
}

TEST_P(AttentionTest, hidden_memory_does_not_matter) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  for (const std::int64_t head_dim : {6, 64}) {
    for (AttentionCase test : range_cases(head_dim)) {
      test.hidden = 0;
      const auto expected = test.run(kernel_);
      for (const float hidden : {std::numeric_limits<float>::quiet_NaN(), kInf, -kInf, 3e38F}) {
        test.hidden = hidden;
        ASSERT_EQ(difference(test.run(kernel_), expected), -1) << hidden;
      }
    }
  }
}

TEST_P(AttentionTest, a_row_is_not_poisoned_by_a_key_that_only_others_see) {
  AttentionCase test = causal_case(64, 90, 2, 1000);
  const auto clean = test.run(kernel_).out;
  test.poisoned_key = 71;
  const auto poisoned = test.run(kernel_).out;
  const std::ptrdiff_t first_poisoned = 71 * 2 * 64;
  EXPECT_TRUE(std::equal(clean.begin(), clean.begin() + first_poisoned, poisoned.begin()));
  EXPECT_TRUE(std::all_of(poisoned.begin() + first_poisoned, poisoned.end(),
                          [](float x) { return std::isnan(x); }));
}

TEST_P(AttentionTest, one_key_gives_its_value) {
  const AttentionCase test = causal_case(80, 130, 1, 1);
  const auto out = test.run(kernel_).out;
  for (std::int64_t row = 0; row < test.num_rows(); ++row) {
    for (std::int64_t d = 0; d < 80; ++d) {
      ASSERT_EQ(out[static_cast<std::size_t>(row * 80 + d)], test.value(row, d));
    }
  }
}

TEST_P(AttentionTest, no_rows_is_no_work) {
  kernel_.attend({});
}

}  // namespace
}  // namespace moesaic
