// Requests that begin alike: what they have in common is computed once, with the tokens that each
// has alone.

#include <gtest/gtest.h>

#include "tests/generate/engine_run.h"
#include "tests/support/model_copies.h"
#include "tests/support/temporary_directory.h"

namespace moesaic {
namespace {

using Tokens = std::vector<std::int32_t>;

void check_common_beginning(const EngineSetup& setup) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 100; ++i) requests.push_back(request_with(90, i));
  const RunOutcome apart = run_requests(1, setup, {.share_prefixes = false}, requests);
  EXPECT_EQ(apart.statistics.work.prompt_rows, 100 * 93);
  EXPECT_EQ(apart.statistics.work.shared_positions, 0);
  const std::int64_t room =
      KvPool::bytes_of(read_model_config(setup.directory), Precision::bf16, 94, 5);
  for (const int ranks : {1, 2, 3}) {
    for (const std::int64_t batch : {40, 512}) {
      for (const bool short_first : {false, true}) {
        const StepOptions options{.batch_tokens = batch,
                                  .parallel = 5,
                                  .cache_bytes = room,
                                  .short_prompts_first = short_first};
        const RunOutcome shared = run_requests(ranks, setup, options, requests);
        const PassWork& work = shared.statistics.work;
        EXPECT_LE(work.prompt_rows, ranks * 90 + 100 * 3) << ranks << " ranks, batch " << batch;
        EXPECT_EQ(work.prompt_rows + work.shared_positions, 100 * 93);
        EXPECT_EQ(work.dropped, 0);
        EXPECT_TRUE(shared.tokens == apart.tokens) << ranks << " ranks";
      }
    }
  }
}

TEST(CommonBeginnings, are_computed_once_on_a_rank) {
  check_common_beginning(small_model());
}

TEST(CommonBeginnings, are_computed_once_with_states_too) {
  check_common_beginning(small_model("qwen3_next-v4"));
}

// 40 tokens are common to all, 80 to the odd ones: both states are kept.
TEST(CommonBeginnings, with_states_prompts_part_at_several_places) {
  const EngineSetup setup = small_model("qwen3_next-v4");
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 40; ++i) {
    requests.push_back(request_with(40, i));
    if (i % 2 == 0) continue;
    const Tokens second = random_tokens(1234, 40);
    Tokens& tokens = requests.back().tokens;
    tokens.insert(tokens.begin() + 40, second.begin(), second.end());
  }
  const RunOutcome apart = run_requests(1, setup, {.share_prefixes = false}, requests);
  const RunOutcome shared = run_requests(1, setup, {.parallel = 6}, requests);
  EXPECT_EQ(shared.statistics.work.prompt_rows, 80 + 40 * 3);
  EXPECT_TRUE(shared.tokens == apart.tokens);
}

// A server's memory is full of texts that have ended.
TEST(CommonBeginnings, with_states_are_kept_in_place_of_ended_texts) {
  const EngineSetup setup = small_model("qwen3_next-v4");
  const StepOptions options{
      .parallel = 4,
      .cache_bytes =
          4 * KvPool::sequence_bytes(read_model_config(setup.directory), Precision::bf16, 128)};
  run_engine(1, setup, options, [&](EngineRun& engine) {
    const auto rows_of = [&](const Request& request) {
      const std::int64_t before = engine.engine().statistics().work.prompt_rows;
      engine.submit(request);
      engine.finish();
      return engine.engine().statistics().work.prompt_rows - before;
    };
    Request other = request_with(0, 50, 120);
    for (int i = 0; i < 6; ++i) {
      other.tokens = random_tokens(100 + static_cast<std::uint64_t>(i), 120);
      EXPECT_EQ(rows_of(other), 120);
    }
    EXPECT_EQ(rows_of(request_with(90, 1)), 93);
    EXPECT_EQ(rows_of(request_with(90, 2)), 93) << "stops where the two part";
    for (std::uint64_t i = 3; i < 9; ++i) EXPECT_EQ(rows_of(request_with(90, i)), 3);
  });
}

// Logits of all positions are wanted: nothing could be taken over, and no pass ends early for it.
TEST(CommonBeginnings, with_states_nothing_is_kept_for_those_that_take_nothing_over) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 6; ++i) {
    requests.push_back(request_with(60, i));
    requests.back().logits_from = 0;
    requests.back().max_new_tokens = 0;
  }
  const RunOutcome outcome =
      run_requests(1, small_model("qwen3_next-v4"), {.parallel = 2}, requests);
  EXPECT_EQ(outcome.statistics.work.shared_positions, 0);
  EXPECT_EQ(outcome.statistics.steps, 3);
}

// Whoever began as it did would find its damage later, and be told of another place.
TEST(CommonBeginnings, a_damaged_sequence_is_no_beginning_for_others) {
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

TEST(CommonBeginnings, ended_texts_are_kept_up_to_a_number) {
  const ModelConfig config = read_model_config(small_model().directory);
  KvPool pool(config, Precision::bf16);
  KeptSequences kept(2);
  const auto add = [&](std::int32_t token) {
    Sequence sequence = pool.make_sequence(1);
    sequence.ensure(1);
    sequence.advance(1);
    kept.add({token}, std::move(sequence));
  };
  for (const std::int32_t token : {0, 1, 2}) add(token);
  ASSERT_EQ(kept.entries().size(), 2U);
  EXPECT_EQ(kept.entries().front().tokens, Tokens{1});
  EXPECT_EQ(pool.bytes(), 2 * pool.page_bytes());
  kept.renew(&kept.entries().front().cache);
  add(3);
  EXPECT_EQ(kept.entries().front().tokens, Tokens{1}) << "a request has begun as it does";
}

TEST(CommonBeginnings, a_request_goes_on_where_the_one_before_it_ended) {
  run_engine(1, small_model(), {}, [&](EngineRun& engine) {
    Request first = request_with(50, 1);
    first.max_new_tokens = 10;
    const RequestId id = engine.submit(first);
    engine.finish();
    Request turn = first;
    const Tokens& answer = engine.of(id).tokens;
    turn.tokens.insert(turn.tokens.end(), answer.begin(), answer.end());
    const Tokens more = random_tokens(99, 5);
    turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
    const std::int64_t before = engine.engine().statistics().work.prompt_rows;
    engine.submit(turn);
    engine.finish();
    // The last token of the answer was never fed.
    EXPECT_EQ(engine.engine().statistics().work.prompt_rows - before, 5 + 1);
  });
}

TEST(CommonBeginnings, prompts_of_other_lengths_share_nothing_where_their_length_matters) {
  for (const char* name : {"mixtral-v4-dynamic", "granitemoe-v4-longrope"}) {
    std::vector<Request> requests;
    for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(request_with(40, i, 3 + i % 2));
    const RunOutcome apart =
        run_requests(1, small_model(name), {.share_prefixes = false}, requests);
    const RunOutcome shared = run_requests(1, small_model(name), {.parallel = 6}, requests);
    EXPECT_TRUE(shared.tokens == apart.tokens) << name;
    EXPECT_EQ(shared.statistics.work.shared_positions, 4 * 40) << name;
  }
}

// Its layers with a state cannot go back to where two texts part.
TEST(CommonBeginnings, with_states_texts_keep_their_tokens_whatever_they_share) {
  const EngineSetup setup = small_model("qwen3_next-v4");
  const ModelConfig config = read_model_config(setup.directory);
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 6; ++i) requests.push_back(request_with(40 + i % 2 * 30, i));
  requests.push_back(requests.back());  // another sample of the same
  requests.back().stream = 77;
  const RunOutcome apart =
      run_requests(1, setup, {.parallel = 1, .share_prefixes = false}, requests);
  for (const int ranks : {1, 3}) {
    for (const std::int64_t texts : {2, 6}) {
      const std::int64_t room = texts * KvPool::sequence_bytes(config, Precision::bf16, 128);
      const RunOutcome shared = run_requests(
          ranks, setup, {.batch_tokens = 50, .parallel = 6, .cache_bytes = room}, requests);
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
    before = rows();
    const RequestId third = engine.submit(turn);
    engine.finish();
    EXPECT_EQ(engine.of(third).tokens, answer);
    EXPECT_EQ(rows() - before, 1) << "the second has left a state before its last token";
    turn.tokens.insert(turn.tokens.end(), answer.begin(), answer.end());
    const Tokens more = random_tokens(99, 5);
    turn.tokens.insert(turn.tokens.end(), more.begin(), more.end());
    before = rows();
    const RequestId next = engine.submit(turn);
    engine.finish();
    EXPECT_EQ(rows() - before, 5 + 1) << "goes on where the answer ended";
    const RunOutcome alone = run_requests(1, setup, {.share_prefixes = false}, {turn});
    EXPECT_EQ(engine.of(next).tokens, alone.tokens.front());
  });
}

TEST(CommonBeginnings, logits_that_are_wanted_are_computed) {
  std::vector<Request> requests;
  for (std::uint64_t i = 0; i < 3; ++i) requests.push_back(request_with(60, i));
  requests[1].logits_from = 0;
  requests[2].logits_from = 50;
  const RunOutcome shared = run_requests(1, small_model(), {}, requests);
  EXPECT_EQ(shared.statistics.work.shared_positions, 50);
}

}  // namespace
}  // namespace moesaic
