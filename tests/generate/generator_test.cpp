// Generation on ranks that are threads: the same texts whatever the ranks, the batch or the
// neighbours.

#include "src/generate/generator.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "comm/thread_communicator.h"
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

/// What rank 0 sees; the other ranks see nothing.
std::vector<Finished> generate_on(int ranks, const std::vector<std::vector<std::int32_t>>& input,
                                  const GenerateOptions& how) {
  std::vector<Finished> seen;
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(kSetup, world);
    std::int64_t heard = 0;
    std::int64_t finished = 0;
    const GenerateResult result = generate(engine.transformer(), world, input, how,
                                           {.on_token = [&](const NewToken&) { ++heard; },
                                            .on_finished = [&](const Finished&) { ++finished; }});
    if (world.rank() != 0) {
      EXPECT_EQ(heard + finished + std::ssize(result.completions), 0);
      return;
    }
    std::int64_t tokens = 0;
    for (const Finished& completion : result.completions) tokens += std::ssize(completion.tokens);
    EXPECT_EQ(heard, tokens);
    EXPECT_EQ(finished, std::ssize(input));
    seen = result.completions;
  });
  return seen;
}

TEST(Generator, texts_depend_on_their_prompt_alone) {
  const std::vector<Finished> expected = generate_on(1, prompts(), options());
  for (const Finished& completion : expected) EXPECT_EQ(completion.tokens.size(), 6U);
  for (const int ranks : {2, 3, 4}) {
    for (const std::int64_t batch : {1, 4, 512}) {
      for (const std::int64_t parallel : {1, 2, 8}) {
        GenerateOptions how = options();
        how.batch_tokens = batch;
        how.parallel = parallel;
        const std::vector<Finished> other = generate_on(ranks, prompts(), how);
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
  const std::vector<Finished> free = generate_on(1, prompts(), options());
  GenerateOptions how = options();
  how.stop_tokens = {free[0].tokens[3]};
  const Finished stopped = generate_on(2, prompts(), how)[0];
  EXPECT_EQ(stopped.reason, StopReason::end_of_sequence);
  EXPECT_LE(stopped.tokens.size(), 3U);
  EXPECT_TRUE(std::equal(stopped.tokens.begin(), stopped.tokens.end(), free[0].tokens.begin()));
}

TEST(Generator, no_new_tokens_are_given_where_none_are_wanted) {
  GenerateOptions how = options();
  how.max_new_tokens = 0;
  const std::vector<Finished> completions = generate_on(2, prompts(), how);
  ASSERT_EQ(completions.size(), prompts().size());
  for (std::size_t i = 0; i < completions.size(); ++i) {
    EXPECT_EQ(completions[i].request, static_cast<RequestId>(i));
    EXPECT_EQ(completions[i].reason, StopReason::length);
    EXPECT_TRUE(completions[i].tokens.empty());
  }
}

TEST(Generator, refuses_empty_prompts_and_tokens_outside_the_vocabulary) {
  const std::vector<std::vector<std::int32_t>> empty = {{}};
  EXPECT_THROW(generate_on(1, empty, options()), Error);
  const std::vector<std::vector<std::int32_t>> outside = {{1'000'000}};
  EXPECT_THROW(generate_on(2, outside, options()), Error);
}

}  // namespace
}  // namespace moesaic
