// The step engine as a server will use it: requests that come and go while others run.

#include "src/generate/step_engine.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <time.h>

#include <array>
#include <chrono>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "src/generate/request_feed.h"
#include "tests/generate/engine_run.h"
#include "tests/support/allocations.h"

namespace moesaic {
namespace {

using Tokens = std::vector<std::int32_t>;

class StepEngineOnRanks : public testing::TestWithParam<int> {};

TEST_P(StepEngineOnRanks, requests_that_come_while_others_run_get_their_tokens) {
  const std::vector<Tokens> alone = tokens_alone(9);
  run_engine(GetParam(), small_model(), {.batch_tokens = 16, .parallel = 2}, [&](EngineRun& run) {
    for (std::uint64_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(run.submit(request_number(i)), static_cast<RequestId>(i));
      run.steps(static_cast<int>(i % 3));
    }
    run.finish();
    for (std::size_t i = 0; i < alone.size(); ++i) {
      const auto id = static_cast<RequestId>(i);
      EXPECT_EQ(run.of(id).tokens, alone[i]) << "request " << i;
      EXPECT_EQ(run.told_tokens(id), alone[i]) << "request " << i;
    }
  });
}

TEST_P(StepEngineOnRanks, there_is_room_for_as_many_requests_as_run_and_as_many_that_wait) {
  run_engine(GetParam(), small_model(), {.batch_tokens = 16, .parallel = 2}, [&](EngineRun& run) {
    EXPECT_EQ(run.engine().room(), 4 * GetParam());
    run.submit(request_number(0));
    EXPECT_EQ(run.engine().room(), 4 * GetParam() - 1);
    run.finish();
    EXPECT_EQ(run.engine().room(), 4 * GetParam());
  });
}

/// Takes so many requests, of which one in seven is cancelled; what is alive then on all ranks.
std::int64_t alive_after(StepEngine& engine, std::uint64_t& index, int count) {
  for (int i = 0; i < count; ++i, ++index) {
    while (engine.room() == 0) (void)engine.step();
    const RequestId id = engine.submit(request_number(index));
    if (i % 7 == 3) engine.cancel(id);
  }
  while (engine.busy()) (void)engine.step();
  (void)engine.step();
  return test::live_allocations();
}

TEST_P(StepEngineOnRanks, nothing_is_kept_of_requests_that_have_ended) {
  if (!test::counts_allocations()) GTEST_SKIP() << "allocations cannot be counted in this build";
  run_engine(GetParam(), small_model(), {.batch_tokens = 16, .parallel = 2}, [&](EngineRun& run) {
    std::uint64_t index = 0;
    const std::int64_t before = alive_after(run.engine(), index, 50);
    EXPECT_LT(alive_after(run.engine(), index, 400) - before, 100) << "but for some last ones";
  });
}

/// A prompt that takes several steps, then many tokens.
Request long_request() {
  Request request;
  for (std::int32_t i = 0; i < 40; ++i) request.tokens.push_back(i % 90);
  request.max_new_tokens = 30;
  return request;
}

TEST_P(StepEngineOnRanks, requests_are_cancelled_while_they_wait_in_prompt_and_in_generation) {
  const std::vector<Tokens> alone = tokens_alone(3);
  run_engine(GetParam(), small_model(), {.batch_tokens = 8, .parallel = 1}, [&](EngineRun& run) {
    const RequestId in_prompt = run.submit(long_request());
    run.steps(2);
    run.engine().cancel(in_prompt);
    run.engine().cancel(in_prompt);
    EXPECT_TRUE(run.engine().busy());
    run.step();
    EXPECT_EQ(run.of(in_prompt).reason, StopReason::cancelled);
    EXPECT_TRUE(run.of(in_prompt).tokens.empty());

    const RequestId in_generation = run.submit(long_request());
    run.steps(8);
    std::vector<RequestId> others;
    for (std::uint64_t i = 0; i < 3; ++i) others.push_back(run.submit(request_number(i)));
    Request late = long_request();
    const RequestId waiting = run.submit(late);
    const RequestId unknown_to_others = run.submit(late);
    run.engine().cancel(unknown_to_others);
    run.step();
    run.engine().cancel(in_generation);
    run.engine().cancel(waiting);
    run.engine().cancel(12345);
    run.finish();
    EXPECT_EQ(run.of(in_generation).reason, StopReason::cancelled);
    EXPECT_EQ(run.of(in_generation).tokens, run.told_tokens(in_generation));
    EXPECT_GE(run.of(in_generation).tokens.size(), 3U);
    EXPECT_TRUE(run.of(waiting).tokens.empty());
    EXPECT_TRUE(run.of(unknown_to_others).tokens.empty());
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(run.of(others[i]).tokens, alone[i]);
    EXPECT_EQ(run.finished().size(), 7U);
  });
}

TEST(StepEngine, a_long_request_keeps_none_of_the_short_ones_waiting) {
  for (const int ranks : {2, 3, 4}) {
    run_engine(ranks, small_model(), {.batch_tokens = 64, .parallel = 1}, [&](EngineRun& run) {
      Request request = long_request();
      request.max_new_tokens = 60;
      const RequestId first = run.submit(request);
      request.tokens.resize(3);
      request.max_new_tokens = 4;
      constexpr int kShort = 12;
      for (int i = 0; i < kShort; ++i) run.submit(request);
      // Each of the other ranks takes a short one every four steps.
      run.steps(4 * (kShort / (ranks - 1)));
      EXPECT_EQ(run.finished().size(), static_cast<std::size_t>(kShort));
      EXPECT_FALSE(run.has_finished(first));
      run.finish();
      EXPECT_EQ(run.engine().statistics().steps, 60) << "as long as the long one takes alone";
    });
  }
}

TEST_P(StepEngineOnRanks, logits_are_handed_out_where_they_are_computed) {
  const int ranks = GetParam();
  Request request = request_number(5);
  request.group.reset();
  request.stop_tokens.clear();
  request.max_new_tokens = 4;
  const auto prompt = static_cast<std::int64_t>(request.tokens.size());
  for (const std::int64_t from : {std::int64_t{0}, prompt - 1, prompt + 1}) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
    run_thread_ranks(ranks, [&](Communicator& world) {
      TestEngine loaded(small_model(), world);
      StepEngine engine(loaded.transformer(), world, {.batch_tokens = 3});
      Request wanted = request;
      wanted.logits_from = from;
      for (int i = 0; i < 2 && engine.submits(); ++i) engine.submit(wanted);
      std::vector<std::int64_t> next = {from, from};
      for (bool dismissed = false; !dismissed;) {
        const StepResult& result = engine.step();
        dismissed = result.dismissed;
        for (const LogitsRows& part : result.logits) {
          std::int64_t& position = next[static_cast<std::size_t>(part.request)];
          EXPECT_EQ(part.first, position);
          position += part.logits.rows();
          rows[static_cast<std::size_t>(world.rank())] += part.logits.rows();
          EXPECT_GE(std::ssize(part.tokens), position);
          EXPECT_EQ(part.logits.cols(), loaded.config().vocab_size);
        }
        if (engine.submits() && !engine.busy()) engine.dismiss();
      }
    });
    std::int64_t total = 0;
    for (const std::int64_t count : rows) total += count;
    EXPECT_EQ(total, 2 * (prompt + 3 - from));
    if (ranks > 1) {
      EXPECT_EQ(rows[0], rows[1]) << "one request each";
    }
  }
}

// Of {ranks, which fifty}: ThreadSanitizer watches some of them.
class RandomRuns : public testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(RandomRuns, give_each_request_its_tokens) {
  constexpr int kRuns = 50;
  const auto [ranks, part] = GetParam();
  const std::vector<Tokens> alone = tokens_alone(40);
  run_thread_ranks(ranks, [&, first = part * kRuns](Communicator& world) {
    TestEngine loaded(small_model(), world);
    for (int number = first; number < first + kRuns; ++number) {
      std::mt19937_64 random(static_cast<std::uint64_t>(number));
      const StepOptions options{.batch_tokens = 1 + static_cast<std::int64_t>(random() % 40),
                                .parallel = 1 + static_cast<std::int64_t>(random() % 4),
                                .short_prompts_first = number % 2 == 1};
      StepEngine engine(loaded.transformer(), world, options);
      if (world.rank() != 0) {
        while (!engine.step().dismissed) continue;
        continue;
      }
      EngineRun run(engine);
      std::vector<std::size_t> numbers;  // of the requests
      std::vector<RequestId> cancelled;
      while (numbers.size() < 6 || engine.busy()) {
        if (numbers.size() < 6 && random() % 2 == 0) {
          numbers.push_back(random() % alone.size());
          run.submit(request_number(numbers.back()));
        }
        if (!numbers.empty() && random() % 16 == 0) {
          cancelled.push_back(static_cast<RequestId>(random() % numbers.size()));
          engine.cancel(cancelled.back());
        }
        run.step();
      }
      engine.dismiss();
      run.step();
      ASSERT_EQ(run.finished().size(), numbers.size());
      for (std::size_t i = 0; i < numbers.size(); ++i) {
        const Finished& finished = run.of(static_cast<RequestId>(i));
        Tokens expected = alone[numbers[i]];
        if (finished.reason == StopReason::cancelled) {
          EXPECT_NE(std::ranges::find(cancelled, finished.request), cancelled.end());
          expected.resize(std::min(expected.size(), finished.tokens.size()));
        }
        ASSERT_EQ(finished.tokens, expected) << "run " << number << ", request " << i;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, StepEngineOnRanks, testing::Values(1, 2, 3, 4));
INSTANTIATE_TEST_SUITE_P(, RandomRuns,
                         testing::Combine(testing::Values(1, 2, 3, 4), testing::Range(0, 5)),
                         [](const testing::TestParamInfo<std::tuple<int, int>>& runs) {
                           return fmt::format("on_{}_part_{}", std::get<0>(runs.param),
                                              std::get<1>(runs.param));
                         });

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

TEST(StepEngine, ranks_sleep_while_there_is_nothing_to_do) {
  run_thread_ranks(3, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    StepEngine engine(loaded.transformer(), world, {});
    const auto start = std::chrono::steady_clock::now();
    const double before = thread_cpu_seconds();
    if (world.rank() != 0) {
      while (!engine.step().dismissed) continue;
      const double cpu = thread_cpu_seconds() - before;
      const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
      EXPECT_LT(cpu, passed.count() / 10) << "of two seconds or more";
      return;
    }
    for (int beat = 0; beat < 4; ++beat) {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
      engine.step();  // nothing to do: the others may not think that rank 0 is lost
    }
    engine.dismiss();
    engine.step();
    EXPECT_EQ(engine.statistics().steps, 0);
  });
}

TEST(StepEngine, an_engine_goes_on_after_the_others_were_dismissed) {
  run_thread_ranks(2, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    StepEngine engine(loaded.transformer(), world, {});
    for (int round = 0; round < 3; ++round) {
      if (world.rank() != 0) {
        while (!engine.step().dismissed) continue;
        continue;
      }
      EngineRun run(engine);
      const RequestId id = run.submit(request_number(1));
      EXPECT_EQ(id, round);
      run.finish();
      EXPECT_FALSE(run.of(id).tokens.empty());
      engine.dismiss();
      run.step();
    }
  });
}

TEST(StepEngine, a_rank_that_is_asked_to_stop_ends_all_at_the_same_step) {
  for (const int asked : {0, 2}) {
    std::array<std::int64_t, 3> steps{};
    run_thread_ranks(3, [&](Communicator& world) {
      TestEngine loaded(small_model(), world);
      const auto rank = static_cast<std::size_t>(world.rank());
      int questions = 0;
      const auto stop_wanted = [&] { return world.rank() == asked && ++questions == 7; };
      StepEngine engine(loaded.transformer(), world,
                        {.batch_tokens = 16, .parallel = 1, .stop_wanted = stop_wanted});
      std::size_t tokens = 0;
      const bool complete =
          run_requests(engine, {.next = [] { return std::optional(long_request()); },
                                .on_token = [&](const NewToken&) { ++tokens; },
                                .on_finished = {},
                                .on_step = {}});
      EXPECT_FALSE(complete) << rank;
      steps[rank] = engine.statistics().steps;
      EXPECT_EQ(tokens, rank == 0 ? 3U * 5U : 0U) << "of the last step too";
    });
    EXPECT_EQ(steps, (std::array<std::int64_t, 3>{7, 7, 7})) << "rank " << asked;
  }
}

TEST(StepEngine, requests_that_end_in_the_step_that_is_asked_to_stop_are_complete) {
  run_thread_ranks(3, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    StepEngine engine(
        loaded.transformer(), world,
        {.batch_tokens = 512, .parallel = 1, .stop_wanted = [&] { return world.rank() == 1; }});
    bool is_asked = false;
    const auto next = [&] {
      Request request = request_number(0);
      request.max_new_tokens = 1;
      return std::exchange(is_asked, true) ? std::nullopt : std::optional(request);
    };
    std::size_t finished = 0;
    EXPECT_TRUE(run_requests(engine, {.next = next,
                                      .on_token = {},
                                      .on_finished = [&](const Finished&) { ++finished; },
                                      .on_step = {}}));
    EXPECT_EQ(finished, world.rank() == 0 ? 1U : 0U);
  });
}

TEST(StepEngine, time_of_steps_is_shared_between_prompts_and_generation) {
  run_engine(1, small_model(), {.batch_tokens = 16, .share_prefixes = false}, [&](EngineRun& run) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i) run.submit(long_request());
    run.finish();
    const double wall =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const StepStatistics& statistics = run.engine().statistics();
    EXPECT_EQ(statistics.work.prompt_rows, 5 * 40);
    EXPECT_EQ(statistics.work.generation_rows, 5 * 29) << "the first token counts to the prompt";
    const double steps = statistics.prompt_seconds + statistics.generate_seconds;
    EXPECT_LE(steps, wall);
    EXPECT_NEAR(steps, statistics.wall_seconds, 1e-9) << "a step begins where the last has ended";
    EXPECT_GT(statistics.prompt_seconds, 0);
    EXPECT_GT(statistics.generate_seconds, 0);
  });
}

TEST(StepEngine, refuses_what_it_cannot_run) {
  run_engine(1, small_model(), {}, [&](EngineRun& run) {
    const auto refused = [&](const std::function<void(Request&)>& spoil) {
      Request request = request_number(0);
      spoil(request);
      EXPECT_THROW(run.submit(request), Error);
      EXPECT_FALSE(run.engine().busy());
    };
    refused([](Request& request) { request.tokens.clear(); });
    refused([](Request& request) { request.tokens.push_back(1'000'000); });
    refused([](Request& request) { request.tokens[0] = -1; });
    refused([](Request& request) { request.max_new_tokens = -1; });
    refused([](Request& request) { request.logits_from = -1; });
    refused([](Request& request) { request.sampling.top_p = 2; });
    refused([](Request& request) { request.sampling.logit_bias = {{1'000'000, 1}}; });
    refused([](Request& request) { request.logprobs = -1; });
    refused([](Request& request) { request.stop_strings = {"no tokenizer"}; });
  });
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine loaded(small_model(), world);
    EXPECT_THROW(StepEngine(loaded.transformer(), world, {.batch_tokens = 0}), Error);
    EXPECT_THROW(StepEngine(loaded.transformer(), world, {.parallel = 0}), Error);
  });
}

}  // namespace
}  // namespace moesaic
