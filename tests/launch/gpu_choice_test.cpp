#include "launch/job/gpu_choice.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "launch/job/rank_device.h"
#include "tests/support/checkpoint_files.h"
#include "tests/support/temporary_directory.h"

namespace moesaic::test {
namespace {

using Lists = std::vector<std::vector<std::int64_t>>;

/// Ids of each layer.
Lists chosen(const ExpertMask& mask) {
  Lists ids;
  for (std::int64_t layer = 0; layer < mask.num_layers(); ++layer) {
    ids.emplace_back();
    for (std::int64_t expert = 0; expert < mask.num_experts(layer); ++expert) {
      if (mask.contains(layer, expert)) ids.back().push_back(expert);
    }
  }
  return ids;
}

/// Experts 2 and 3 of four, of 10 bytes; layer 1 has none.
const ExpertSizes kSizes = {.own = HeldExperts(ExpertPlacement(4, 2), 1),
                            .bytes = {{0, 0, 10, 10}, {}, {0, 0, 10, 10}}};
const Lists kById = {{0, 1, 2, 3}, {}, {0, 1, 2, 3}};

TEST(GpuChoice, fills_every_layer_alike_with_own_experts) {
  EXPECT_EQ(chosen(fill(kSizes, kById, 19)), (Lists{{}, {}, {}}));
  EXPECT_EQ(chosen(fill(kSizes, kById, 39)), (Lists{{2}, {}, {2}}));
  EXPECT_EQ(chosen(fill(kSizes, kById, 40)), (Lists{{2, 3}, {}, {2, 3}}));
  EXPECT_EQ(chosen(fill(kSizes, {{0, 3, 1, 2}, {}, {2, 0, 1, 3}}, 20)), (Lists{{3}, {}, {2}}));
  EXPECT_EQ(chosen(fill(kSizes, kById, -5)), (Lists{{}, {}, {}}));
  EXPECT_EQ(least_bytes(kSizes, kById), 20) << "the least that it takes any with";
}

TEST(GpuChoice, knows_the_largest_number_that_fits) {
  EXPECT_EQ(bytes_of(ExpertMask::spread({4, 0, 4}, 2), kSizes), 20);  // 1 and 3
  EXPECT_EQ(largest_spread(kSizes, 40), 4);
  EXPECT_EQ(largest_spread(kSizes, 39), 2);  // of three, 2 and 3 are among them
  EXPECT_EQ(largest_spread(kSizes, 19), 0);
}

TEST(GpuChoice, takes_what_is_wished_and_else_what_fits) {
  const GpuWish all{.mask = ExpertMask::all({4, 0, 4})};
  EXPECT_EQ(chosen(choose_experts(all, kSizes, 0)), (Lists{{0, 1, 2, 3}, {}, {0, 1, 2, 3}}));
  const GpuWish automatic{.order = kById};
  const ExpertMask mask = choose_experts(automatic, kSizes, 39);
  EXPECT_EQ(chosen(mask), (Lists{{2}, {}, {2}}));
  EXPECT_EQ(own_experts(kSizes.own, mask, 0).all, 2);
  EXPECT_EQ(own_experts(kSizes.own, mask, 0).chosen, 1);
  EXPECT_EQ(own_experts(kSizes.own, mask, 1).all, 0);
}

TEST(GpuChoice, counts_the_gpus_that_the_system_tells_of) {
  const TemporaryDirectory directory;
  EXPECT_EQ(count_gpus(directory.path_of("none"), nullptr), 0);
  EXPECT_EQ(count_gpus(directory.path(), nullptr), 0);
  EXPECT_EQ(count_gpus(directory.path(), "0"), 0);
  write_text(directory.path_of("0000:01:00.0"), "");
  write_text(directory.path_of("0000:02:00.0"), "");
  EXPECT_EQ(count_gpus(directory.path(), nullptr), 2);
  const auto visible = [&](const char* list) { return count_gpus(directory.path(), list); };
  EXPECT_EQ(visible(""), 0);
  EXPECT_EQ(visible("-1"), 0);
  EXPECT_EQ(visible("1"), 1);
  EXPECT_EQ(visible("1,0"), 2);
  EXPECT_EQ(visible("1,1"), 1);
  EXPECT_EQ(visible("0,2,1"), 1) << "what follows one that is not there does not count";
  EXPECT_EQ(visible("GPU-4c3f,1"), 2);
  EXPECT_EQ(visible("NoDevFiles"), 0);
}

TEST(GpuChoice, takes_first_what_is_chosen_most) {
  const ModelConfig config = read_model_config(MOESAIC_TEST_DATA "/demo-model");
  const TemporaryDirectory directory;
  Options options;
  options.gpu_experts = "auto";
  options.expert_load = directory.path_of("load.json");
  std::string rows = "[7";
  for (int expert = 1; expert < 16; ++expert) rows += expert == 5 ? ", 9" : ", 7";
  std::string text = R"({"experts_per_token": 4, "rows": [)";
  for (int layer = 0; layer < 5; ++layer) text += (layer > 0 ? ", " : "") + rows + "]";
  write_text(*options.expert_load, text + "]}");
  const GpuWish wish = read_gpu_wish(options, config);
  EXPECT_FALSE(wish.mask);
  ASSERT_EQ(wish.order.size(), 5U);
  EXPECT_EQ(wish.order[4][0], 5);
  EXPECT_EQ(wish.order[4][1], 0);
  options.gpu_experts = "3";
  EXPECT_THROW(require_gpu_options(options), Error);
}

TEST(GpuChoice, refuses_words_that_are_no_choice_and_no_file) {
  const ModelConfig config = read_model_config(MOESAIC_TEST_DATA "/demo-model");
  const auto message = [&](const std::string& experts, ErrorKind kind) {
    Options options;
    options.gpu_experts = experts;
    return error_message([&] { (void)read_gpu_wish(options, config); }, kind);
  };
  for (const std::string word : {"", "al"}) {
    EXPECT_EQ(message(word, ErrorKind::usage),
              "--gpu-experts: \"" + word + "\" is neither none, all, auto, a number nor a file");
  }
  EXPECT_EQ(message("./al", ErrorKind::file), "./al: no such file");
}

TEST(GpuChoice, refuses_families_whose_experts_have_biases) {
  const ModelConfig config = read_model_config(MOESAIC_TEST_DATA "/models/gpt_oss-v4");
  for (const std::string which : {"all", "auto", "2"}) {
    Options options;
    options.gpu_experts = which;
    EXPECT_EQ(error_message([&] { (void)read_gpu_wish(options, config); }, ErrorKind::usage),
              "--gpu-experts with family gpt_oss: experts with biases run on CPUs alone: kernels "
              "for GPUs add none");
  }
}

}  // namespace
}  // namespace moesaic::test
