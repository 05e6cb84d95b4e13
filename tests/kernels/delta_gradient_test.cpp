// The way back through the kernels of a gated delta net, on every instruction set.

#include "kernels/delta_gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "tests/kernels/runnable_kernels.h"
#include "tests/support/slopes.h"

namespace moesaic {
namespace {

/// The inputs of a value head, or gradients by them. Rates are the sigmoids of numbers, decays e to
/// the power of numbers.
template <typename Number>
struct HeadOf {
  std::vector<Number> queries, keys, values, logits, log_decays;
};

struct HeadShape {
  std::int64_t key_dim;
  std::int64_t value_dim;
  std::int64_t rows;
};

/// The rule by definition, with what it computes on its way.
struct NaiveRule {
  HeadShape shape;
  HeadOf<double> in;

  /// [rows, value_dim]; also states after each row [rows][key_dim, value_dim] and errors, if they
  /// are wanted.
  Doubles run(Doubles* states = nullptr, Doubles* errors = nullptr) const {
    const auto [key_dim, value_dim, rows] = shape;
    Doubles state(static_cast<std::size_t>(key_dim * value_dim));
    Doubles y(static_cast<std::size_t>(rows * value_dim));
    for (std::int64_t t = 0; t < rows; ++t) {
      const double* const k = in.keys.data() + t * key_dim;
      const double* const q = in.queries.data() + t * key_dim;
      const double decay = std::exp(in.log_decays[static_cast<std::size_t>(t)]);
      const double rate = 1 / (1 + std::exp(-in.logits[static_cast<std::size_t>(t)]));
      for (std::int64_t c = 0; c < value_dim; ++c) {
        double found = 0;
        for (std::int64_t i = 0; i < key_dim; ++i) found += state_at(state, i, c) * k[i];
        const double v = in.values[static_cast<std::size_t>(t * value_dim + c)];
        const double error = rate * (v - decay * found);
        if (errors != nullptr) errors->push_back(error);
        double& result = y[static_cast<std::size_t>(t * value_dim + c)];
        for (std::int64_t i = 0; i < key_dim; ++i) {
          double& s = state_at(state, i, c);
          s = decay * s + k[i] * error;
          result += s * q[i];
        }
      }
      if (states != nullptr) states->insert(states->end(), state.begin(), state.end());
    }
    return y;
  }
  /// The gradients of the sum of y times dy, a row after the other from the last one on.
  [[nodiscard]] HeadOf<double> differentiate(const Doubles& dy) const;
  [[nodiscard]] double& state_at(Doubles& state, std::int64_t i, std::int64_t c) const {
    return state[static_cast<std::size_t>(i * shape.value_dim + c)];
  }
};

HeadOf<double> NaiveRule::differentiate(const Doubles& dy) const {
  const auto [key_dim, value_dim, rows] = shape;
  const auto size = static_cast<std::size_t>(key_dim * value_dim);
  Doubles states(size);  // before the first row
  Doubles errors;
  run(&states, &errors);
  HeadOf<double> out{Doubles(in.queries.size()), Doubles(in.keys.size()), Doubles(in.values.size()),
                     Doubles(in.logits.size()), Doubles(in.log_decays.size())};
  Doubles d(size);  // by the state after the row
  for (std::int64_t t = rows - 1; t >= 0; --t) {
    const auto row = static_cast<std::size_t>(t);
    const double* const before = states.data() + t * std::ssize(d);
    const double* const after = before + size;
    const double decay = std::exp(in.log_decays[row]);
    const double rate = 1 / (1 + std::exp(-in.logits[row]));
    for (std::int64_t c = 0; c < value_dim; ++c) {
      const auto at = static_cast<std::size_t>(t * value_dim + c);
      double de = 0;
      double found = 0;
      for (std::int64_t i = 0; i < key_dim; ++i) {
        const auto column = static_cast<std::size_t>(t * key_dim + i);
        const auto element = static_cast<std::size_t>(i * value_dim + c);
        d[element] += in.queries[column] * dy[at];
        out.queries[column] += after[element] * dy[at];
        de += d[element] * in.keys[column];
        out.keys[column] += d[element] * errors[at];
        found += before[element] * in.keys[column];
      }
      out.values[at] = rate * de;
      out.logits[row] += de * (in.values[at] - decay * found) * rate * (1 - rate);
      out.log_decays[row] -= rate * de * decay * found;
      for (std::int64_t i = 0; i < key_dim; ++i) {
        const auto column = static_cast<std::size_t>(t * key_dim + i);
        const auto element = static_cast<std::size_t>(i * value_dim + c);
        out.log_decays[row] += d[element] * decay * before[element];
        out.keys[column] -= before[element] * rate * decay * de;
        d[element] = decay * (d[element] - rate * in.keys[column] * de);
      }
    }
  }
  return out;
}

/// A value head as kernels have it.
struct HeadProblem {
  explicit HeadProblem(const HeadShape& of)
      : shape(of),
        in{normal_numbers(of.rows * of.key_dim, 1, 0.5F),
           normal_numbers(of.rows * of.key_dim, 2, 1 / std::sqrt(static_cast<float>(of.key_dim))),
           normal_numbers(of.rows * of.value_dim, 3), normal_numbers(of.rows, 4),
           normal_numbers(of.rows, 5, 0.3F)},
        dy(normal_numbers(of.rows * of.value_dim, 6)) {
    for (float& decay : in.log_decays) decay = -std::abs(decay);
    in.log_decays[static_cast<std::size_t>(of.rows / 2)] = -200;  // e^-200 is 0 in f32
  }
  [[nodiscard]] NaiveRule naive() const {
    return {shape,
            {as_doubles(in.queries), as_doubles(in.keys), as_doubles(in.values),
             as_doubles(in.logits), as_doubles(in.log_decays)}};
  }

  HeadShape shape;
  HeadOf<float> in;
  Floats dy;
};

/// By kernels, chunk by chunk, states cut into pieces of so many columns.
HeadOf<float> run_kernels(const HeadProblem& problem, const VectorKernels& kernels,
                          std::int64_t columns) {
  const auto [key_dim, value_dim, rows] = problem.shape;
  const std::int64_t state_floats = key_dim * round_up(value_dim, kDeltaColumns);
  const std::int64_t chunks = divide_up(rows, kDeltaChunk);
  Floats decays = problem.in.log_decays;
  for (float& decay : decays) decay = std::exp(decay);
  Floats rates = problem.in.logits;
  for (float& rate : rates) rate = 1 / (1 + std::exp(-rate));
  const Buffer<float> states((chunks + 1) * state_floats);
  Floats y(problem.dy.size());
  Floats errors(problem.dy.size());
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    float* const state = states.data() + (chunk + 1) * state_floats;
    std::copy_n(state - state_floats, state_floats, state);
    const std::int64_t first = chunk * kDeltaChunk;
    kernels.delta.delta_rule({.queries = problem.in.queries.data() + first * key_dim,
                              .keys = problem.in.keys.data() + first * key_dim,
                              .values = problem.in.values.data() + first * value_dim,
                              .value_stride = value_dim,
                              .decays = decays.data() + first,
                              .rates = rates.data() + first,
                              .scalar_stride = 1,
                              .key_dim = key_dim,
                              .columns = value_dim,
                              .rows = std::min(kDeltaChunk, rows - first),
                              .state = state,
                              .y = y.data() + first * value_dim,
                              .y_stride = value_dim,
                              .errors = errors.data() + first * value_dim,
                              .errors_stride = value_dim});
  }
  const Buffer<float> gradient(state_floats);
  const Buffer<float> end_gradient(state_floats);
  const Buffer<float> scratch(delta_chunk_floats(key_dim, value_dim));
  Floats error_gradients(static_cast<std::size_t>(kDeltaChunk * value_dim));
  HeadOf<float> out{Floats(problem.in.queries.size()), Floats(problem.in.keys.size()),
                    Floats(problem.in.values.size()), Floats(problem.in.logits.size()),
                    Floats(problem.in.log_decays.size())};
  for (std::int64_t chunk = chunks - 1; chunk >= 0; --chunk) {
    const std::int64_t first = chunk * kDeltaChunk;
    const std::int64_t count = std::min(kDeltaChunk, rows - first);
    const float* const queries = problem.in.queries.data() + first * key_dim;
    const float* const keys = problem.in.keys.data() + first * key_dim;
    std::copy_n(gradient.data(), state_floats, end_gradient.data());
    for (std::int64_t c = 0; c < value_dim; c += columns) {
      kernels.delta_gradient.delta_rule(
          {.queries = queries,
           .keys = keys,
           .result_gradients = {problem.dy.data() + first * value_dim + c, value_dim},
           .decays = decays.data() + first,
           .rates = rates.data() + first,
           .scalar_stride = 1,
           .key_dim = key_dim,
           .columns = std::min(columns, value_dim - c),
           .rows = count,
           .state_gradient = gradient.data() + c * key_dim,
           .error_gradients = {error_gradients.data() + c, value_dim}});
    }
    kernels.delta_gradient.chunk(
        {.queries = queries,
         .keys = keys,
         .values = {problem.in.values.data() + first * value_dim, value_dim},
         .results = {y.data() + first * value_dim, value_dim},
         .result_gradients = {problem.dy.data() + first * value_dim, value_dim},
         .errors = errors.data() + first * value_dim,
         .error_gradients = error_gradients.data(),
         .decays = decays.data() + first,
         .rates = rates.data() + first,
         .scalar_stride = 1,
         .key_dim = key_dim,
         .value_dim = value_dim,
         .rows = count,
         .start = chunk > 0 ? states.data() + chunk * state_floats : nullptr,
         .end = states.data() + (chunk + 1) * state_floats,
         .end_gradient = chunk + 1 < chunks ? end_gradient.data() : nullptr,
         .scratch = scratch.data(),
         .query_gradients = {out.queries.data() + first * key_dim, key_dim},
         .key_gradients = {out.keys.data() + first * key_dim, key_dim},
         .value_gradients = {out.values.data() + first * value_dim, value_dim},
         .decay_gradients = out.log_decays.data() + first,
         .rate_gradients = out.logits.data() + first});
  }
  return out;
}

TEST(DeltaGradient, the_rule_by_rows_is_what_finite_differences_give) {
  const HeadProblem problem({5, 7, 9});
  NaiveRule naive = problem.naive();
  const Doubles dy = as_doubles(problem.dy);
  const auto loss = [&] {
    const Doubles y = naive.run();
    return product(y.data(), dy.data(), std::ssize(y));
  };
  const HeadOf<double> gradients = naive.differentiate(dy);
  EXPECT_LT(distance(gradients.queries, slopes(naive.in.queries, loss)), 1e-8);
  EXPECT_LT(distance(gradients.keys, slopes(naive.in.keys, loss)), 1e-8);
  EXPECT_LT(distance(gradients.values, slopes(naive.in.values, loss)), 1e-8);
  EXPECT_LT(distance(gradients.logits, slopes(naive.in.logits, loss)), 1e-8);
  EXPECT_LT(distance(gradients.log_decays, slopes(naive.in.log_decays, loss)), 1e-8);
}

TEST(DeltaGradient, chunks_are_close_to_the_rule_by_rows) {
  for (const HeadShape& shape : {HeadShape{5, 7, 9},
                                 {128, 128, 200},
                                 {18, 36, 64},
                                 {20, 17, 65},
                                 {16, 48, 1},
                                 {3, 16, 129}}) {
    const HeadProblem problem(shape);
    const HeadOf<double> expected = problem.naive().differentiate(as_doubles(problem.dy));
    for (const VectorKernels* kernels : runnable_vector_kernels()) {
      const HeadOf<float> found = run_kernels(problem, *kernels, shape.value_dim);
      EXPECT_LT(distance(found.queries, expected.queries), 2e-6) << kernels->name << shape.rows;
      EXPECT_LT(distance(found.keys, expected.keys), 2e-6) << kernels->name << shape.rows;
      EXPECT_LT(distance(found.values, expected.values), 2e-6) << kernels->name << shape.rows;
      EXPECT_LT(distance(found.logits, expected.logits), 2e-6) << kernels->name << shape.rows;
      if (shape.rows == 1) continue;  // nothing decays
      EXPECT_LT(distance(found.log_decays, expected.log_decays), 1e-5) << kernels->name;
    }
  }
}

// Subnormal numbers would take a hundred times as long.
TEST(DeltaGradient, what_has_decayed_to_almost_nothing_is_zero) {
  HeadProblem problem({16, 32, 2 * kDeltaChunk});
  std::ranges::fill(problem.in.log_decays, -1.4F);  // after 64 rows 1e-39
  std::fill(problem.dy.begin(), problem.dy.end() - 32, 0.0F);
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    const HeadOf<float> found = run_kernels(problem, *kernels, 32);
    EXPECT_NE(found.keys.back(), 0) << kernels->name;
    const auto is_zero = [](float value) { return value == 0; };
    EXPECT_TRUE(std::all_of(found.keys.begin(), found.keys.begin() + kDeltaChunk * 16, is_zero))
        << kernels->name;
    EXPECT_TRUE(std::all_of(found.values.begin(), found.values.begin() + kDeltaChunk * 32, is_zero))
        << kernels->name;
  }
}

TEST(DeltaGradient, chunks_have_the_same_bits_everywhere_and_however_columns_are_cut) {
  const HeadProblem problem({18, 70, 83});
  const HeadOf<float> expected = run_kernels(problem, find_vector_kernels(Isa::scalar), 70);
  for (const VectorKernels* kernels : runnable_vector_kernels()) {
    for (const std::int64_t columns : {70, 32, 16}) {
      const HeadOf<float> found = run_kernels(problem, *kernels, columns);
      EXPECT_EQ(found.queries, expected.queries) << kernels->name << columns;
      EXPECT_EQ(found.keys, expected.keys) << kernels->name << columns;
      EXPECT_EQ(found.values, expected.values) << kernels->name << columns;
      EXPECT_EQ(found.logits, expected.logits) << kernels->name << columns;
      EXPECT_EQ(found.log_decays, expected.log_decays) << kernels->name << columns;
    }
  }
}

}  // namespace
}  // namespace moesaic
