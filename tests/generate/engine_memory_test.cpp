// Keys and values of the step engine: common beginnings are computed once, and sequences that give
// way to others are computed again, with the tokens that each has alone.

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "base/error.h"
#include "comm/thread_communicator.h"
#include "tests/generate/engine_run.h"
#include "tests/support/model_copies.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Tokens = std::vector<std::int32_t>;

EngineSetup model(const std::string& name) {
  EngineSetup setup = small_model();
  setup.directory = std::string(MOESAIC_TEST_DATA "/models/") + name;
  return setup;
}

Tokens text(std::uint64_t seed, std::size_t length) {
  std::mt19937_64 random(seed);
  Tokens tokens(length);
  for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % 90);
  return tokens;
}

/// `common` tokens that all have, and some of its own.
Request request_with(std::size_t common, std::uint64_t number, std::size_t own = 3) {
  Request request;
  request.tokens = text(0, common);
  const Tokens rest = text(number + 1, own);
  request.tokens.insert(request.tokens.end(), rest.begin(), rest.end());
  request.max_new_tokens = 2;
  request.stream = number;
  request.sampling = {.temperature = 0.9, .top_k = 30, .top_p = 0.95, .seed = 3};
  return request;
}

struct Outcome {
  std::vector<Tokens> tokens;  // of the requests
  StepStatistics statistics;
};

Outcome run(int ranks, const EngineSetup& setup, const StepOptions& options,
            const std::vector<Request>& requests) {
  Outcome outcome;
  run_engine(ranks, setup, options, [&](EngineRun& engine) {
    for (const Request& request : requests) engine.submit(request);
    engine.finish();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      outcome.tokens.push_back(engine.of(static_cast<RequestId>(i)).tokens);
    }
    outcome.statistics = engine.engine().statistics();
  });
  return outcome;
}

TEST(EngineMemory, a_beginning_that_all_prompts_have_is_computed_once_on_a_rank) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 100; ++i) requests.push_back(request_with(90, i));
  const Outcome apart = run(1, small_model(), {.share_prefixes = false}, requests);
  EXPECT_EQ(apart.statistics.work.prompt_rows, 100 * 93);
  EXPECT_EQ(apart.statistics.work.shared_positions, 0);
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t batch : {40, 512}) {
      const Outcome shared =
          run(ranks, small_model(), {.batch_tokens = batch, .parallel = 5}, requests);
      const PassWork& work = shared.statistics.work;
      EXPECT_LE(work.prompt_rows, ranks * 90 + 100 * 3) << ranks << " ranks, batch " << batch;
      EXPECT_EQ(work.prompt_rows + work.shared_positions, 100 * 93);
      EXPECT_TRUE(shared.tokens == apart.tokens) << ranks << " ranks";
    }
  }
}

// Whoever began as it did would find its damage later, and be told of another place.
TEST(EngineMemory, a_damaged_sequence_is_no_beginning_for_others) {
  const test::TemporaryDirectory directory;
  EngineSetup setup = small_model();
  setup.directory = directory.path_of("model");
  test::copy_model("models/qwen2_moe-v4", setup.directory);
  test::damage_tensor(setup.directory, "model.embed_tokens.weight", 60);  // token 0
  Request request;
  for (std::int32_t i = 0; i < 50; ++i) request.tokens.push_back(i == 40 ? 0 : 1 + i);
  request.max_new_tokens = 2;
  run_engine(1, setup, {}, [&](EngineRun& engine) {
    for (const std::int32_t more : {51, 52}) {
      const RequestId id = engine.submit(request);
      engine.finish();
      ASSERT_TRUE(engine.of(id).damage.has_value());
      EXPECT_EQ(engine.of(id).damage->position, 40);
      EXPECT_EQ(engine.of(id).damage->place, "the embedding");
      request.tokens.push_back(more);
    }
    EXPECT_EQ(engine.engine().statistics().work.shared_positions, 0);
  });
}

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
    const Outcome ample = run(1, small_model(), {.parallel = 4}, requests);
    const Outcome tight = run(1, small_model(), {.parallel = 4, .cache_bytes = room}, requests);
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
  const Outcome apart = run(1, small_model(), {.share_prefixes = false}, requests);
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

TEST(EngineMemory, ended_texts_are_kept_up_to_a_number) {
  const ModelConfig config = read_model_config(small_model().directory);
  KvPool pool(config, Precision::bf16);
  EndedSequences kept(2);
  for (std::int32_t i = 0; i < 3; ++i) {
    Sequence sequence = pool.make_sequence(1);
    sequence.ensure(1);
    sequence.advance(1);
    kept.add({i}, std::move(sequence));
  }
  ASSERT_EQ(kept.entries().size(), 2U);
  EXPECT_EQ(kept.entries().front().tokens, Tokens{1});
  EXPECT_EQ(pool.bytes(), 2 * pool.page_bytes());
}

TEST(EngineMemory, a_request_goes_on_where_the_one_before_it_ended) {
  run_engine(1, small_model(), {}, [&](EngineRun& engine) {
    Request first = request_with(50, 1);
    first.max_new_tokens = 10;
    const RequestId id = engine.submit(first);
    engine.finish();
    Request turn = first;
    const Tokens& answer = engine.of(id).tokens;
    turn.tokens.insert(turn.tokens.end(), answer.begin(), answer.end());
    const Tokens more = text(99, 5);
    turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
    const std::int64_t before = engine.engine().statistics().work.prompt_rows;
    engine.submit(turn);
    engine.finish();
    // The last token of the answer was never fed.
    EXPECT_EQ(engine.engine().statistics().work.prompt_rows - before, 5 + 1);
  });
}

TEST(EngineMemory, prompts_of_other_lengths_share_nothing_where_their_length_matters) {
  for (const char* name : {"mixtral-v4-dynamic", "granitemoe-v4-longrope"}) {
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(request_with(40, i, 3 + i % 2));
    const Outcome apart = run(1, model(name), {.share_prefixes = false}, requests);
    const Outcome shared = run(1, model(name), {.parallel = 6}, requests);
    EXPECT_TRUE(shared.tokens == apart.tokens) << name;
    EXPECT_EQ(shared.statistics.work.shared_positions, 4 * 40) << name;
  }
}

// Its layers with a state cannot go back to where two texts part.
TEST(EngineMemory, with_states_texts_share_all_of_another_or_nothing) {
  const EngineSetup setup = model("qwen3_next-v4");
  const ModelConfig config = read_model_config(setup.directory);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(request_with(40 + i % 2 * 30, i));
  requests.push_back(requests.back());  // another sample of the same
  requests.back().stream = 77;
  const Outcome apart = run(1, setup, {.parallel = 1, .share_prefixes = false}, requests);
  for (const int ranks : {1, 3}) {
    for (const std::int64_t texts : {2, 6}) {
      const std::int64_t room = texts * KvPool::sequence_bytes(config, Precision::bf16, 128);
      const Outcome shared =
          run(ranks, setup, {.batch_tokens = 50, .parallel = 6, .cache_bytes = room}, requests);
      EXPECT_TRUE(shared.tokens == apart.tokens) << ranks << " ranks, room for " << texts;
    }
  }
  run_engine(1, setup, {}, [&](EngineRun& engine) {
    const auto rows = [&] { return engine.engine().statistics().work.prompt_rows; };
    Request turn = requests.front();
    turn.max_new_tokens = 10;
    const RequestId first = engine.submit(turn);
    engine.finish();
    const Tokens answer = engine.of(first).tokens;
    std::int64_t before = rows();
    const RequestId again = engine.submit(turn);
    engine.finish();
    EXPECT_EQ(engine.of(again).tokens, answer);
    EXPECT_EQ(rows() - before, std::ssize(turn.tokens)) << "its state has met the answer";
    turn.tokens.insert(turn.tokens.end(), answer.begin(), answer.end());
    const Tokens more = text(99, 5);
    turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
    before = rows();
    const RequestId next = engine.submit(turn);
    engine.finish();
    EXPECT_EQ(rows() - before, 5 + 1) << "goes on where the answer ended";
    const Outcome alone = run(1, setup, {.share_prefixes = false}, {turn});
    EXPECT_EQ(engine.of(next).tokens, alone.tokens.front());
  });
}

TEST(EngineMemory, logits_that_are_wanted_are_computed) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 3; ++i) requests.push_back(request_with(60, i));
  requests[1].logits_from = 0;
  requests[2].logits_from = 50;
  const Outcome shared = run(1, small_model(), {}, requests);
  EXPECT_EQ(shared.statistics.work.shared_positions, 50);
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
  const Outcome free = run(1, small_model(), {.parallel = 1}, requests);
  EXPECT_EQ(free.statistics.work.dropped, 0);
  std::int64_t dropped = 0;
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t pages : {2, 3, 4, 5}) {
      const Outcome tight =
          run(ranks, small_model(),
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

TEST(EngineMemory, random_runs_in_little_memory_with_common_beginnings) {
  std::vector<Request> requests;
  std::mt19937_64 random(11);
  for (std::uint64_t i = 0; i < 12; ++i) {
    requests.push_back(
        request_with(random() % 3 == 0 ? 0 : 20 + random() % 50, i, random() % 30 + 1));
    requests.back().max_new_tokens = 1 + static_cast<std::int64_t>(random() % 30);
  }
  const Outcome alone = run(1, small_model(), {.parallel = 1, .share_prefixes = false}, requests);
  for (int number = 0; number < 24; ++number) {
    const StepOptions options{.batch_tokens = 1 + static_cast<std::int64_t>(random() % 60),
                              .parallel = 1 + static_cast<std::int64_t>(random() % 6),
                              .cache_bytes = bytes_of(64 * (2 + static_cast<int>(random() % 4))),
                              .short_prompts_first = number >= 12};
    run_engine(1 + number % 3, small_model(), options, [&](EngineRun& engine) {
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
