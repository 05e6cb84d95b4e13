// Texts and stop strings of the step engine, on the demo model.

#include <gtest/gtest.h>

#include "tests/generate/engine_run.h"

namespace moesaic {
namespace {

const EngineSetup kDemoEngine{.directory = MOESAIC_TEST_DATA "/demo-model",
                              .isa = supported_isas().back()};

class EngineTexts : public testing::Test {
 protected:
  [[nodiscard]] Request request(const std::string& prompt) const {
    Request result;
    result.tokens = tokenizer.encode(prompt);
    result.max_new_tokens = 24;
    result.sampling.temperature = 0;
    return result;
  }
  /// The greedy continuation.
  [[nodiscard]] std::string text_of(const std::string& prompt) const {
    std::string text;
    run_engine(1, kDemoEngine, {.tokenizer = &tokenizer}, [&](EngineRun& run) {
      const RequestId id = run.submit(request(prompt));
      run.finish();
      text = run.of(id).text;
    });
    return text;
  }
  Tokenizer tokenizer = Tokenizer::from_directory(kDemoEngine.directory);
};

TEST_F(EngineTexts, texts_come_with_the_tokens) {
  run_engine(2, kDemoEngine, {.tokenizer = &tokenizer}, [&](EngineRun& run) {
    const RequestId id = run.submit(request("In the beginning"));
    run.finish();
    const Finished& finished = run.of(id);
    EXPECT_EQ(finished.text, run.told_text(id));
    std::vector<std::int32_t> all = tokenizer.encode("In the beginning");
    all.insert(all.end(), finished.tokens.begin(), finished.tokens.end());
    EXPECT_EQ("In the beginning" + finished.text, tokenizer.decode(all));
  });
}

TEST_F(EngineTexts, a_text_ends_before_a_stop_string_that_crosses_the_borders_of_tokens) {
  const std::string free = text_of("In the beginning");
  ASSERT_GT(free.size(), 30U);
  for (const int ranks : {1, 2, 3}) {
    for (std::size_t at = 10; at < 18; ++at) {
      const std::string stop = free.substr(at, 9);
      const std::size_t first = free.find(stop);
      run_engine(ranks, kDemoEngine, {.tokenizer = &tokenizer}, [&](EngineRun& run) {
        run.submit(request("Blessed are"));
        run.submit(request("And the LORD said"));
        Request stopped = request("In the beginning");
        stopped.stop_strings = {"no such text", stop};
        const RequestId id = run.submit(stopped);
        run.finish();
        EXPECT_EQ(run.of(id).reason, StopReason::stop_string);
        EXPECT_EQ(run.of(id).stop_string, stop);
        EXPECT_EQ(run.of(id).text, free.substr(0, first));
        EXPECT_EQ(run.told_text(id), free.substr(0, first));
        EXPECT_LT(run.of(id).tokens.size(), 24U);
      });
    }
  }
}

TEST_F(EngineTexts, a_rank_is_free_again_after_a_stop_string) {
  const std::string free = text_of("In the beginning");
  run_engine(2, kDemoEngine, {.parallel = 1, .tokenizer = &tokenizer}, [&](EngineRun& run) {
    for (int i = 0; i < 6; ++i) {
      Request stopped = request("In the beginning");
      stopped.max_new_tokens = 1000;
      stopped.stop_strings = {free.substr(0, 3)};
      run.submit(stopped);
    }
    run.finish();
    for (RequestId id = 0; id < 6; ++id) EXPECT_EQ(run.of(id).text, "");
    EXPECT_LT(run.engine().statistics().steps, 20);
  });
}

TEST_F(EngineTexts, a_stop_token_is_no_part_of_the_text) {
  Request free = request("In the beginning");
  run_engine(1, kDemoEngine, {.tokenizer = &tokenizer}, [&](EngineRun& run) {
    const RequestId first = run.submit(free);
    run.finish();
    const std::vector<std::int32_t> tokens = run.of(first).tokens;
    Request stopped = free;
    stopped.stop_tokens = {tokens[5]};
    const RequestId id = run.submit(stopped);
    run.finish();
    EXPECT_EQ(run.of(id).reason, StopReason::end_of_sequence);
    EXPECT_EQ(run.of(id).stop_token, tokens[5]);
    EXPECT_LE(run.of(id).tokens.size(), 5U);
    EXPECT_TRUE(run.of(first).text.starts_with(run.of(id).text));
  });
}

}  // namespace
}  // namespace moesaic
