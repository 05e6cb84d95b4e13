// The expert-parallel layer on ranks that are threads, against a plain double-precision model of
// it.

#include "src/moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "comm/thread_communicator.h"
#include "kernels/whole_product.h"

namespace moesaic {
namespace {

using Matrix = std::vector<std::vector<float>>;

struct Shape {
  std::int64_t experts = 7;
  std::int64_t hidden = 40;
  std::int64_t intermediate = 24;
  std::int64_t topk = 3;
};

/// Weights and tokens that every rank makes alike from one seed.
struct Model {
  explicit Model(const Shape& s) : shape(s) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0, 0.2F);
    const auto matrix = [&](std::int64_t rows, std::int64_t cols) {
      Matrix m(static_cast<std::size_t>(rows), std::vector<float>(static_cast<std::size_t>(cols)));
      for (auto& row : m) std::ranges::generate(row, [&] { return normal(random); });
      return m;
    };
    router = matrix(s.experts, s.hidden);
    for (std::int64_t e = 0; e < s.experts; ++e) {
      gate.push_back(matrix(s.intermediate, s.hidden));
      up.push_back(matrix(s.intermediate, s.hidden));
      down.push_back(matrix(s.hidden, s.intermediate));
    }
    tokens = matrix(60, s.hidden);
  }

  Shape shape;
  Matrix router;
  std::vector<Matrix> gate, up, down;
  Matrix tokens;
};

PackedMatrix pack(const Matrix& matrix, std::vector<OwnedMatrix>& memory) {
  std::vector<float> values;
  for (const auto& row : matrix) values.insert(values.end(), row.begin(), row.end());
  memory.push_back(
      pack_matrix({.format = Format::f32}, values, std::ssize(matrix), std::ssize(matrix.front())));
  return memory.back().matrix;
}

std::vector<double> times(const Matrix& matrix, const std::vector<double>& x) {
  std::vector<double> y;
  for (const auto& row : matrix) {
    double sum = 0;
    for (std::size_t i = 0; i < row.size(); ++i) sum += static_cast<double>(row[i]) * x[i];
    y.push_back(sum);
  }
  return y;
}

std::vector<double> reference(const Model& model, std::size_t token) {
  const std::vector<double> x(model.tokens[token].begin(), model.tokens[token].end());
  const std::vector<double> logits = times(model.router, x);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  std::vector<double> y(x.size());
  for (std::size_t k = 0; k < static_cast<std::size_t>(model.shape.topk); ++k) {
    const std::size_t e = order[k];
    std::vector<double> h = times(model.gate[e], x);
    const std::vector<double> u = times(model.up[e], x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
    const std::vector<double> part = times(model.down[e], h);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += std::exp(logits[e]) / sum * part[i];
  }
  return y;
}

/// The layer's result for the tokens [first, first + count) on this rank.
std::vector<float> run_layer(const Model& model, Communicator& world, std::int64_t first,
                             std::int64_t count, int threads) {
  const Shape& s = model.shape;
  std::vector<OwnedMatrix> memory;
  memory.reserve(100);
  ThreadPool pool(threads);
  const Compute compute{.isa = supported_isas().back(),
                        .vector = &find_vector_kernels(supported_isas().back()),
                        .pool = &pool};
  const ExpertPlacement placement(s.experts, world.size());
  std::vector<ExpertWeights> experts;
  for (std::int64_t slot = 0; slot < placement.num_local_experts(world.rank()); ++slot) {
    const auto e = static_cast<std::size_t>(placement.experts_start_idx(world.rank()) + slot);
    experts.push_back({.gate = pack(model.gate[e], memory),
                       .up = pack(model.up[e], memory),
                       .down = pack(model.down[e], memory)});
  }
  GroupedGemm gemm(compute);
  MoeLayer layer(Router(pack(model.router, memory), {.topk = s.topk}, compute),
                 ExpertExecutor(experts, RowSource::Element::f32), RowSource::Element::f32,
                 compute);
  MoeWorkspace work(world, placement, s.hidden * 4, s.topk);
  PhaseTimes times_spent;
  std::vector<float> x;
  for (std::int64_t t = first; t < first + count; ++t) {
    const auto& row = model.tokens[static_cast<std::size_t>(t)];
    x.insert(x.end(), row.begin(), row.end());
  }
  std::vector<float> y(x.size());
  for (int pass = 0; pass < 3; ++pass) {  // buffers are used again
    std::ranges::fill(y, -1.0F);
    bool met = false;
    layer.forward({x.data(), count, s.hidden}, {y.data(), count, s.hidden}, gemm, work, times_spent,
                  [&] { met = true; });
    EXPECT_TRUE(met);
  }
  return y;
}

TEST(MoeLayer, equals_the_reference_on_any_number_of_ranks) {
  const Model model{Shape{}};
  std::vector<float> expected;
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, 0, 60, 2); });
  for (std::size_t t = 0; t < 60; ++t) {
    const std::vector<double> truth = reference(model, t);
    for (std::size_t i = 0; i < truth.size(); ++i) {
      ASSERT_NEAR(expected[t * truth.size() + i], truth[i], 1e-5) << "token " << t;
    }
  }
  for (const int ranks : {2, 3, 4, 7}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      // Uneven shares; rank 1 has no tokens.
      const std::int64_t share = 60 / ranks;
      const std::int64_t first = world.rank() * share;
      const std::int64_t count = world.rank() == 1 ? 0 : share;
      const std::vector<float> y = run_layer(model, world, first, count, 1);
      for (std::size_t i = 0; i < y.size(); ++i) {
        ASSERT_EQ(y[i], expected[static_cast<std::size_t>(first * model.shape.hidden) + i])
            << ranks << " ranks, rank " << world.rank();
      }
    });
  }
}

TEST(MoeLayer, all_tokens_to_one_expert) {
  Model model{Shape{.experts = 4, .topk = 1}};
  // Expert 2's logit is the sum of |x| in effect: make it win for every token.
  for (auto& row : model.tokens) {
    for (float& value : row) value = std::abs(value);
  }
  for (auto& row : model.router) std::ranges::fill(row, -1.0F);
  std::ranges::fill(model.router[2], 1.0F);
  std::vector<float> expected;
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, 0, 60, 1); });
  EXPECT_NEAR(expected[5], reference(model, 0)[5], 1e-4);
  run_thread_ranks(4, [&](Communicator& world) {
    const std::vector<float> y = run_layer(model, world, world.rank() * 15, 15, 1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], expected[static_cast<std::size_t>(world.rank()) * 15 * 40 + i]);
    }
  });
}

TEST(MoeLayer, no_tokens_anywhere) {
  const Model model{Shape{}};
  run_thread_ranks(
      3, [&](Communicator& world) { EXPECT_TRUE(run_layer(model, world, 0, 0, 1).empty()); });
}

}  // namespace
}  // namespace moesaic
