#include "src/train/adam.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

namespace moesaic {
namespace {

constexpr double kUnit = 0x1p-44;

struct Trained {
  std::vector<float> parameters = {0.5F, -1.25F, 2.0F, 0.0F};
  std::vector<float> first = std::vector<float>(4);
  std::vector<float> second = std::vector<float>(4);

  void step(std::int64_t number, const std::array<double, 4>& gradients, double scale = kUnit) {
    std::vector<std::int64_t> sums;
    for (const double gradient : gradients) {
      sums.push_back(static_cast<std::int64_t>(gradient / kUnit));
    }
    ThreadPool pool(2);
    adam_step({.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1},
              {.number = number, .learning_rate = 0.01, .scale = scale}, sums,
              {parameters, first, second},
              {.vector = &find_vector_kernels(Isa::scalar), .pool = &pool});
  }
};

// torch 2.9.1: AdamW(lr=0.01, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1) over three steps.
TEST(Adam, StepsAreThoseOfTorch) {
  Trained trained;
  const std::array<std::array<double, 4>, 3> gradients = {
      {{0.125, -0.5, 0.0, 1e-3}, {0.25, 0.75, -2.0, 0.0}, {-0.0625, 0.5, 1.0, 4.0}}};
  const std::array<std::array<float, 4>, 3> expected = {
      {{0x1.f53f7ep-2F, -0x1.3d1eb8p+0F, 0x1.ff7ceep+0F, -0x1.47ad3ep-7F},
       {0x1.eaefdep-2F, -0x1.3d6f18p+0F, 0x1.006dd4p+1F, -0x1.12dcd2p-6F},
       {0x1.e4652ep-2F, -0x1.3e56c4p+0F, 0x1.0076c0p+1F, -0x1.78b79ep-6F}}};
  for (std::size_t step = 0; step < 3; ++step) {
    trained.step(static_cast<std::int64_t>(step) + 1, gradients[step]);
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_FLOAT_EQ(trained.parameters[i], expected[step][i]) << step << " " << i;
    }
  }
}

TEST(Adam, ScaleCountsOnTheWayToTheGradient) {
  Trained halved;
  Trained plain;
  halved.step(1, {0.5, -1.0, 0.25, 4.0}, kUnit / 2);
  plain.step(1, {0.25, -0.5, 0.125, 2.0});
  EXPECT_EQ(halved.parameters, plain.parameters);
  EXPECT_EQ(halved.second, plain.second);
}

TEST(Adam, ParametersWithoutGradientDecay) {
  Trained trained;
  trained.step(1, {0, 0, 0, 0});
  EXPECT_FLOAT_EQ(trained.parameters[0], 0.5F * (1 - 0.001F));
  EXPECT_FLOAT_EQ(trained.parameters[3], 0.0F);
}

}  // namespace
}  // namespace moesaic
