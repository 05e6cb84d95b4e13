// The expert-parallel layer on ranks that are threads, against a plain double-precision model of
// it.

#include "src/moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "comm/thread_communicator.h"
#include "kernels/whole_product.h"
#include "src/moe/cpu_experts.h"

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

/// The tokens [first, first + count).
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One rank's layer and what it runs in.
class Rank {
 public:
  Rank(const Model& model, Communicator& world, int threads)
      : model_(model),
        world_(world),
        pool_(threads),
        compute_{.isa = supported_isas().back(),
                 .vector = &find_vector_kernels(supported_isas().back()),
                 .pool = &pool_},
        gemm_(compute_),
        adapters_(compute_, gemm_),
        mlps_(compute_, gemm_, adapters_),
        experts_work_{mlps_},
        placement_(model.shape.experts, world.size()),
        layer_(make_layer()) {
    pool_.set_between_tasks([&world] { world.progress(); }, std::chrono::microseconds(0));
  }

  [[nodiscard]] MoeWorkspace workspace() {
    return {{world_, placement_, gemm_, adapters_.transposed(), times_},
            model_.shape.hidden * 4,
            model_.shape.topk};
  }
  [[nodiscard]] MoeLayer& layer() { return layer_; }

  [[nodiscard]] std::vector<float> inputs(Share share) const {
    std::vector<float> x;
    for (std::int64_t t = share.first; t < share.first + share.count; ++t) {
      const auto& row = model_.tokens[static_cast<std::size_t>(t)];
      x.insert(x.end(), row.begin(), row.end());
    }
    return x;
  }
  void begin(const std::vector<float>& x, MoeWorkspace& work) {
    layer_.begin({x.data(), std::ssize(x) / model_.shape.hidden, model_.shape.hidden}, work);
  }
  [[nodiscard]] std::vector<float> end(const std::vector<float>& x, MoeWorkspace& work) {
    std::vector<float> y(x.size(), -1.0F);
    layer_.end({y.data(), std::ssize(x) / model_.shape.hidden, model_.shape.hidden}, work);
    return y;
  }

 private:
  MoeLayer make_layer() {
    memory_.reserve(100);
    std::vector<AdaptedMlp> experts;
    for (std::int64_t slot = 0; slot < placement_.num_local_experts(world_.rank()); ++slot) {
      const auto e = static_cast<std::size_t>(placement_.experts_start_idx(world_.rank()) + slot);
      experts.push_back({.weights = {.gate = pack(model_.gate[e], memory_),
                                     .up = pack(model_.up[e], memory_),
                                     .down = pack(model_.down[e], memory_)}});
    }
    constexpr auto kElement = RowSource::Element::f32;
    return {Router(pack(model_.router, memory_), {.topk = model_.shape.topk}, compute_),
            std::make_unique<CpuExperts>(experts, kElement, experts_work_), kElement, compute_};
  }

  const Model& model_;
  Communicator& world_;
  std::vector<OwnedMatrix> memory_;
  ThreadPool pool_;
  Compute compute_;
  GroupedGemm gemm_;
  AdapterProducts adapters_;
  MlpProducts mlps_;
  CpuExpertsWorkspace experts_work_;
  ExpertPlacement placement_;
  PhaseTimes times_;
  MoeLayer layer_;
};

/// The layer's result for the tokens [first, first + count) on this rank.
std::vector<float> run_layer(const Model& model, Communicator& world, Share share, int threads) {
  Rank rank(model, world, threads);
  MoeWorkspace work = rank.workspace();
  const std::vector<float> x = rank.inputs(share);
  std::vector<float> y;
  for (int pass = 0; pass < 3; ++pass) {  // buffers are used again
    rank.begin(x, work);
    y = rank.end(x, work);
  }
  return y;
}

TEST(MoeLayer, equals_the_reference_on_any_number_of_ranks) {
  const Model model{Shape{}};
  std::vector<float> expected;
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, {0, 60}, 2); });
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
      const std::vector<float> y = run_layer(model, world, {first, count}, 1);
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
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, {0, 60}, 1); });
  EXPECT_NEAR(expected[5], reference(model, 0)[5], 1e-4);
  run_thread_ranks(4, [&](Communicator& world) {
    const std::vector<float> y = run_layer(model, world, {world.rank() * 15, 15}, 1);
    for (std::size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], expected[static_cast<std::size_t>(world.rank()) * 15 * 40 + i]);
    }
  });
}

/// What two half-batches in turn and deferred experts do: both batches are under way, first with
/// their rows and then with their results, while the other computes.
TEST(MoeLayer, two_batches_are_under_way) {
  const Model model{Shape{}};
  std::vector<float> expected;
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, {0, 60}, 1); });
  const auto check = [&](const std::vector<float>& y, Share share) {
    const auto* wanted = expected.data() + share.first * model.shape.hidden;
    ASSERT_TRUE(std::equal(y.begin(), y.end(), wanted));
  };
  for (const int ranks : {1, 2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      Rank rank(model, world, 1);
      MoeWorkspace early = rank.workspace();
      MoeWorkspace late = rank.workspace();
      const std::int64_t share = 60 / ranks;
      const Share a{world.rank() * share, world.rank() == 2 ? 0 : share / 3};
      const Share b{a.first + a.count, share - a.count};
      const std::vector<float> x_early = rank.inputs(a);
      const std::vector<float> x_late = rank.inputs(b);
      for (int pass = 0; pass < 6; ++pass) {
        rank.begin(x_early, early);
        rank.begin(x_late, late);
        if (pass % 3 == 1) rank.layer().execute(early);
        if (pass % 3 == 2) {
          rank.layer().execute(early);
          rank.layer().execute(late);
        }
        check(rank.end(x_early, early), a);
        check(rank.end(x_late, late), b);
      }
    });
  }
}

TEST(MoeLayer, no_tokens_anywhere) {
  const Model model{Shape{}};
  run_thread_ranks(
      3, [&](Communicator& world) { EXPECT_TRUE(run_layer(model, world, {}, 1).empty()); });
}

}  // namespace
}  // namespace moesaic
