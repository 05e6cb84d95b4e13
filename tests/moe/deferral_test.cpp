// Approximate options of MoE layers: choices that the next layer sums, rows and results that are
// rounded, results that are added where they are computed.

#include "src/moe/deferral.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <tuple>
#include <utility>

#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "src/moe/moe_options.h"
#include "tests/moe/forwarding_rows.h"
#include "tests/moe/small_layers.h"

namespace moesaic::test {
namespace {

/// The results of all layers, each for its own tokens of `share`, cut into two batches in turn.
std::vector<std::vector<float>> run_layers(std::span<const Model> layers, Communicator& world,
                                           Share share, const MoeOptions& options) {
  Rank rank(layers, world, 2);
  std::array<MoeWorkspace, 2> work = {rank.workspace(options), rank.workspace(options)};
  const std::int64_t early = share.count / 3;
  std::vector<std::vector<float>> results;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::array<std::vector<float>, 2> x = {
        rank.inputs({share.first, early}, l),
        rank.inputs({share.first + early, share.count - early}, l)};
    for (std::size_t half = 0; half < 2; ++half) {
      work[half].defer = l + 1 < layers.size() ? options.defer : 0;
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

void expect_the_same_on_more_ranks(std::span<const Model> layers, const MoeOptions& options,
                                   const std::vector<std::vector<float>>& expected) {
  for (const int ranks : {2, 3, 4}) {
    run_thread_ranks(ranks, [&](Communicator& world) {
      const std::int64_t share = 60 / ranks;
      const Share own{world.rank() * share, world.rank() == 1 ? 0 : share};
      const auto results = run_layers(layers, world, own, options);
      for (std::size_t l = 0; l < layers.size(); ++l) {
        ASSERT_TRUE(std::equal(results[l].begin(), results[l].end(),
                               expected[l].begin() + own.first * layers[0].shape.hidden))
            << ranks << " ranks, layer " << l << ", " << options.defer << " deferred";
      }
    });
  }
}

TEST(MoeLayer, the_next_layer_sums_what_is_deferred) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12), Model(Shape{}, 13)};
  for (const std::int64_t defer : {1, 2, 3}) {
    std::vector<std::vector<float>> expected;
    run_thread_ranks(1, [&](Communicator& world) {
      expected = run_layers(layers, world, {0, 60}, {.defer = defer});
    });
    for (std::size_t l = 0; l < layers.size(); ++l) {
      for (std::size_t t = 0; t < 60; ++t) {
        const std::vector<double> truth = reference(layers, l, t, static_cast<std::size_t>(defer));
        for (std::size_t i = 0; i < truth.size(); ++i) {
          ASSERT_NEAR(expected[l][t * truth.size() + i], truth[i], 1e-5) << "layer " << l;
        }
      }
    }
    expect_the_same_on_more_ranks(layers, {.defer = defer}, expected);
  }
}

double relative_distance(const std::vector<float>& found, const std::vector<float>& truth) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < truth.size(); ++i) {
    difference += std::pow(found[i] - truth[i], 2);
    norm += std::pow(truth[i], 2);
  }
  return std::sqrt(difference / norm);
}

TEST(MoeLayer, forms_of_the_wire_round_all_rows_and_results) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12)};
  std::vector<std::vector<float>> exact;
  run_thread_ranks(1, [&](Communicator& world) { exact = run_layers(layers, world, {0, 60}, {}); });
  for (const auto& [wire, least, most] :
       {std::tuple(WireForm::bf16, 1e-4, 4e-3), std::tuple(WireForm::int8, 1e-3, 2e-2)}) {
    for (const std::int64_t defer : {0, 2}) {
      const MoeOptions options{.defer = defer, .wire = wire};
      std::vector<std::vector<float>> expected;
      run_thread_ranks(1, [&](Communicator& world) {
        expected = run_layers(layers, world, {0, 60}, options);
      });
      expect_the_same_on_more_ranks(layers, options, expected);
      if (defer > 0) continue;
      EXPECT_GT(relative_distance(expected[0], exact[0]), least);
      EXPECT_LT(relative_distance(expected[0], exact[0]), most);
    }
  }
}

/// The layer's sums, each by its own rank for its tokens; `first_only`: rank 0 has all tokens.
std::vector<float> run_fast(std::span<const Model> layers, int ranks, int per_node,
                            const MoeOptions& options, bool first_only = false) {
  const std::int64_t hidden = layers[0].shape.hidden;
  std::vector<float> all(static_cast<std::size_t>(60 * hidden));
  run_thread_ranks(ranks,
                   [&](Communicator& world) {
                     const std::int64_t share = first_only ? 60 : 60 / ranks;
                     const Share own{first_only ? 0 : world.rank() * share,
                                     first_only && world.rank() > 0 ? 0 : share};
                     const auto results = run_layers(layers, world, own, options);
                     std::ranges::copy(results.back(), all.begin() + own.first * hidden);
                   },
                   {.ranks_per_node = per_node});
  return all;
}

/// `model` where only the experts of one of `ranks` give anything.
Model of_one_rank(const Model& model, int rank, int ranks) {
  Model part = model;
  const ExpertPlacement placement(model.shape.experts, ranks);
  for (std::int64_t expert = 0; expert < model.shape.experts; ++expert) {
    if (placement.rank_of(ExpertId{static_cast<std::int32_t>(expert)}) == rank) continue;
    for (auto& row : part.down[static_cast<std::size_t>(expert)]) std::ranges::fill(row, 0.0F);
  }
  return part;
}

void add(const std::vector<float>& more, std::vector<float>& sum) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
}

TEST(MoeLayer, ranks_and_then_nodes_add_their_results_first_where_that_is_wanted) {
  const Model model(Shape{}, 11);
  const MoeOptions fast{.combine = Combine::fast};
  const std::vector<float> zeros(static_cast<std::size_t>(60 * model.shape.hidden), 0.0F);
  for (const int ranks : {1, 2, 3, 4, 6}) {
    std::vector<std::vector<float>> parts;
    for (int rank = 0; rank < ranks; ++rank) {
      const Model part = of_one_rank(model, rank, ranks);
      parts.push_back(run_fast({&part, 1}, 1, 0, {}));
    }
    for (const int per_node : {0, 1, 2, 3, 4}) {
      const int in_sum = per_node > 0 && per_node < ranks ? per_node : 1;  // one node adds nothing
      std::vector<float> expected = zeros;
      for (int first = 0; first < ranks; first += in_sum) {
        std::vector<float> node = zeros;
        for (int rank = first; rank < std::min(first + in_sum, ranks); ++rank) {
          add(parts[static_cast<std::size_t>(rank)], node);
        }
        add(node, expected);
      }
      EXPECT_EQ(run_fast({&model, 1}, ranks, per_node, fast), expected) << ranks << ' ' << per_node;
      EXPECT_EQ(run_fast({&model, 1}, ranks, per_node, fast, true), expected) << ranks;
    }
  }
}

TEST(MoeLayer, added_results_go_with_other_options) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12)};
  for (const WireForm wire : {WireForm::exact, WireForm::bf16, WireForm::int8}) {
    for (const std::int64_t defer : {0, 2, 3}) {
      const MoeOptions ordered{.defer = defer, .wire = wire};
      MoeOptions fast = ordered;
      fast.combine = Combine::fast;
      const std::vector<float> exact = run_fast(layers, 1, 0, ordered);
      // Whose tokens they are does not matter, and ranks on nodes of their own add nothing.
      const std::vector<float> sums = run_fast(layers, 3, 0, fast);
      EXPECT_EQ(run_fast(layers, 3, 1, fast), sums);
      EXPECT_EQ(run_fast(layers, 3, 0, fast, true), sums);
      EXPECT_EQ(run_fast(layers, 3, 1, fast, true), sums);
      const std::vector<float> of_nodes = run_fast(layers, 6, 2, fast);
      EXPECT_EQ(run_fast(layers, 6, 2, fast, true), of_nodes);
      const double limit = wire == WireForm::exact ? 1e-5 : wire == WireForm::bf16 ? 4e-3 : 2e-2;
      EXPECT_LT(relative_distance(sums, exact), limit);
      EXPECT_LT(relative_distance(of_nodes, exact), limit);
    }
  }
}

TEST(MoeLayer, added_results_are_counted) {
  const Model model(Shape{}, 11);
  const auto load_with = [&](Combine combine) {
    ExpertLoad all;
    run_thread_ranks(2, [&](Communicator& world) {
      Rank rank(model, world, 1);
      MoeWorkspace work = rank.workspace({.combine = combine});
      const std::vector<float> x = rank.inputs({0, world.rank() == 0 ? 60 : 0});
      rank.begin(x, work);
      (void)rank.end(x, work);
      if (world.rank() == 1) all = work.load;
    });
    return all;
  };
  const ExpertLoad ordered = load_with(Combine::ordered);
  const ExpertLoad fast = load_with(Combine::fast);
  EXPECT_EQ(ordered.results_saved, 0);
  EXPECT_GT(fast.results_saved, 0);
  EXPECT_EQ(fast.result_bytes_saved, fast.results_saved * model.shape.hidden * 4);
  EXPECT_EQ(fast.bytes_sent, ordered.bytes_sent - fast.result_bytes_saved);
}

/// Rows that are here one by one: each time someone waits for more.
class OneByOne final : public ForwardingRows {
 public:
  OneByOne(PendingRows rows, std::int64_t& waits)
      : ForwardingRows(std::move(rows)), waits_(waits) {}

  const ReceivedRows& wait() override {
    here_ = INT64_MAX;
    return rows().wait();
  }
  [[nodiscard]] std::int64_t num_here(int peer) const override {
    return std::min(here_, ForwardingRows::num_here(peer));
  }
  void wait_for_more() override {
    (void)rows().wait();
    ++here_;
    ++waits_;
  }

 private:
  std::int64_t& waits_;
  std::int64_t here_ = 0;
};

class SlowCommunicator final : public ForwardingCommunicator {
 public:
  using ForwardingCommunicator::ForwardingCommunicator;

  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    PendingRows rows = base().exchange_rows(send, expected);
    if (send.tag_bytes == 0) return rows;
    return PendingRows(slow_.emplace_back(std::move(rows), waits));
  }

  std::int64_t waits = 0;  // for more rows

 private:
  std::deque<OneByOne> slow_;
};

TEST(MoeLayer, experts_run_as_rows_come_that_travel_as_codes) {
  const std::array layers = {Model(Shape{}, 11), Model(Shape{}, 12)};
  for (const std::int64_t defer : {0, 2}) {
    const MoeOptions options{.defer = defer, .wire = WireForm::int8};
    std::vector<std::vector<float>> expected;
    run_thread_ranks(1, [&](Communicator& world) {
      expected = run_layers(layers, world, {0, 60}, options);
    });
    const auto body = [&](Communicator& world) {
      SlowCommunicator slow(world);
      const Share own{world.rank() * 30, 30};
      const auto results = run_layers(layers, slow, own, options);
      EXPECT_GT(slow.waits, 0);
      for (std::size_t l = 0; l < layers.size(); ++l) {
        EXPECT_TRUE(std::equal(results[l].begin(), results[l].end(),
                               expected[l].begin() + own.first * layers[0].shape.hidden));
      }
    };
    run_thread_ranks(2, body, {.ranks_per_node = 1});
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

}  // namespace
}  // namespace moesaic::test
