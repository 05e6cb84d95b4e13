// Memory of the step engine: sequences wait for it, and those that give way to others are computed
// again, with the tokens that each has alone.

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/generate/engine_run.h"

namespace moesaic {
namespace {

TEST(EngineMemory, room_for_the_longest_texts_keeps_no_slot_empty) {
  const ModelConfig config = read_model_config(small_model().directory);
  for (const std::int64_t prompt : {20, 100}) {
    const std::int64_t longest = (prompt + 63) / 64 * 64;
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 24; ++i) {
      requests.push_back(request_with(0, i, static_cast<std::size_t>(prompt)));
      requests.back().max_new_tokens = 1 + static_cast<std::int64_t>(i) * 5 % (longest - prompt);
    }
    const std::int64_t room = 4 * KvPool::sequence_bytes(config, Precision::bf16, longest);
    const RunOutcome ample = run_requests(1, small_model(), {.parallel = 4}, requests);
    const RunOutcome tight =
        run_requests(1, small_model(), {.parallel = 4, .cache_bytes = room}, requests);
    EXPECT_EQ(tight.statistics.steps, ample.statistics.steps) << prompt;
    EXPECT_EQ(tight.statistics.work.dropped, 0);
    EXPECT_TRUE(tight.tokens == ample.tokens) << prompt;
  }
}

// The oldest request goes on whatever the others hold or wait for, or all would wait for ever.
TEST(EngineMemory, the_oldest_request_never_waits) {
  std::vector<Request> requests = {request_with(41, 5, 0), request_with(41, 6, 100),
                                   request_with(0, 7, 1)};
  const std::array<std::int64_t, 3> lengths = {60, 2, 250};
  for (std::size_t i = 0; i < requests.size(); ++i) {
    requests[i].max_new_tokens = lengths[i];
    requests[i].sampling = {.temperature = 0};
  }
  const RunOutcome apart = run_requests(1, small_model(), {.share_prefixes = false}, requests);
  const ModelConfig config = read_model_config(small_model().directory);
  const std::int64_t room = KvPool::sequence_bytes(config, Precision::bf16, std::int64_t{64} * 5);
  run_engine(1, small_model(), {.batch_tokens = 2, .parallel = 3, .cache_bytes = room},
             [&](EngineRun& engine) {
               for (const Request& request : requests) engine.submit(request);
               for (int steps = 0; engine.engine().busy() && steps < 3000; ++steps) engine.step();
               ASSERT_FALSE(engine.engine().busy());
               for (std::size_t i = 0; i < requests.size(); ++i) {
                 EXPECT_TRUE(engine.of(static_cast<RequestId>(i)).tokens == apart.tokens[i]) << i;
               }
             });
}

/// Greedy, with no beginning in common with others.
Request greedy_request(std::uint64_t number, std::size_t prompt, std::int64_t new_tokens) {
  Request request = request_with(0, number, prompt);
  request.max_new_tokens = new_tokens;
  request.sampling = {.temperature = 0};
  return request;
}

std::int64_t room_for_pages(std::int64_t pages) {
  const ModelConfig config = read_model_config(small_model().directory);
  return KvPool::sequence_bytes(config, Precision::bf16, pages * kPagePositions);
}

TEST(EngineMemory, a_small_request_does_not_overtake_a_large_one_that_waits_for_memory) {
  const StepOptions options{.parallel = 3, .cache_bytes = room_for_pages(6)};
  run_engine(1, small_model(), options, [&](EngineRun& engine) {
    (void)engine.submit(greedy_request(1, 150, 30));  // three pages
    const RequestId large = engine.submit(greedy_request(2, 250, 2));
    const RequestId small = engine.submit(greedy_request(3, 10, 2));
    while (engine.engine().busy()) {
      engine.step();
      EXPECT_TRUE(engine.told_tokens(small).empty() || !engine.told_tokens(large).empty());
    }
  });
}

TEST(EngineMemory, texts_that_have_ended_give_way_before_any_that_is_under_way) {
  const StepOptions options{.parallel = 2, .cache_bytes = room_for_pages(6)};
  run_engine(1, small_model(), options, [&](EngineRun& engine) {
    for (std::uint64_t i = 0; i < 2; ++i) (void)engine.submit(greedy_request(i, 60, 3));
    engine.finish();
    // They begin beside the two ended ones and grow into what those hold.
    for (std::uint64_t i = 2; i < 4; ++i) (void)engine.submit(greedy_request(i, 60, 120));
    engine.finish();
    EXPECT_EQ(engine.engine().statistics().work.dropped, 0);
  });
}

std::int64_t bytes_of(std::int64_t positions) {
  const ModelConfig config = read_model_config(small_model().directory);
  return KvPool::sequence_bytes(config, Precision::bf16, positions);
}

/// Prompts and continuations that grow over the borders of pages.
std::vector<Request> growing_requests() {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 8; ++i) {
    Request request = request_with(0, i, 30 + 7 * i);
    request.max_new_tokens = 30;
    requests.push_back(request);
  }
  return requests;
}

TEST(EngineMemory, sequences_wait_or_give_way_and_keep_their_tokens) {
  const std::vector<Request> requests = growing_requests();
  const RunOutcome free = run_requests(1, small_model(), {.parallel = 1}, requests);
  EXPECT_EQ(free.statistics.work.dropped, 0);
  std::int64_t dropped = 0;
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t pages : {2, 3, 4, 5}) {
      const RunOutcome tight = run_requests(
          ranks, small_model(),
          {.batch_tokens = 64, .parallel = 6, .cache_bytes = bytes_of(64 * pages)}, requests);
      EXPECT_TRUE(tight.tokens == free.tokens) << ranks << " ranks, " << pages << " pages";
      dropped += tight.statistics.work.dropped;
    }
  }
  EXPECT_GT(dropped, 0);
}

TEST(EngineMemory, logits_of_a_sequence_that_gave_way_are_handed_out_once) {
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    StepEngine engine(loaded.transformer(), world,
                      {.parallel = 6, .cache_bytes = bytes_of(64 * 3)});
    std::vector<std::int64_t> next;
    for (Request request : growing_requests()) {
      request.logits_from = 0;
      engine.submit(request);
      next.push_back(0);
    }
    while (engine.busy()) {
      for (const LogitsRows& rows : engine.step().logits) {
        std::int64_t& position = next[static_cast<std::size_t>(rows.request)];
        EXPECT_EQ(rows.first, position);
        position += rows.logits.rows();
      }
    }
    EXPECT_GT(engine.statistics().work.dropped, 0);
    for (std::size_t i = 0; i < next.size(); ++i) {
      EXPECT_EQ(next[i], 30 + 7 * static_cast<std::int64_t>(i) + 29);
    }
  });
}

/// Texts of which some begin alike, in steps and memory of many sizes.
void check_random_runs(const EngineSetup& setup) {
  const ModelConfig config = read_model_config(setup.directory);
  const auto bytes_of_positions = [&](std::int64_t positions) {
    return KvPool::sequence_bytes(config, Precision::bf16, positions);
  };
  std::vector<Request> requests;
  std::mt19937_64 random(11);
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back(
        request_with(random() % 3 == 0 ? 0 : 20 + random() % 50, i, random() % 30 + 1));
    requests.back().max_new_tokens = 1 + static_cast<std::int64_t>(random() % 30);
  }
  const RunOutcome alone =
      run_requests(1, setup, {.parallel = 1, .share_prefixes = false}, requests);
  for (int number = 0; number < 24; ++number) {
    const std::int64_t states = number % 5;  // besides that of one sequence
    const StepOptions options{
        .batch_tokens = 1 + static_cast<std::int64_t>(random() % 60),
        .parallel = 1 + static_cast<std::int64_t>(random() % 6),
        .cache_bytes = bytes_of_positions(64 * (2 + static_cast<int>(random() % 4))) +
                       states * bytes_of_positions(0),
        .short_prompts_first = number >= 12};
    run_engine(1 + number % 3, setup, options, [&](EngineRun& engine) {
      for (std::size_t i = 0; i < requests.size(); ++i) {
        engine.submit(requests[i]);
        if (random() % 2 == 0) engine.steps(static_cast<int>(random() % 6));
      }
      engine.finish();
      for (std::size_t i = 0; i < requests.size(); ++i) {
        EXPECT_EQ(engine.of(static_cast<RequestId>(i)).tokens, alone.tokens[i])
            << "run " << number << ", request " << i;
      }
    });
  }
}

TEST(EngineMemory, random_runs_in_little_memory_with_common_beginnings) {
  check_random_runs(small_model());
}

TEST(EngineMemory, random_runs_in_little_memory_with_states) {
  check_random_runs(small_model("qwen3_next-v4"));
}

TEST(EngineMemory, a_request_that_never_fits_is_refused) {
  run_engine(2, small_model(), {.cache_bytes = bytes_of(64)}, [&](EngineRun& engine) {
    Request request = request_with(0, 1, 60);
    request.max_new_tokens = 6;
    EXPECT_THROW(engine.submit(request), Error);
    request.max_new_tokens = 5;
    engine.submit(request);
    engine.finish();
  });
}

}  // namespace
}  // namespace moesaic
