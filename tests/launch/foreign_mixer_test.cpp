// What inspect, plan and the memory check say of a model with a kind of mixer that only tests know:
// all that they tell of a mixer they ask its kind.

#include <gtest/gtest.h>

#include "base/json.h"
#include "launch/job/memory_plan.h"
#include "launch/job/workloads.h"
#include "launch/plan/cost_model.h"
#include "launch/plan/job_plan.h"
#include "launch/plan/job_time.h"
#include "launch/verbs/inspect_report.h"
#include "src/model/kv_pool.h"
#include "tests/launch/parsed_command.h"
#include "tests/parallel/test_machine.h"
#include "tests/support/recurrence.h"

namespace moesaic {
namespace {

// Of the model: layers 0 and 2 are recurrences of 120 channels, layer 1 is attention of 6 heads of
// 20, 2 for keys and values; hidden 64.
constexpr std::int64_t kStateBytes = 2 * 512;  // 120 floats in whole cache lines, two layers
constexpr std::int64_t kPageBytes = 2 * 2 * 64 * 32 * 2;  // a block's heads are of whole 16s

class ForeignMixer : public testing::Test {
 protected:
  [[nodiscard]] OpenModel open(const Options& options) const {
    return open_model(options, ModelFiles::open(checkpoint_.directory()), config_);
  }

  test::RecurrentCheckpoint checkpoint_;
  ModelConfig config_ =
      read_model_config(checkpoint_.directory(), test::families_with_recurrence());
};

TEST_F(ForeignMixer, is_told_of_by_inspect) {
  InspectReport report;
  report.files = ModelFiles::open(checkpoint_.directory());
  report.config = config_;
  report.facts = count_parameters(config_, report.files.names(config_));
  testing::internal::CaptureStdout();
  print_text(report);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_NE(text.find("\nrecurrence    linear\n"), std::string::npos) << text;
  EXPECT_NE(text.find("\nheads         6 of 20, 2 for keys and values\n"), std::string::npos);
  EXPECT_NE(text.find("\ncontext       128 tokens, rope default (theta 1000000)\n"),
            std::string::npos)
      << text;
  testing::internal::CaptureStdout();
  print_json(report);
  const Json json = Json::parse(testing::internal::GetCapturedStdout(), "output");
  EXPECT_EQ(json.at("recurrence").as_int(), 120);
  EXPECT_EQ(json.at("heads").as_int(), 6);
  // A recurrence has no keys and no values, and the norm of one of the two.
  const std::string plain = test::RecurrentCheckpoint::plain_directory();
  const ModelConfig attention = read_model_config(plain);
  const ModelFacts all = count_parameters(attention, ModelFiles::open(plain).names(attention));
  EXPECT_EQ(all.total_parameters - json.at("parameters").as_int(), 2 * (2 * 40 * 64 + 20));
  EXPECT_EQ(all.expert_parameters, report.facts.expert_parameters);
}

TEST_F(ForeignMixer, has_the_cache_that_is_planned) {
  const Options options =
      test::parse({"plan", "-m", "x", "--job", "generate", "--parallel", "3", "-c", "100",
                   "--prompt-tokens", "90", "--predict", "10", "-t", "1"})
          .options;
  const OpenModel model = open(options);
  const JobPlan plan(options, model, {}, ExpertPopularity::even());
  const Workload work = plan.workload(options);
  EXPECT_EQ(plan.memory(options).node.items[MemoryItem::cache],
            3 * (kStateBytes + 2 * kPageBytes) + kStateBytes + kPageBytes)
      << "a state and a page more, of a beginning that they have in common";
  // As much as sequences take.
  KvPool pool(config_, Precision::bf16);
  EXPECT_EQ(pool.state_bytes(), kStateBytes);
  EXPECT_EQ(pool.page_bytes(), kPageBytes);
  EXPECT_EQ(positions_in(config_, Precision::bf16, work, 4 * (kStateBytes + kPageBytes)), 64);
  // Without attention nothing grows, and any length is as good.
  ModelConfig recurrent = config_;
  recurrent.layers[1].mixer = recurrent.layers[0].mixer;
  EXPECT_EQ(positions_in(recurrent, Precision::bf16, work, 4 * kStateBytes / 2 * 3), 100);
  EXPECT_EQ(positions_in(recurrent, Precision::bf16, work, 100), 0);
}

TEST_F(ForeignMixer, takes_the_time_of_its_work) {
  const Options options =
      test::parse({"plan", "-m", "x", "--job", "generate", "--parallel", "1", "-c", "100",
                   "--prompt-tokens", "80", "--predict", "20", "-t", "1"})
          .options;
  const OpenModel model = open(options);
  const JobPlan plan(options, model, {}, ExpertPopularity::even());
  const CostModel cost = make_cost_model(model, LoadOptions(), {}, Int4Activations::bf16);
  ASSERT_EQ(cost.layers.size(), 3U);
  EXPECT_EQ(cost.head_dim, 20);
  EXPECT_EQ(cost.angles, 10);
  for (const std::size_t layer : {0, 2}) {
    ASSERT_EQ(cost.layers[layer].mixer.size(), 2U) << "in and out";
    EXPECT_EQ(cost.layers[layer].mixer[0].weights, 120 * 64);
    EXPECT_EQ(cost.layers[layer].rotated, 0);
  }
  EXPECT_EQ(cost.layers[1].rotated, 8 * 20);
  const JobPasses passes = job_passes(options, model, plan.ranks(), plan.workload(options));
  // Tokens 80 to 99 see 81 to 100 keys; a state takes two operations a channel and token.
  const double keys = 20 * (81 + 100) / 2.0;
  ASSERT_TRUE(passes.generation);
  EXPECT_DOUBLE_EQ(passes.generation->step.attention_flops,
                   (4 * 120 * keys + 2 * 20 * 2 * 120) / 20);
  EXPECT_DOUBLE_EQ(passes.generation->step.cache_bytes,
                   (2 * 2 * 40 * keys + 2 * 20 * 8 * 120) / 20);
  // Of a pass of many tokens attention's kernels leave out half of what they multiply.
  const MixerWork one = pass_work(config_, Precision::bf16, {.tokens = 40});
  const MixerWork many = pass_work(config_, Precision::bf16, {.tokens = 40, .at_once = 40});
  EXPECT_DOUBLE_EQ(many.flops - one.flops, 40 * 4 * 120 * (21 + 64) / 2.0) << "of one layer";
  const JobTime time =
      time_job(passes, job_work(passes, cost, plan.ranks(), ExpertPopularity::even()), plan.ranks(),
               test::test_machine());
  EXPECT_GT(time.prompt_tokens_per_second, 0);
  EXPECT_GT(time.generation_tokens_per_second, 0);
}

/// A kind that answers what a test says.
struct ToldKind : MixerKind {
  [[nodiscard]] std::vector<NamedWeight> weights(const LayerTensors&) const override { return {}; }
  [[nodiscard]] CacheNeeds cache(Precision) const override { return needs; }
  [[nodiscard]] MixerWork work(Precision, std::int64_t) const override { return {}; }
  [[nodiscard]] std::int64_t row_bytes() const override { return row; }
  [[nodiscard]] std::int64_t pass_bytes(const PassSize& size) const override {
    return pass * size.tokens * size.positions;
  }
  [[nodiscard]] std::int64_t kept_bytes() const override { return kept; }
  [[nodiscard]] std::int64_t backward_bytes() const override { return backward; }
  [[nodiscard]] std::int64_t backward_pass_bytes(const PassSize& size) const override {
    return backward_pass * size.positions * size.threads;
  }
  [[nodiscard]] MixerText text() const override { return {}; }
  void write_fields(JsonWriter&) const override {}
  [[nodiscard]] std::unique_ptr<TokenMixer> make_mixer(LayerContext&) const override { return {}; }

  CacheNeeds needs{};
  std::int64_t row = 0;
  std::int64_t pass = 0;
  std::int64_t kept = 0;
  std::int64_t backward = 0;
  std::int64_t backward_pass = 0;
};

/// Three layers of the model with mixers of which two are of one kind.
MemoryItems planned(const ModelConfig& config, const ToldKind& kind, bool recomputes = false) {
  ModelConfig told = config;
  told.layers[0].mixer = told.layers[2].mixer = std::make_shared<const ToldKind>(kind);
  told.layers[1].mixer = std::make_shared<const ToldKind>();
  Options options;
  options.batch_size = 50;
  Workload work = sft_workload(options, told, {.longest = 40, .threads = 3}, recomputes);
  work.sequences = 3;
  return plan_rank({.config = told}, {}, work, {.all_tokens = 50}).own;
}

TEST_F(ForeignMixer, is_asked_for_all_the_memory_that_it_takes) {
  const MemoryItems none = planned(config_, {});
  const auto more = [&](const auto& change, MemoryItem item, bool recomputes = false) {
    ToldKind kind;
    change(kind);
    return planned(config_, kind, recomputes)[item] - planned(config_, {}, recomputes)[item];
  };
  constexpr std::int64_t kMuch = std::int64_t{1} << 20;
  EXPECT_EQ(more([](ToldKind& kind) { kind.needs.page_bytes = kMuch; }, MemoryItem::cache),
            3 * 2 * kMuch)
      << "50 positions are a page, of each layer and sequence";
  EXPECT_EQ(more([](ToldKind& kind) { kind.needs.state_bytes = kMuch; }, MemoryItem::cache),
            4 * 2 * kMuch)
      << "and a state more";
  EXPECT_EQ(more([](ToldKind& kind) { kind.row = kMuch; }, MemoryItem::activation), 50 * kMuch)
      << "one layer works at a time";
  EXPECT_EQ(more([](ToldKind& kind) { kind.pass = kMuch; }, MemoryItem::activation),
            50 * 50 * kMuch)
      << "one object is of both layers";
  const auto kept = [](ToldKind& kind) { kind.kept = kMuch; };
  EXPECT_EQ(more(kept, MemoryItem::activation), 2 * 50 * kMuch);
  EXPECT_EQ(more(kept, MemoryItem::activation, true), 50 * kMuch) << "of one that computes again";
  EXPECT_EQ(more([](ToldKind& kind) { kind.backward = kMuch; }, MemoryItem::activation),
            50 * kMuch);
  EXPECT_EQ(more([](ToldKind& kind) { kind.backward_pass = kMuch; }, MemoryItem::activation),
            40 * 3 * kMuch);
  EXPECT_GT(none[MemoryItem::activation], 0);
}

}  // namespace
}  // namespace moesaic
