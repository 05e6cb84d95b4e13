#include "src/model/attention_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "comm/thread_communicator.h"
#include "kernels/attention_kernel.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

/// How many tasks have each sequence, head and token.
std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, std::int64_t> segments_met(
    const AttentionPlan& plan) {
  std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, std::int64_t> met;
  for (const AttentionTask& task : plan.tasks()) {
    for (std::int64_t i = 0; i < task.rows.count; ++i) {
      ++met[{task.rows.sequence, task.rows.kv_head, task.rows.first + i}];
    }
  }
  return met;
}

TEST(AttentionPlan, one_token_is_cut_by_segments_where_threads_would_wait) {
  const std::vector<AttentionSpan> sequences = {{5000, 1}};
  AttentionPlan plan;
  plan.cut(sequences, {.kv_heads = 1, .group = 8, .value_dim = 128}, 2);
  ASSERT_EQ(plan.tasks().size(), 5U);
  ASSERT_EQ(plan.joins().size(), 1U);
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(plan.tasks()[i].segment, static_cast<std::int64_t>(i));
    EXPECT_EQ(plan.tasks()[i].states,
              static_cast<std::int64_t>(i) * 8 * attention_state_floats(128));
  }
  EXPECT_EQ(plan.joins()[0].num_segments, 5);
  EXPECT_EQ(plan.state_floats(), 5 * plan.joins()[0].segment_stride);

  plan.cut(sequences, {.kv_heads = 1, .group = 8, .value_dim = 128}, 1);
  EXPECT_EQ(plan.tasks().size(), 1U);
  EXPECT_TRUE(plan.joins().empty());
  plan.cut(sequences, {.kv_heads = 8, .group = 8, .value_dim = 128}, 2);
  EXPECT_EQ(plan.tasks().size(), 8U);
  EXPECT_TRUE(plan.joins().empty());
}

TEST(AttentionPlan, a_window_leaves_out_segments_that_no_row_sees) {
  const std::vector<AttentionSpan> sequences = {{5000, 1}, {1020, 8}};
  AttentionPlan plan;
  plan.cut(sequences, {.kv_heads = 1, .group = 1, .value_dim = 16, .window = 1000}, 2);
  ASSERT_EQ(plan.joins().size(), 2U);
  EXPECT_EQ(plan.joins()[0].num_segments, 2);  // keys 4001 to 5000
  EXPECT_EQ(plan.tasks()[0].segment, 3);
  EXPECT_EQ(plan.tasks()[1].segment, 4);
  EXPECT_EQ(plan.joins()[1].num_segments, 2);  // keys 21 to 1027
}

TEST(AttentionPlan, every_row_is_met_once_by_each_of_its_segments) {
  const std::vector<AttentionSpan> sequences = {{0, 70}, {3000, 3}, {1023, 1}};
  for (const int threads : {1, 2, 64}) {
    AttentionPlan plan;
    plan.cut(sequences, {.kv_heads = 2, .group = 3, .value_dim = 16}, threads);
    for (const auto& [row, times] : segments_met(plan)) {
      const bool is_cut = threads == 64 && std::get<0>(row) == 1;
      EXPECT_EQ(times, is_cut ? 3 : 1) << threads;
    }
    EXPECT_EQ(segments_met(plan).size(), 2U * (70 + 3 + 1));
  }
}

TEST(AttentionPlan, states_stay_within_what_a_memory_plan_counts) {
  std::int64_t most_share = 0;  // in percent, of the bound
  for (const std::int64_t group : {1, 3, 8, 100}) {
    for (const std::int64_t kv_heads : {1, 2, 8}) {
      for (const std::int64_t window : {0, 1000, 1024, 5000}) {
        const AttentionShape shape{kv_heads, group, 16, window};
        for (const int threads : {1, 2, 7, 64}) {
          for (const std::int64_t position : {0, 961, 1023, 1024, 5000, 40000}) {
            for (const std::int64_t tokens : {1, 2, 31, 64, 65, 300, 2000}) {
              const std::vector<AttentionSpan> sequences = {{position, tokens}, {position / 2, 1}};
              AttentionPlan plan;
              plan.cut(sequences, shape, threads);
              const std::int64_t most =
                  AttentionPlan::most_state_floats(shape, tokens + 1, position + tokens, threads);
              ASSERT_LE(plan.state_floats(), most)
                  << group << ' ' << kv_heads << ' ' << window << ' ' << threads << ' ' << position
                  << ' ' << tokens;
              if (most > 0) most_share = std::max(most_share, 100 * plan.state_floats() / most);
            }
          }
        }
      }
    }
  }
  EXPECT_GE(most_share, 90);
}

/// The last logits of a long sequence whose end is a token a step.
std::vector<float> last_logits(const EngineSetup& setup, std::int64_t chunk) {
  constexpr std::int64_t kTokens = 2101;
  std::vector<float> result;
  run_thread_ranks(1, [&](Communicator& world) {
    TestEngine engine(setup, world);
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kTokens; ++i) {
      tokens.push_back(i * i % static_cast<std::int32_t>(engine.config().vocab_size));
    }
    const auto logits = run_sequence(engine.transformer(), tokens, chunk, kTokens);
    result.assign(logits.end() - engine.config().vocab_size, logits.end());
  });
  return result;
}

TEST(LongSequence, has_the_same_bits_on_any_threads_and_in_any_chunks) {
  for (const char* model : {"granitemoe-v5", "qwen2_moe-v4-window"}) {  // one KV head; windows
    for (const Precision precision : {Precision::bf16, Precision::f32}) {
      EngineSetup setup{.directory = std::string(MOESAIC_TEST_DATA "/models/") + model,
                        .precision = precision,
                        .isa = tile_order_isas().back()};
      const auto expected = last_logits(setup, 2101);
      for (const int threads : {2, 5}) {
        setup.threads = threads;
        EXPECT_EQ(last_logits(setup, 2100), expected) << model << ", " << threads << " threads";
        EXPECT_EQ(last_logits(setup, 75), expected) << model << ", " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace moesaic
