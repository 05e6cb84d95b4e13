// What requests ask of sampling, on ranks: log-probabilities, and samples of one prompt.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "comm/thread_communicator.h"
#include "tests/generate/engine_run.h"

namespace moesaic {
namespace {

class EngineSamplingOnRanks : public testing::TestWithParam<int> {};

TEST_P(EngineSamplingOnRanks, logprobs_do_not_depend_on_ranks_and_neighbours) {
  constexpr std::size_t kRequests = 24;
  std::vector<Finished> alone;
  run_engine(1, small_model(), {}, [&](EngineRun& run) {
    for (std::size_t i = 0; i < kRequests; ++i) {
      const RequestId id = run.submit(request_number(i));
      run.finish();
      alone.push_back(run.of(id));
    }
  });
  std::set<std::size_t> widths;
  run_engine(GetParam(), small_model(), {.batch_tokens = 20, .parallel = 3}, [&](EngineRun& run) {
    for (std::size_t i = 0; i < kRequests; ++i) run.submit(request_number(i));
    run.finish();
    for (std::size_t i = 0; i < kRequests; ++i) {
      const Finished& finished = run.of(static_cast<RequestId>(i));
      EXPECT_EQ(finished.tokens, alone[i].tokens);
      EXPECT_EQ(finished.logprobs, alone[i].logprobs);
      const std::optional<std::int64_t> wanted = request_number(i).logprobs;
      EXPECT_EQ(finished.logprobs.size(), wanted ? finished.tokens.size() : 0U);
      for (std::size_t k = 0; k < finished.logprobs.size(); ++k) {
        EXPECT_EQ(finished.logprobs[k].front().token, finished.tokens[k]);
        EXPECT_EQ(std::ssize(finished.logprobs[k]), *wanted + 1);
        widths.insert(finished.logprobs[k].size());
      }
    }
  });
  EXPECT_GE(widths.size(), 3U) << "requests want different numbers of them";
}

TEST_P(EngineSamplingOnRanks, samples_share_the_prompt) {
  constexpr std::int64_t kPrompt = 100;
  constexpr std::int64_t kSamples = 4;
  Request request;
  for (std::int32_t i = 0; i < kPrompt; ++i) request.tokens.push_back(i % 90);
  request.max_new_tokens = 10;
  std::vector<std::vector<std::int32_t>> alone;
  run_engine(1, small_model(), {.share_prefixes = false}, [&](EngineRun& run) {
    for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
      request.stream = sample;
      const RequestId id = run.submit(request);
      run.finish();
      alone.push_back(run.of(id).tokens);
    }
  });
  EXPECT_NE(alone[0], alone[1]);
  request.group = 17;
  run_engine(GetParam(), small_model(), {}, [&](EngineRun& run) {
    for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
      request.stream = sample;
      run.submit(request);
    }
    run.finish();
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(run.of(static_cast<RequestId>(i)).tokens, alone[i]);
    }
    const PassWork& work = run.engine().statistics().work;
    EXPECT_EQ(work.prompt_rows, kPrompt + kSamples - 1) << "the last token gives the logits";
    EXPECT_EQ(work.shared_positions, (kSamples - 1) * (kPrompt - 1));
  });
}

INSTANTIATE_TEST_SUITE_P(, EngineSamplingOnRanks, testing::Values(1, 2, 3, 4));

TEST(EngineSampling, logprobs_are_those_of_the_logits_before_all_sampling) {
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    StepEngine engine(loaded.transformer(), world, {});
    Request request = request_number(1);
    request.stop_tokens.clear();
    request.max_new_tokens = 6;
    request.sampling = {.temperature = 2, .repetition_penalty = 1.5, .logit_bias = {{5, 2}}};
    request.logprobs = 3;
    request.logits_from = std::ssize(request.tokens) - 1;
    engine.submit(request);
    std::int64_t seen = 0;
    while (engine.busy()) {
      const StepResult& result = engine.step();
      for (const NewToken& token : result.tokens) {
        ASSERT_EQ(result.logits.size(), 1U);
        const auto row = result.logits[0].logits.row(0);
        double sum = 0;
        for (const float logit : row) sum += std::exp(static_cast<double>(logit));
        const auto logprob = [&](std::int32_t id) {
          return static_cast<double>(row[static_cast<std::size_t>(id)]) - std::log(sum);
        };
        ASSERT_EQ(token.logprobs.size(), 4U);
        for (const auto& [id, value] : token.logprobs) EXPECT_NEAR(value, logprob(id), 1e-5);
        const float best = *std::ranges::max_element(row);
        EXPECT_EQ(row[static_cast<std::size_t>(token.logprobs[1].token)], best);
        EXPECT_GE(token.logprobs[1].logprob, token.logprobs[2].logprob);
        EXPECT_GE(token.logprobs[2].logprob, token.logprobs[3].logprob);
        ++seen;
      }
    }
    EXPECT_EQ(seen, 6);
  });
}

TEST(EngineSampling, as_many_logprobs_as_there_are_tokens_at_most) {
  run_engine(2, small_model(), {}, [&](EngineRun& run) {
    Request request = request_number(1);
    request.stop_tokens.clear();
    request.max_new_tokens = 2;
    request.logprobs = 1'000'000;
    const RequestId id = run.submit(request);
    run.finish();
    ASSERT_EQ(run.of(id).logprobs.size(), 2U);
    EXPECT_GT(run.of(id).logprobs[0].size(), 50U);
    EXPECT_LT(run.of(id).logprobs[0].size(), 1000U);
  });
}

}  // namespace
}  // namespace moesaic
