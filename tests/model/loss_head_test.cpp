// Losses and gradients at the end of the model, however many rows are computed at a time.

#include "src/model/loss_head.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "comm/thread_communicator.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

constexpr std::int64_t kQuestionRows = 16;
constexpr float kUntouched = -7;

/// Rows of hidden states, of which some predict something: not all, and not in pieces of one size.
struct Question {
  explicit Question(const ModelConfig& config) : hidden(config.hidden_size) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < kQuestionRows * hidden; ++i) x.push_back(normal(random));
    for (std::int64_t row = 0; row < kQuestionRows; ++row) {
      if (row % 3 == 1) continue;
      rows.push_back(row);
      targets.push_back(static_cast<std::int32_t>(random() % 5));
    }
  }

  std::int64_t hidden;
  std::vector<float> x;  // [kQuestionRows, hidden]
  std::vector<std::int64_t> rows;
  std::vector<std::int32_t> targets;
};

struct Answer {
  std::vector<float> losses;     // and one behind them
  std::vector<float> gradients;  // [rows, hidden], and a row behind them

  friend bool operator==(const Answer&, const Answer&) = default;
};

/// Of the first `count` rows that predict.
Answer answer(LossHead& head, Question& question, std::size_t count, bool has_gradients = true) {
  const std::int64_t rows = static_cast<std::int64_t>(count);
  Answer found{
      std::vector<float>(count + 1, kUntouched),
      std::vector<float>((count + 1) * static_cast<std::size_t>(question.hidden), kUntouched)};
  head.run({.x = MatrixView<const float>(question.x.data(), kQuestionRows, question.hidden),
            .rows = std::span(question.rows).first(count),
            .targets = std::span(question.targets).first(count)},
           std::span(found.losses).first(count),
           has_gradients ? MatrixView<float>(found.gradients.data(), rows, question.hidden)
                         : MatrixView<float>());
  return found;
}

/// With heads of a model that have so many rows at a time.
class LossHeadOf : public testing::TestWithParam<std::string> {
 protected:
  void with_engine(Precision precision, const auto& body) {
    const EngineSetup setup{.directory = MOESAIC_TEST_DATA "/models/" + GetParam(),
                            .precision = precision,
                            .isa = supported_isas().back(),
                            .threads = 2};
    run_thread_ranks(1, [&](Communicator& world) {
      TestEngine engine(setup, world);
      LayerContext context(LayerContext::Setup::of(engine.config(), precision,
                                                   engine.transformer().compute(), world),
                           world);
      body(engine, context);
    });
  }
};

TEST_P(LossHeadOf, pieces_change_no_bit) {
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    with_engine(precision, [](TestEngine& engine, LayerContext& context) {
      Question question(engine.config());
      const std::size_t all = question.rows.size();
      LossHead whole(engine.config(), engine.weights(), context);
      const Answer expected = answer(whole, question, all);
      for (const std::int64_t most_rows : {1, 3, 5, 10, 11}) {  // of 11 rows
        LossHead head(engine.config(), engine.weights(), context, most_rows);
        EXPECT_EQ(answer(head, question, all), expected) << most_rows;
        EXPECT_EQ(answer(head, question, all, false).losses, expected.losses) << most_rows;
        EXPECT_EQ(answer(head, question, 0), answer(whole, question, 0)) << "none of a micro-batch";
        EXPECT_EQ(answer(head, question, 4), answer(whole, question, 4)) << "used again";
      }
    });
  }
}

TEST_P(LossHeadOf, gradients_are_the_slopes_of_the_losses_in_any_piece) {
  with_engine(Precision::f32, [](TestEngine& engine, LayerContext& context) {
    Question question(engine.config());
    LossHead head(engine.config(), engine.weights(), context, 3);
    const std::size_t all = question.rows.size();
    const Answer found = answer(head, question, all);
    EXPECT_EQ(found.losses.back(), kUntouched);
    EXPECT_EQ(found.gradients.back(), kUntouched);
    for (std::size_t i = 0; i < all; ++i) {
      constexpr float kStep = 1e-2F;
      const std::size_t at = static_cast<std::size_t>(question.rows[i] * question.hidden) + i;
      const float before = question.x[at];
      question.x[at] = before + kStep;
      const float above = answer(head, question, all, false).losses[i];
      question.x[at] = before - kStep;
      const float below = answer(head, question, all, false).losses[i];
      question.x[at] = before;
      const float gradient = found.gradients[i * static_cast<std::size_t>(question.hidden) + i];
      EXPECT_NEAR((above - below) / (2 * kStep), gradient, 1e-3) << i;
    }
  });
}

// granitemoe divides logits.
INSTANTIATE_TEST_SUITE_P(Models, LossHeadOf, testing::Values("qwen3_moe-v4", "granitemoe-v4"),
                         [](const auto& param) {
                           return param.param == "qwen3_moe-v4" ? "qwen3_moe" : "granitemoe";
                         });

}  // namespace
}  // namespace moesaic
