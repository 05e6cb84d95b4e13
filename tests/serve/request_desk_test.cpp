// Requests between the threads of those who ask and ranks that are threads.

#include "src/serve/request_desk.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>

#include "comm/thread_communicator.h"
#include "kernels/kernel_table.h"
#include "src/generate/scorer.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

const EngineSetup kServed{.directory = MOESAIC_TEST_DATA "/models/qwen2_moe-v4",
                          .isa = supported_isas().back()};

Request some_request(std::int32_t first, std::int64_t new_tokens) {
  Request request;
  request.tokens = {first, 5, 9, first + 1};
  request.max_new_tokens = new_tokens;
  return request;
}

RequestDesk::Order order(Ticket ticket, std::int64_t new_tokens = 3) {
  return {ticket, some_request(static_cast<std::int32_t>(ticket), new_tokens)};
}

/// What was told of one request.
struct Told {
  std::vector<std::int32_t> tokens;
  std::vector<PromptLogprob> logprobs;
  std::optional<Finished> finished;
};

class Listening {
 public:
  RequestDesk::Listener listener() {
    return {
        .on_token = [this](Ticket ticket,
                           const NewToken& token) { told_[ticket].tokens.push_back(token.token); },
        .on_prompt_logprob =
            [this](Ticket ticket, const PromptLogprob& logprob) {
              EXPECT_FALSE(told_[ticket].finished) << ticket;  // before the end
              told_[ticket].logprobs.push_back(logprob);
            },
        .on_finished =
            [this](Ticket ticket, Finished&& finished) {
              told_[ticket].finished = std::move(finished);
              ++ended_;
            }};
  }
  [[nodiscard]] std::int64_t ended() const { return ended_; }
  [[nodiscard]] const std::map<Ticket, Told>& told() const { return told_; }

 private:
  std::map<Ticket, Told> told_;
  std::atomic<std::int64_t> ended_ = 0;
};

/// Serves the desk on ranks that are threads, until `ask`, on a thread of its own, returns.
void serve_on(int ranks, RequestDesk& desk, Listening& listening,
              const std::function<void()>& ask) {
  std::atomic<bool> is_over = false;
  std::thread client([&] {
    ask();
    is_over = true;
  });
  run_thread_ranks(ranks, [&](Communicator& world) {
    TestEngine engine(kServed, world);
    StepEngine steps(engine.transformer(), world,
                     {.parallel = 2, .stop_wanted = [&] { return is_over.load(); }});
    const bool is_first = world.rank() == 0;
    RequestFeed feed = is_first ? desk.feed(listening.listener()) : RequestFeed{};
    feed.on_step = [&](std::span<const LogitsRows> rows, bool wants_logits) {
      std::vector<PromptLogprob> logprobs;
      if (wants_logits) {
        logprobs = gather_prompt_logprobs(engine.transformer().compute(), world, rows);
      }
      if (is_first) desk.end_step(logprobs);
    };
    EXPECT_FALSE(run_requests(steps, feed));
  });
  client.join();
}

void wait_for(const Listening& listening, std::int64_t ended) {
  while (listening.ended() < ended) std::this_thread::yield();
}

/// The texts of tickets 0, 1, ..., each alone on one rank.
std::map<Ticket, Told> told_alone(std::int64_t count) {
  Listening listening;
  RequestDesk desk(1);
  serve_on(1, desk, listening, [&] {
    for (Ticket ticket = 0; ticket < count; ++ticket) {
      EXPECT_TRUE(desk.add({order(ticket)}));
      wait_for(listening, ticket + 1);
    }
  });
  return listening.told();
}

TEST(RequestDesk, serves_many_at_once_as_one_alone) {
  constexpr std::int64_t kCount = 20;
  const std::map<Ticket, Told> alone = told_alone(kCount);
  for (const int ranks : {1, 3}) {
    Listening listening;
    RequestDesk desk(kCount);
    serve_on(ranks, desk, listening, [&] {
      for (Ticket ticket = 0; ticket < kCount; ++ticket) EXPECT_TRUE(desk.add({order(ticket)}));
      wait_for(listening, kCount);
    });
    for (const auto& [ticket, told] : listening.told()) {
      EXPECT_EQ(told.tokens, alone.at(ticket).tokens) << ticket;
      ASSERT_TRUE(told.finished) << ticket;
      EXPECT_EQ(told.finished->tokens, told.tokens);
      EXPECT_EQ(told.finished->reason, StopReason::length);
    }
  }
}

TEST(RequestDesk, refuses_more_than_may_wait) {
  RequestDesk desk(3);
  EXPECT_FALSE(desk.add({order(0), order(1), order(2), order(3)}));
  EXPECT_TRUE(desk.add({order(0), order(1), order(2)}));
  EXPECT_FALSE(desk.add({order(3)}));
  EXPECT_EQ(desk.waiting(), 3);
  desk.withdraw(1);
  EXPECT_FALSE(desk.add({order(3), order(4)}));
  EXPECT_TRUE(desk.add({order(3)}));
  EXPECT_EQ(desk.waiting(), 3);
}

TEST(RequestDesk, ends_what_nobody_wants_any_more) {
  for (const int ranks : {1, 3}) {
    Listening listening;
    RequestDesk desk(100);
    serve_on(ranks, desk, listening, [&] {
      // One for each place of the ranks, which would take very long.
      for (Ticket ticket = 0; ticket < 2 * ranks; ++ticket) {
        EXPECT_TRUE(desk.add({order(ticket, 1'000'000)}));
      }
      while (desk.waiting() > 0) std::this_thread::yield();
      EXPECT_TRUE(desk.add({order(50)}));
      EXPECT_TRUE(desk.add({order(51)}));
      desk.withdraw(51);
      for (Ticket ticket = 0; ticket < 2 * ranks; ++ticket) desk.withdraw(ticket);
      wait_for(listening, 2 * ranks + 1);
      desk.withdraw(50);  // too late: nothing happens
      EXPECT_TRUE(desk.add({order(52)}));
      wait_for(listening, 2 * ranks + 2);
    });
    EXPECT_EQ(listening.told().at(0).finished->reason, StopReason::cancelled);
    EXPECT_EQ(listening.told().at(50).finished->reason, StopReason::length);
    EXPECT_EQ(listening.told().at(52).finished->reason, StopReason::length);
    EXPECT_FALSE(listening.told().contains(51));
  }
}

TEST(RequestDesk, tells_what_a_model_makes_of_prompts) {
  std::vector<std::int32_t> tokens;
  for (std::int32_t i = 0; i < 30; ++i) tokens.push_back(i * 7 % 90);
  std::vector<PromptLogprob> expected;
  for (const int ranks : {1, 3}) {
    Listening listening;
    RequestDesk desk(10);
    serve_on(ranks, desk, listening, [&] {
      for (Ticket ticket = 0; ticket < 4; ++ticket) {
        Request request;
        request.tokens = tokens;
        request.max_new_tokens = ticket % 2;
        request.logprobs = 2;
        request.logits_from = 0;
        EXPECT_TRUE(desk.add({{ticket, request}}));
      }
      wait_for(listening, 4);
    });
    for (const auto& [ticket, told] : listening.told()) {
      std::vector<PromptLogprob> logprobs = told.logprobs;
      std::erase_if(logprobs, [&](const PromptLogprob& one) {
        return one.position >= std::ssize(tokens);  // what was generated
      });
      ASSERT_EQ(std::ssize(logprobs), 3 * 29) << ticket;
      if (expected.empty()) expected = logprobs;
      for (std::size_t i = 0; i < logprobs.size(); ++i) {
        EXPECT_EQ(logprobs[i].position, static_cast<std::int64_t>(i / 3) + 1);
        EXPECT_EQ(logprobs[i].logprob, expected[i].logprob) << ticket << " " << i;
        if (i % 3 > 0) continue;
        EXPECT_EQ(logprobs[i].logprob.token, tokens[i / 3 + 1]);
      }
    }
  }
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(kServed, world);
    const ScoreDocument document{.tokens = tokens, .windows = cut_windows(30, 40, 15)};
    const ScoreEvents events{
        .on_tokens =
            [&](const TokenScores& scores) {
              for (std::size_t i = 0; i < scores.scores.size(); ++i) {
                const std::size_t token = static_cast<std::size_t>(scores.first) - 1 + i;
                EXPECT_NEAR(scores.scores[i].log_probability,
                            static_cast<double>(expected[3 * token].logprob.logprob), 1e-5);
              }
            },
        .on_document = [](std::int64_t, const DocumentScore&) {},
        .on_logits = {}};
    (void)score(engine.transformer(), world, std::span(&document, 1), {}, events);
  });
}

}  // namespace
}  // namespace moesaic
