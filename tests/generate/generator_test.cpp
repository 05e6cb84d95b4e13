// Generation on ranks that are threads: the same texts whatever the ranks, the batch or the
// neighbours.

#include "src/generate/generator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "src/generate/scorer.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const EngineSetup kSetup{.directory = MOESAIC_TEST_DATA "/models/qwen2_moe-v4",
                         .isa = supported_isas().back()};

std::vector<std::vector<std::int32_t>> prompts() {
  return {{1, 2, 3, 4, 5, 6, 7}, {9}, {20, 30, 40}, {5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, {11, 12}};
}

GenerateOptions options() {
  GenerateOptions result;
  result.max_new_tokens = 6;
  result.sampling = {.temperature = 0.9, .top_k = 20, .top_p = 0.9, .seed = 5};
  return result;
}

/// What rank 0 sees; fails if another rank sees something else.
std::vector<Completion> generate_on(int ranks, const std::vector<std::vector<std::int32_t>>& input,
                                    const GenerateOptions& how) {
  std::vector<std::vector<Completion>> seen(static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(kSetup, world);
    std::int64_t heard = 0;
    const GenerateResult result = generate(engine.transformer(), world, input, how,
                                           [&](std::int64_t, std::int32_t) { ++heard; });
    std::int64_t tokens = 0;
    for (const Completion& completion : result.completions) tokens += std::ssize(completion.tokens);
    EXPECT_EQ(heard, tokens);
    seen[static_cast<std::size_t>(world.rank())] = result.completions;
  });
  for (const auto& other : seen) {
    for (std::size_t i = 0; i < other.size(); ++i) {
      EXPECT_EQ(other[i].tokens, seen[0][i].tokens);
      EXPECT_EQ(other[i].reason, seen[0][i].reason);
    }
  }
  return seen[0];
}

TEST(Generator, texts_depend_on_their_prompt_alone) {
  const std::vector<Completion> expected = generate_on(1, prompts(), options());
  for (const Completion& completion : expected) EXPECT_EQ(completion.tokens.size(), 6U);
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t batch : {1, 4, 512}) {
      for (const std::int64_t parallel : {1, 2, 8}) {
        GenerateOptions how = options();
        how.batch_tokens = batch;
        how.parallel = parallel;
        const std::vector<Completion> other = generate_on(ranks, prompts(), how);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_EQ(other[i].tokens, expected[i].tokens)
              << ranks << " ranks, batch " << batch << ", parallel " << parallel;
        }
      }
    }
  }
}

TEST(Generator, more_ranks_than_prompts) {
  const std::vector<std::vector<std::int32_t>> one = {prompts()[0]};
  EXPECT_EQ(generate_on(4, one, options())[0].tokens, generate_on(1, one, options())[0].tokens);
  EXPECT_TRUE(generate_on(3, {}, options()).empty());
}

TEST(Generator, stops_at_a_stop_token) {
  const std::vector<Completion> free = generate_on(1, prompts(), options());
  GenerateOptions how = options();
  how.stop_tokens = {free[0].tokens[3]};
  const Completion stopped = generate_on(2, prompts(), how)[0];
  EXPECT_EQ(stopped.reason, StopReason::end_of_sequence);
  EXPECT_LE(stopped.tokens.size(), 3U);
  EXPECT_TRUE(std::equal(stopped.tokens.begin(), stopped.tokens.end(), free[0].tokens.begin()));
}

TEST(Generator, no_new_tokens_are_no_work) {
  GenerateOptions how = options();
  how.max_new_tokens = 0;
  for (const Completion& completion : generate_on(2, prompts(), how)) {
    EXPECT_TRUE(completion.tokens.empty());
  }
}

TEST(Generator, refuses_empty_prompts_and_tokens_outside_the_vocabulary) {
  const std::vector<std::vector<std::int32_t>> empty = {{}};
  EXPECT_THROW(generate_on(1, empty, options()), Error);
  const std::vector<std::vector<std::int32_t>> outside = {{1'000'000}};
  EXPECT_THROW(generate_on(2, outside, options()), Error);
}

TEST(Scorer, loss_does_not_depend_on_ranks_or_chunks) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 50; ++i) tokens.push_back(i * 7 % 90);
  const auto loss = [&](int ranks, std::int64_t chunk) {
    double result = 0;
    run_thread_ranks(ranks, [&](Communicator& world) {
      TestEngine engine(kSetup, world);
      std::int64_t rows = 0;
      const ScoreResult scored = score(engine.transformer(), world, tokens, chunk,
                                       [&](std::int64_t first, MatrixView<const float> logits) {
                                         EXPECT_EQ(first, rows);
                                         rows += logits.rows();
                                       });
      EXPECT_EQ(rows, world.rank() == 0 ? 50 : 0);
      EXPECT_EQ(scored.predicted_tokens, 49);
      if (world.rank() == ranks - 1) result = scored.mean_loss;
    });
    return result;
  };
  const double expected = loss(1, 50);
  EXPECT_GT(expected, 0);
  EXPECT_EQ(loss(1, 7), expected);
  EXPECT_EQ(loss(3, 16), expected);
}

TEST(Scorer, refuses_a_text_without_anything_to_predict) {
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(kSetup, world);
    EXPECT_THROW((void)score(engine.transformer(), world, std::vector<std::int32_t>{1}, 8, {}),
                 Error);
  });
}

}  // namespace
}  // namespace moesaic
