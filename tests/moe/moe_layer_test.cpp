// The expert-parallel layer on ranks that are threads, against a plain double-precision model of
// it.

#include "src/moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
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
  explicit Model(const Shape& s, unsigned seed = 11) : shape(s) {
    std::mt19937 random(seed);
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

/// Of the token's choices, heaviest first, those from `first` to before `last`: their weighted sum
/// is added to `y`.
void add_choices(const Model& model, std::size_t token, std::size_t first, std::size_t last,
                 std::vector<double>& y) {
  const std::vector<double> x(model.tokens[token].begin(), model.tokens[token].end());
  const std::vector<double> logits = times(model.router, x);
  std::vector<std::size_t> order(logits.size());
  for (std::size_t e = 0; e < order.size(); ++e) order[e] = e;
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  for (std::size_t k = first; k < last; ++k) {
    const std::size_t e = order[k];
    std::vector<double> h = times(model.gate[e], x);
    const std::vector<double> u = times(model.up[e], x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = h[i] / (1 + std::exp(-h[i])) * u[i];
    const std::vector<double> part = times(model.down[e], h);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += std::exp(logits[e]) / sum * part[i];
  }
}

/// Layer l of `layers`, where each but the last leaves `defer` choices to the next.
std::vector<double> reference(std::span<const Model> layers, std::size_t l, std::size_t token,
                              std::size_t defer) {
  std::vector<double> y(static_cast<std::size_t>(layers[l].shape.hidden));
  const auto topk = static_cast<std::size_t>(layers[l].shape.topk);
  if (l > 0) add_choices(layers[l - 1], token, topk - defer, topk, y);
  add_choices(layers[l], token, 0, l + 1 < layers.size() ? topk - defer : topk, y);
  return y;
}

std::vector<double> reference(const Model& model, std::size_t token) {
  return reference({&model, 1}, 0, token, 0);
}

/// The tokens [first, first + count).
struct Share {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// One rank's layers and what they run in.
class Rank {
 public:
  Rank(const Model& model, Communicator& world, int threads) : Rank({&model, 1}, world, threads) {}
  Rank(std::span<const Model> layers, Communicator& world, int threads)
      : models_(layers),
        shape_(layers.front().shape),
        world_(world),
        pool_(threads),
        compute_{.isa = supported_isas().back(),
                 .vector = &find_vector_kernels(supported_isas().back()),
                 .pool = &pool_},
        gemm_(compute_),
        adapters_(compute_, gemm_),
        mlps_(compute_, gemm_, adapters_),
        experts_work_{mlps_},
        placement_(shape_.experts, world.size()) {
    memory_.reserve(100);
    for (const Model& model : layers) layers_.push_back(make_layer(model));
    pool_.set_between_tasks([&world] { world.progress(); }, std::chrono::microseconds(0));
  }

  [[nodiscard]] MoeWorkspace workspace() {
    return {{world_, placement_, gemm_, adapters_.transposed(), times_},
            shape_.hidden * 4,
            shape_.topk};
  }
  [[nodiscard]] MoeLayer& layer(std::size_t l = 0) { return layers_[l]; }

  /// Tokens of layer l.
  [[nodiscard]] std::vector<float> inputs(Share share, std::size_t l = 0) const {
    std::vector<float> x;
    for (std::int64_t t = share.first; t < share.first + share.count; ++t) {
      const auto& row = models_[l].tokens[static_cast<std::size_t>(t)];
      x.insert(x.end(), row.begin(), row.end());
    }
    return x;
  }
  void begin(const std::vector<float>& x, MoeWorkspace& work, std::size_t l = 0) {
    layers_[l].begin({x.data(), std::ssize(x) / shape_.hidden, shape_.hidden}, work);
  }
  [[nodiscard]] std::vector<float> end(const std::vector<float>& x, MoeWorkspace& work,
                                       std::size_t l = 0) {
    std::vector<float> y(x.size(), -1.0F);
    layers_[l].end({y.data(), std::ssize(x) / shape_.hidden, shape_.hidden}, work);
    return y;
  }

 private:
  MoeLayer make_layer(const Model& model) {
    std::vector<AdaptedMlp> experts;
    for (std::int64_t slot = 0; slot < placement_.num_local_experts(world_.rank()); ++slot) {
      const auto e = static_cast<std::size_t>(placement_.experts_start_idx(world_.rank()) + slot);
      experts.push_back({.weights = {.gate = pack(model.gate[e], memory_),
                                     .up = pack(model.up[e], memory_),
                                     .down = pack(model.down[e], memory_)}});
    }
    constexpr auto kElement = RowSource::Element::f32;
    return {Router(pack(model.router, memory_), {.topk = model.shape.topk}, compute_),
            std::make_unique<CpuExperts>(experts, kElement, experts_work_), kElement, compute_};
  }

  std::span<const Model> models_;
  Shape shape_;
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
  std::vector<MoeLayer> layers_;
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

/// The results of all layers, each for its own tokens of `share`, cut into two batches in turn.
std::vector<std::vector<float>> run_deferring(std::span<const Model> layers, Communicator& world,
                                              Share share, std::int64_t defer) {
  Rank rank(layers, world, 2);
  std::array<MoeWorkspace, 2> work = {rank.workspace(), rank.workspace()};
  const std::int64_t early = share.count / 3;
  std::vector<std::vector<float>> results;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::array<std::vector<float>, 2> x = {
        rank.inputs({share.first, early}, l),
        rank.inputs({share.first + early, share.count - early}, l)};
    for (std::size_t half = 0; half < 2; ++half) {
      work[half].defer = l + 1 < layers.size() ? defer : 0;
      rank.begin(x[half], work[half], l);
    }
    std::vector<float>& y = results.emplace_back();
    for (std::size_t half = 0; half < 2; ++half) {
      const std::vector<float> part = rank.end(x[half], work[half], l);
      y.insert(y.end(), part.begin(), part.end());
    }
  }
  return results;
}

TEST(MoeLayer, the_next_layer_sums_what_is_deferred) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12), Model(Shape{}, 13)};
  for (const std::int64_t defer : {1, 2, 3}) {
    std::vector<std::vector<float>> expected;
    run_thread_ranks(1, [&](Communicator& world) {
      expected = run_deferring(layers, world, {0, 60}, defer);
    });
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (std::size_t t = 0; t < 60; ++t) {
        const std::vector<double> truth = reference(layers, l, t, static_cast<std::size_t>(defer));
        for (std::size_t i = 0; i < truth.size(); ++i) {
          ASSERT_NEAR(expected[l][t * truth.size() + i], truth[i], 1e-5) << "layer " << l;
        }
      }
    }
    for (const int ranks : {2, 3, 4}) {
      run_thread_ranks(ranks, [&](Communicator& world) {
        const std::int64_t share = 60 / ranks;
        const Share own{world.rank() * share, world.rank() == 1 ? 0 : share};
        const auto results = run_deferring(layers, world, own, defer);
        for (std::size_t l = 0; l < layers.size(); ++l) {
          ASSERT_TRUE(std::equal(results[l].begin(), results[l].end(),
                                 expected[l].begin() + own.first * layers[0].shape.hidden))
              << ranks << " ranks, layer " << l << ", " << defer << " deferred";
        }
      });
    }
  }
}

TEST(Deferral, leaves_the_lightest_choices_and_of_equal_ones_the_higher_ids) {
  const auto experts = [](std::initializer_list<int> ids) {
    std::vector<ExpertId> result;
    for (const int id : ids) result.push_back(ExpertId{id});
    return result;
  };
  const float nan = std::nanf("");
  const Routing all{
      .num_tokens = 3,
      .topk = 4,
      .experts = experts({1, 3, 5, 7, 0, 2, 4, 6, 2, 3, 4, 5}),
      .weights = {0.1F, 0.4F, 0.2F, 0.3F, 0.25F, 0.25F, 0.25F, 0.25F, 0.1F, nan, 0.5F, 0.3F}};
  Routing immediate;
  Routing deferred;
  split_routing(all, 2, immediate, deferred);
  EXPECT_EQ(immediate.experts, experts({3, 7, 0, 2, 4, 5}));
  EXPECT_EQ(immediate.weights, (std::vector{0.4F, 0.3F, 0.25F, 0.25F, 0.5F, 0.3F}));
  EXPECT_EQ(deferred.experts, experts({1, 5, 4, 6, 2, 3}));
  EXPECT_EQ(immediate.topk, 2);
  EXPECT_EQ(deferred.first_word, 2);
  split_routing(all, 4, immediate, deferred);
  EXPECT_TRUE(immediate.experts.empty());
  EXPECT_EQ(deferred.experts, all.experts);
}

TEST(MoeLayer, no_tokens_anywhere) {
  const Model model{Shape{}};
  run_thread_ranks(
      3, [&](Communicator& world) { EXPECT_TRUE(run_layer(model, world, {}, 1).empty()); });
}

}  // namespace
}  // namespace moesaic
