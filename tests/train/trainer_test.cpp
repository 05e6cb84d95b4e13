// Training against torch's 20 steps (float32), and its bits on any ranks.

#include "src/train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "comm/forwarding_communicator.h"
#include "comm/thread_communicator.h"
#include "tests/support/golden_adapters.h"
#include "tests/train/golden_adapter.h"
#include "tests/train/training_rank.h"

namespace moesaic {
namespace {

struct Trained {
  std::vector<double> losses;
  std::vector<double> norms;
  std::vector<float> values;  // of all adapters of the model, in its order
};

Trained run(const GoldenAdapter& golden, const PassSetup& setup, std::int64_t steps) {
  Trained result;
  const auto train = [&](Communicator& world) {
    TrainingRank rank(golden, setup, world);
    const SampleSet set = samples_of(golden);
    for (std::int64_t step = 0; step < steps; ++step) {
      const TrainStepResult seen = rank.trainer().step(step, set, step_samples(step, set.size()));
      if (world.rank() != 0) continue;
      result.losses.push_back(seen.seen.loss);
      result.norms.push_back(seen.grad_norm);
    }
    rank.exchange().collect(rank.adapters().masters(),
                            [&](std::int64_t, std::span<const float> a, std::span<const float> b) {
                              result.values.insert(result.values.end(), a.begin(), a.end());
                              result.values.insert(result.values.end(), b.begin(), b.end());
                            });
  };
  run_thread_ranks(setup.ranks, train, {.ranks_per_node = setup.ranks_per_node});
  return result;
}

class TrainerOf : public testing::TestWithParam<std::string> {};

TEST_P(TrainerOf, TwentyStepsAreThoseOfTorch) {
  const GoldenAdapter golden(GetParam());
  const Trained trained = run(golden, {.precision = Precision::f32}, kSteps);
  const std::vector<float> losses = golden.floats("losses");
  const std::vector<float> norms = golden.floats("grad_norms");
  ASSERT_EQ(losses.size(), trained.losses.size());
  for (std::size_t step = 0; step < losses.size(); ++step) {
    EXPECT_NEAR(trained.losses[step], losses[step], 1e-4 * losses[step]) << step;
    EXPECT_NEAR(trained.norms[step], norms[step], 1e-3 * norms[step]) << step;
  }
  const Trained start = run(golden, {.precision = Precision::f32}, 0);
  const AdapterSet final = golden.final_adapter();
  ASSERT_EQ(final.masters().size(), trained.values.size());
  double difference = 0;
  double distance = 0;
  for (std::size_t i = 0; i < trained.values.size(); ++i) {
    const double d = trained.values[i] - static_cast<double>(final.masters()[i]);
    const double way = final.masters()[i] - static_cast<double>(start.values[i]);
    difference += d * d;
    distance += way * way;
  }
  EXPECT_LT(std::sqrt(difference / distance), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Adapters, TrainerOf, testing::ValuesIn(test::kGoldenAdapters),
                         [](const auto& its) {
                           std::string name = its.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

void expect_same(const Trained& run, const Trained& expected) {
  EXPECT_EQ(run.losses, expected.losses);
  EXPECT_EQ(run.norms, expected.norms);
  EXPECT_EQ(run.values, expected.values);
}

void expect_same_on_any_ranks(const GoldenAdapter& golden) {
  const auto setup = [](PassSetup changed) {
    changed.precision = Precision::bf16;
    return changed;
  };
  const Trained expected = run(golden, setup({}), 4);
  expect_same(run(golden, setup({.ranks = 2}), 4), expected);
  expect_same(run(golden, setup({.ranks = 3}), 4), expected);
  expect_same(run(golden, setup({.ranks = 4, .threads = 2}), 4), expected);
  expect_same(run(golden, setup({.ranks = 3, .ranks_per_node = 2, .samples_at_once = 1}), 4),
              expected);
  expect_same(run(golden, setup({.ranks = 4, .ranks_per_node = 1, .expert_replicas = 2}), 4),
              expected);
  expect_same(run(golden, setup({.ranks = 2, .expert_replicas = 2}), 4), expected);
  expect_same(run(golden, setup({.ranks = 4, .expert_replicas = 2}), 4), expected);
  expect_same(run(golden, setup({.samples_at_once = 1}), 4), expected);
  expect_same(run(golden, setup({.ranks = 2, .recompute = Recompute::always}), 4), expected);
}

// qwen2_moe's case has experts without rows: what one replica adds must not stay with another. The
// states of qwen3_5_moe's delta nets go from token to token, and back.
TEST(Trainer, TheBytesDoNotDependOnRanksReplicasThreadsMicroBatchesOrRecomputing) {
  for (const std::string name : {"qwen2_moe-rslora-idle", "deepseek_v3", "qwen3_5_moe"}) {
    expect_same_on_any_ranks(GoldenAdapter(name));
  }
}

/// Tells of the exchanges of sums in groups that are made of it: in which layer the rank was.
class WatchedCommunicator final : public ForwardingCommunicator {
 public:
  WatchedCommunicator(Communicator& base, std::vector<std::int32_t>& layers)
      : ForwardingCommunicator(base), layers_(layers) {}

  std::unique_ptr<Communicator> split(int color, int key) override {
    std::unique_ptr<Communicator> group = base().split(color, key);
    auto watched = std::make_unique<WatchedCommunicator>(*group, layers_);
    watched->owned_ = std::move(group);
    return watched;
  }
  [[nodiscard]] PendingRows exchange_rows(const RowSend& send,
                                          std::span<const std::int64_t> expected) override {
    if (send.label == send.label.at("sums")) layers_.push_back(place().layer);
    return base().exchange_rows(send, expected);
  }

 private:
  std::vector<std::int32_t>& layers_;
  std::unique_ptr<Communicator> owned_;  // the base of a group
};

TEST(Trainer, SumsBeginWhileTheBackwardPassGoesOn) {
  const GoldenAdapter golden("qwen2_moe-rslora-idle");
  for (const int replicas : {1, 2}) {
    run_thread_ranks(2, [&](Communicator& world) {
      std::vector<std::int32_t> layers;
      WatchedCommunicator watched(world, layers);
      TrainingRank rank(golden, {.ranks = 2, .expert_replicas = replicas, .samples_at_once = 1},
                        watched);
      const SampleSet set = samples_of(golden);
      (void)rank.trainer().step(0, set, step_samples(0, set.size()));
      const std::int32_t last = static_cast<std::int32_t>(golden.config().layers.size()) - 1;
      EXPECT_EQ(std::ranges::count(layers, last), replicas) << "attention, and which experts";
      EXPECT_GE(std::ranges::count(layers, 0), replicas);
      EXPECT_GE(std::ranges::count(layers, -1), 2) << "what is left";
    });
  }
}

// Rows take the keys of their masks along to other ranks' experts.
TEST(Trainer, DropoutIsTheSameOnAnyRanksToo) {
  const GoldenAdapter golden("qwen2_moe-rslora-idle");
  const auto setup = [](PassSetup changed) {
    changed.precision = Precision::bf16;
    changed.dropout = 0.3;
    return changed;
  };
  const Trained expected = run(golden, setup({}), 3);
  expect_same(run(golden, setup({.ranks = 3}), 3), expected);
  expect_same(run(golden, setup({.ranks = 4, .expert_replicas = 2, .threads = 2}), 3), expected);
  expect_same(run(golden, setup({.samples_at_once = 1}), 3), expected);
  expect_same(run(golden, setup({.ranks = 2, .recompute = Recompute::always}), 3), expected);
  const Trained without = run(golden, {.precision = Precision::bf16}, 3);
  EXPECT_NE(expected.losses, without.losses);
  EXPECT_NE(expected.losses[0], expected.losses[1]);
}

// Nothing but training leaves anything out, and each step leaves out something else.
TEST(Trainer, AnEvaluationIsWithoutDropout) {
  const GoldenAdapter golden("mixtral-some");
  run_thread_ranks(2, [&](Communicator& world) {
    PassSetup setup{.precision = Precision::f32, .ranks = 2};
    TrainingRank plain(golden, setup, world);
    setup.dropout = 0.5;
    TrainingRank dropping(golden, setup, world);
    const SampleSet set = samples_of(golden);
    const std::vector<std::int64_t> first = step_samples(0, set.size());
    const double loss = plain.trainer().evaluate(set)->loss;
    EXPECT_EQ(dropping.trainer().evaluate(set)->loss, loss);
    EXPECT_NE(dropping.trainer().step(0, set, first).seen.loss,
              plain.trainer().step(0, set, first).seen.loss);
  });
}

TEST(Trainer, AnEvaluationCanBeStoppedBetweenMicroBatches) {
  const GoldenAdapter golden("mixtral-some");
  run_thread_ranks(2, [&](Communicator& world) {
    TrainingRank rank(golden, {.ranks = 2, .samples_at_once = 1}, world);
    const SampleSet set = samples_of(golden);
    const double loss = rank.trainer().evaluate(set)->loss;
    int asked = 0;
    EXPECT_FALSE(rank.trainer().evaluate(set, [&] { return ++asked == 2; }));
    EXPECT_EQ(asked, 2);
    EXPECT_EQ(rank.trainer().evaluate(set, [] { return false; })->loss, loss);
  });
}

/// A step of a rank whose adapters have these values: what a step that stops says, what one that is
/// left out tells, and whether that leaves the adapters as they are.
struct BrokenStep {
  std::string error;
  std::optional<std::string> not_finite;
  bool is_unchanged = false;
};

BrokenStep broken_step(const GoldenAdapter& golden, Communicator& world, float a, float b) {
  BrokenStep result;
  for (const bool skips : {false, true}) {
    TrainingRank rank(golden, {.ranks = world.size(), .skip_nonfinite = skips}, world);
    AdapterSet& adapters = rank.adapters();
    const auto fill = [&](const FactorPlace& place, float value) {
      std::ranges::fill(adapters.masters().subspan(static_cast<std::size_t>(place.first),
                                                   static_cast<std::size_t>(place.size())),
                        value);
    };
    for (const AdapterPlace& place : adapters.places()) {
      fill(place.a, a);
      fill(place.b, b);
    }
    adapters.pack(rank.pool());
    const std::span<const float> values = adapters.masters();
    const std::vector<float> before(values.begin(), values.end());
    const SampleSet set = samples_of(golden);
    try {
      const TrainStepResult seen = rank.trainer().step(4, set, step_samples(0, set.size()));
      EXPECT_TRUE(skips) << "the step does not stop";
      result.not_finite = seen.not_finite;
      result.is_unchanged = std::ranges::equal(before, values);
    } catch (const Error& error) {
      EXPECT_FALSE(skips) << error.what();
      result.error = error.what();
    }
  }
  return result;
}

// With a B of zeros a great A changes no logit, but the gradient of B is as great.
TEST(Trainer, AGradientThatIsNotFiniteIsToldWithStepAndModule) {
  const GoldenAdapter golden("qwen3_moe");
  const std::string gradient = "the gradient of " + golden.files().specs()[0].site.module;
  run_thread_ranks(2, [&](Communicator& world) {
    const BrokenStep step = broken_step(golden, world, 1e20F, 0);
    EXPECT_TRUE(step.error.starts_with("step 5: " + gradient + " is not finite: ")) << step.error;
    EXPECT_EQ(step.not_finite, gradient);
    EXPECT_TRUE(step.is_unchanged);
  });
}

TEST(Trainer, ALossThatIsNotFiniteIsToldWithStepAndModule) {
  const GoldenAdapter golden("qwen3_moe");
  const std::string told =
      "the loss (and the gradient of " + golden.files().specs()[0].site.module + ")";
  run_thread_ranks(2, [&](Communicator& world) {
    const BrokenStep step = broken_step(golden, world, 1e30F, 1e30F);
    EXPECT_TRUE(step.error.starts_with("step 5: " + told + " is not finite: ")) << step.error;
    EXPECT_EQ(step.not_finite, told);
    EXPECT_TRUE(step.is_unchanged);
  });
}

TEST(Trainer, AnAdapterThatIsNotFiniteAfterAStepEndsTheRunThoughStepsMayBeLeftOut) {
  const GoldenAdapter golden("qwen3_moe");
  run_thread_ranks(2, [&](Communicator& world) {
    TrainingRank rank(golden, {.ranks = 2, .skip_nonfinite = true}, world);
    // A step that begins with moments this large ends with factors that are not finite.
    std::ranges::fill(rank.trainer().moments().first, std::numeric_limits<float>::max());
    const SampleSet set = samples_of(golden);
    try {
      (void)rank.trainer().step(4, set, step_samples(0, set.size()));
      FAIL() << "the step does not stop";
    } catch (const NotFinite& error) {
      EXPECT_TRUE(std::string(error.what())
                      .starts_with("step 5: the adapter holds values that are not finite after it"))
          << error.what();
    }
  });
}

}  // namespace
}  // namespace moesaic
