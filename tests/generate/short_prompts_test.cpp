// Which prompts of a rank a step takes: short ones are not held up by long ones, nor these by them.

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/generate/engine_run.h"

namespace moesaic {
namespace {

constexpr std::int64_t kBatch = 16;

/// Greedy, with no beginning in common with others.
Request prompt_of(std::uint64_t seed, std::size_t tokens) {
  std::mt19937_64 random(seed);
  Request request;
  for (std::size_t i = 0; i < tokens; ++i) {
    request.tokens.push_back(static_cast<std::int32_t>(random() % 90));
  }
  request.max_new_tokens = 2;
  request.sampling = {.temperature = 0};
  return request;
}

StepOptions options(bool short_first) {
  return {.batch_tokens = kBatch, .parallel = 4, .short_prompts_first = short_first};
}

/// Steps until the request has its first token.
int steps_to_token(EngineRun& run, RequestId id) {
  int steps = 0;
  for (; run.told_tokens(id).empty() && steps < 1000; ++steps) run.step();
  return steps;
}

TEST(ShortPrompts, wait_for_no_long_one_if_they_go_first) {
  for (const int ranks : {1, 3}) {
    for (const bool short_first : {false, true}) {
      run_engine(ranks, small_model(), options(short_first), [&](EngineRun& run) {
        // One a rank, then a short one that meets it there.
        for (int rank = 0; rank < ranks; ++rank) {
          (void)run.submit(prompt_of(static_cast<std::uint64_t>(rank), 20 * kBatch));
        }
        run.steps(2);
        const RequestId brief = run.submit(prompt_of(99, kBatch / 2));
        const int steps = steps_to_token(run, brief);
        if (short_first) {
          EXPECT_EQ(steps, 1) << ranks;
        } else {
          EXPECT_GE(steps, 18) << ranks;
        }
      });
    }
  }
}

TEST(ShortPrompts, wait_for_what_they_begin_with_only_if_it_is_computed_first) {
  run_engine(1, small_model(), options(true), [&](EngineRun& run) {
    (void)run.submit(prompt_of(0, 20 * kBatch));
    Request request = prompt_of(1, 50);
    const std::vector<std::int32_t> common = request.tokens;
    const std::vector<std::int32_t> rest = prompt_of(2, 30 * kBatch).tokens;
    request.tokens.insert(request.tokens.end(), rest.begin(), rest.end());
    (void)run.submit(request);  // waits for the first one
    run.steps(2);
    request.tokens = common;
    request.tokens.push_back(7);
    const RequestId brief = run.submit(request);
    EXPECT_LE(steps_to_token(run, brief), 8) << "half of each step is its own";
    run.finish();
    EXPECT_GE(run.engine().statistics().work.shared_positions, 32) << "of the long one with it";
  });
}

TEST(ShortPrompts, leave_half_of_each_step_to_the_oldest) {
  run_engine(1, small_model(), options(true), [&](EngineRun& run) {
    const RequestId oldest = run.submit(prompt_of(0, 20 * kBatch));
    int steps = 0;
    for (std::uint64_t number = 1; run.told_tokens(oldest).empty() && steps < 1000; ++steps) {
      while (run.engine().room() > 4) (void)run.submit(prompt_of(number++, kBatch));
      run.step();
    }
    EXPECT_GE(steps, 20);
    EXPECT_LE(steps, 2 * 20 + 4) << "but for a row or two of those that generate";
  });
}

TEST(ShortPrompts, have_what_the_oldest_does_not_need) {
  run_engine(1, small_model(), options(true), [&](EngineRun& run) {
    const RequestId oldest = run.submit(prompt_of(0, kBatch + 7));
    run.step();
    const RequestId four = run.submit(prompt_of(1, 4));
    const RequestId five = run.submit(prompt_of(2, 5));
    run.step();
    for (const RequestId id : {oldest, four, five}) EXPECT_EQ(run.told_tokens(id).size(), 1) << id;
  });
}

// There is memory for all three, each with a state and a page, but none for a second state of one.
TEST(ShortPrompts, take_memory_when_they_get_tokens) {
  EngineSetup setup = small_model();
  setup.directory = MOESAIC_TEST_DATA "/models/qwen3_next-v4";
  const ModelConfig config = read_model_config(setup.directory);
  StepOptions with = options(true);
  with.cache_bytes = 3 * KvPool::sequence_bytes(config, Precision::bf16, 64);
  run_engine(1, setup, with, [&](EngineRun& run) {
    for (const std::size_t tokens : {32, 36}) {
      Request request = prompt_of(tokens, tokens);
      request.max_new_tokens = 64 - std::ssize(request.tokens);
      (void)run.submit(request);
    }
    const RequestId last = run.submit(prompt_of(2, 60));
    EXPECT_LE(steps_to_token(run, last), 16) << "no text has to end before";
  });
}

TEST(ShortPrompts, of_one_length_go_in_the_order_of_arrival) {
  run_engine(1, small_model(), options(true), [&](EngineRun& run) {
    std::vector<RequestId> ids;
    for (std::uint64_t i = 0; i < 4; ++i) ids.push_back(run.submit(prompt_of(i, 2 * kBatch)));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      EXPECT_LE(steps_to_token(run, ids[i]), 3) << i;
      for (std::size_t later = i + 1; later < ids.size(); ++later) {
        EXPECT_TRUE(run.told_tokens(ids[later]).empty()) << i << ", " << later;
      }
    }
  });
}

TEST(ShortPrompts, have_the_tokens_that_they_have_alone) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 9; ++i) requests.push_back(prompt_of(i, 1 + i * 37 % 150));
  std::vector<std::vector<std::int32_t>> alone;
  for (const Request& request : requests) {
    run_engine(1, small_model(), {}, [&](EngineRun& run) {
      const RequestId id = run.submit(request);
      run.finish();
      alone.push_back(run.of(id).tokens);
    });
  }
  for (const int ranks : {1, 3}) {
    // Also where there is memory for two of the longest alone.
    for (const bool is_tight : {false, true}) {
      StepOptions with = options(true);
      if (is_tight) {
        with.cache_bytes = KvPool::sequence_bytes(read_model_config(small_model().directory),
                                                  Precision::bf16, 2 * 192);
      }
      run_engine(ranks, small_model(), with, [&](EngineRun& run) {
        for (const Request& request : requests) (void)run.submit(request);
        run.finish();
        for (std::size_t i = 0; i < requests.size(); ++i) {
          EXPECT_EQ(run.of(static_cast<RequestId>(i)).tokens, alone[i]) << ranks << ", " << i;
        }
      });
    }
  }
}

}  // namespace
}  // namespace moesaic
