// Logits of real transformers checkpoints of every family against transformers' own (float32).

#include <gtest/gtest.h>

#include <filesystem>

#include "comm/thread_communicator.h"
#include "src/model/expert_choices.h"
#include "tests/support/test_engine.h"

namespace moesaic {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> golden_fixtures() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(MOESAIC_TEST_DATA "/models")) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string directory_of(const std::string& name) {
  return MOESAIC_TEST_DATA "/models/" + name;
}

class GoldenModel : public testing::TestWithParam<std::string> {
 protected:
  GoldenModel()
      : directory_(directory_of(GetParam())),
        golden_(read_golden_logits(directory_ + "/golden.safetensors")),
        length_(static_cast<std::int64_t>(golden_.input_ids.size())) {}

  std::string directory_;
  GoldenLogits golden_;
  std::int64_t length_;
};

TEST_P(GoldenModel, fp32_equals_transformers) {
  const EngineSetup setup{
      .directory = directory_, .precision = Precision::f32, .isa = supported_isas().back()};
  const auto logits = logits_on_ranks(1, setup, golden_.input_ids);
  EXPECT_LE(relative_l2(logits, golden_.logits), 1e-4);
}

TEST_P(GoldenModel, fp32_generation_equals_transformers_with_a_cache) {
  // Recorded only where the rotary scaling makes a token at a time something else.
  const auto& expected = golden_.logits_stepwise.empty() ? golden_.logits : golden_.logits_stepwise;
  const EngineSetup setup{
      .directory = directory_, .precision = Precision::f32, .isa = supported_isas().back()};
  const auto logits = logits_on_ranks(1, setup, golden_.input_ids, 1, 0);
  EXPECT_LE(relative_l2(logits, expected), 1e-4);
}

TEST_P(GoldenModel, bf16_is_close_to_transformers) {
  const EngineSetup setup{.directory = directory_, .isa = supported_isas().back()};
  const auto logits = logits_on_ranks(1, setup, golden_.input_ids);
  EXPECT_LE(relative_l2(logits, golden_.logits), 1e-2);
}

TEST_P(GoldenModel, bits_do_not_depend_on_ranks_threads_chunks_or_instruction_set) {
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    EngineSetup setup{.directory = directory_, .precision = precision, .isa = Isa::scalar};
    const auto expected = logits_on_ranks(1, setup, golden_.input_ids);
    for (const Isa isa : tile_order_isas()) {
      setup.isa = isa;
      EXPECT_EQ(logits_on_ranks(1, setup, golden_.input_ids, 5), expected) << isa_name(isa);
    }
    const int most =
        static_cast<int>(std::min<std::int64_t>(4, read_model_config(directory_).num_experts));
    setup.threads = 2;
    for (int ranks = 2; ranks <= most; ++ranks) {
      EXPECT_EQ(logits_on_ranks(ranks, setup, golden_.input_ids, 7), expected) << ranks << " ranks";
    }
    setup.placement = shuffled_placement(read_model_config(directory_), most);
    EXPECT_EQ(logits_on_ranks(most, setup, golden_.input_ids, 7), expected) << "placed otherwise";
    setup.placement = shuffled_placement(read_model_config(directory_), 2);
    setup.moe.half_batches = HalfBatches::on;
    EXPECT_EQ(logits_on_ranks(2, setup, golden_.input_ids, 7), expected) << "halves";
    setup.expert_replicas = 2;
    EXPECT_EQ(logits_on_ranks(4, setup, golden_.input_ids), expected) << "replicas";
  }
}

TEST_P(GoldenModel, experts_are_the_same_with_one_layer_in_memory_at_a_time) {
  const ModelConfig config = read_model_config(directory_);
  const ModelFiles files = ModelFiles::open(directory_);
  const std::vector<std::int32_t> front(golden_.input_ids.begin(), golden_.input_ids.begin() + 3);
  const std::vector<std::vector<std::int32_t>> texts = {golden_.input_ids, front};
  ThreadPool pool(2);
  for (const Precision precision : {Precision::bf16, Precision::f32}) {
    const EngineSetup setup{
        .directory = directory_, .precision = precision, .isa = supported_isas().back()};
    ExpertRows expected;
    run_thread_ranks(1, [&](Communicator& self) {
      TestEngine engine(setup, self);
      for (const std::vector<std::int32_t>& text : texts) {
        (void)run_sequence(engine.transformer(), text, std::ssize(text), std::ssize(text));
      }
      expected = engine.transformer().expert_rows();
    });
    const Compute compute{
        .isa = setup.isa, .vector = &find_vector_kernels(setup.isa), .pool = &pool};
    const ExpertChoices choices = expert_choices(
        files, config, texts, {.precision = precision, .layouts = {}, .compute = compute});
    EXPECT_EQ(count_rows(choices, config.num_experts), expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, GoldenModel, testing::ValuesIn(golden_fixtures()),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace moesaic
