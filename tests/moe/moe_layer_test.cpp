// The expert-parallel layer on ranks that are threads, against a plain double-precision model of
// it.

#include "src/moe/moe_layer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "comm/thread_communicator.h"
#include "tests/moe/small_layers.h"

namespace moesaic::test {
namespace {

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

/// Rows of 4 KiB, so that they and the results travel in many messages.
TEST(MoeLayer, experts_run_as_rows_come_between_nodes) {
  const Model model{Shape{.hidden = 1024}};
  std::vector<float> expected;
  run_thread_ranks(1, [&](Communicator& world) { expected = run_layer(model, world, {0, 60}, 1); });
  constexpr std::array<std::pair<int, int>, 4> kRanks = {{{2, 1}, {4, 2}, {4, 1}, {5, 3}}};
  for (const auto& [ranks, per_node] : kRanks) {
    const auto body = [&](Communicator& world) {
      const std::int64_t share = 60 / world.size();
      const Share mine{world.rank() * share, world.rank() == 1 ? 0 : share};
      const std::vector<float> y = run_layer(model, world, mine, 2);
      const float* wanted = expected.data() + mine.first * model.shape.hidden;
      EXPECT_TRUE(std::equal(y.begin(), y.end(), wanted)) << "rank " << world.rank();
    };
    run_thread_ranks(ranks, body, {.ranks_per_node = per_node});
  }
}

TEST(MoeLayer, no_tokens_anywhere) {
  const Model model{Shape{}};
  run_thread_ranks(
      3, [&](Communicator& world) { EXPECT_TRUE(run_layer(model, world, {}, 1).empty()); });
}

}  // namespace
}  // namespace moesaic::test
